"""The code path of a rollout: through rows of arrays, or through TensorDicts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensordict import TensorDictBase

from steppe.envs.rollout.on_rows import rollout_on_rows
from steppe.envs.rollout.on_tensordicts import RolloutPlan, rollout_on_tensordicts
from steppe.envs.rollout.random_actions import draws_in_blocks

if TYPE_CHECKING:
    from steppe.envs.base import EnvBase

__all__ = ["rollout_problem", "run_rollout"]


def run_rollout(env: EnvBase, plan: RolloutPlan) -> TensorDictBase:
    """Run a rollout: through rows if nothing needs the TensorDict of a step, otherwise through TensorDicts."""
    if rollout_problem(env, plan) is None:
        return rollout_on_rows(env, env.row_writer, plan)
    return rollout_on_tensordicts(env, plan)


def rollout_problem(env: EnvBase, plan: RolloutPlan) -> str | None:
    """Return why a rollout cannot go through rows, or None if it can."""
    writer, start = env.row_writer, plan.start
    assert start is not None
    if writer is None:
        return env.no_row_writer_reason
    if env.batch_size:
        if env.row_steps is None:
            return "TensorDicts are as fast as rows."
        if not env.is_validated("step"):
            return "the first step of a batch is checked against the specs."
        if plan.break_all:
            return "rows that have ended are left out of steps."
        if env.allow_done_after_reset:
            return "an episode may have ended when it begins."
    if plan.callback is not None:
        return "a callback takes the TensorDict of each step."
    if plan.policy_device is not None:
        return "each step is moved to the policy's device and back."
    if start.batch_size != env.batch_size:
        return "the data to start from has another batch size."
    if env.run_type_checks:
        return "each step is checked against the specs (run_type_checks)."
    known = set(writer.layout.root_spec.keys(include_nested=True, leaves_only=True))
    others = set(start.keys(include_nested=True, leaves_only=True)) - known
    if others:
        return f"the data to start from has entries that the environment does not have: {sorted(map(str, others))}."
    if plan.policy is not None and (writer.layout.reads_root or writer.layout.copied_to_next):
        return "a transform reads the root, where the policy may write entries of its own."
    if plan.policy is None and plan.actions is None and not draws_in_blocks(env):
        return "random actions depend on the state."
    return None
