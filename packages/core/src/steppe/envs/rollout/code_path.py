"""The code path of a rollout or a collector: through rows of arrays, or through TensorDicts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensordict import TensorDictBase

from steppe.envs.done import any_done, rows_ended
from steppe.envs.rollout.random_actions import draws_in_blocks
from steppe.envs.rollout.rollout_plan import RolloutPlan, actor, known_actions
from steppe.envs.rollout.row_frames import RowFrames
from steppe.envs.rollout.td_frames import Step, TensorDictFrames
from steppe.errors import NotSupported
from steppe.storage import shallow_copy

if TYPE_CHECKING:
    from steppe.envs.base import EnvBase

__all__ = ["no_row_frames_reason", "run_rollout"]


def no_row_frames_reason(env: EnvBase, start: TensorDictBase, *, acts: bool) -> str | None:
    """Return why steps with RowFrames are not possible, or None if they are.

    Args:
        env: one environment or a batch.
        start: the root of the first step.
        acts: a policy chooses the actions; otherwise they are known in advance.
    """
    writer = None if env.is_closed else env.row_writer
    if writer is None:
        return env.no_row_writer_reason
    if env.batch_size and not env.is_validated("step"):
        return "the first step of a batch is checked against the specs."
    if env.allow_done_after_reset:
        return "an episode may have ended when it begins."
    if start.batch_size != env.batch_size:
        return "the data to start from has another batch size."
    if env.run_type_checks:
        return "each step is checked against the specs (run_type_checks)."
    if acts:
        return "a step takes entries over from the root." if writer.layout.copied_to_next else None
    known = {*writer.layout.root_spec.keys(include_nested=True, leaves_only=True), *writer.layout.action_keys}
    others = set(start.keys(include_nested=True, leaves_only=True)) - known
    if others:
        return f"the data to start from has entries that the environment does not have: {sorted(map(str, others))}."
    return None


def run_rollout(plan: RolloutPlan) -> TensorDictBase:
    """Run a rollout: through rows if nothing needs the TensorDict of a step, otherwise through TensorDicts."""
    env, start, until_done = plan.env, plan.tensordict, bool(plan.break_when_any_done or plan.break_when_all_done)
    assert start is not None
    acts = plan.actions is None and (plan.policy is not None or not draws_in_blocks(env))
    if _no_row_rollout_reason(plan) is None and no_row_frames_reason(env, start, acts=acts) is None:
        take = None if acts else known_actions(plan)
        rows = RowFrames(env, plan.max_steps, plan.declared, take=take, grows=until_done)
        rows.run(actor(plan) if acts else None, start, plan.max_steps, until_done=until_done)
        return rows.result()
    frames = TensorDictFrames(
        plan.batch_dims,
        plan.max_steps,
        plan.declared,
        copies_large=not until_done and plan.storing_device is None,
        changes_roots=plan.policy is not None,
    )
    frames.run(_steps(plan, frames), start, plan.max_steps)
    try:
        return frames.result(contiguous=plan.return_contiguous)
    except NotSupported as error:
        hint = "Call it with return_contiguous=False."
        raise NotSupported(f"rollout(return_contiguous=True): {error} {hint}") from error


def _no_row_rollout_reason(plan: RolloutPlan) -> str | None:
    """Return which arguments of a rollout need the TensorDict of each step; None if none do."""
    env = plan.env
    if env.batch_size and env.row_steps is None:
        return "TensorDicts are as fast as rows, and keep gradients."
    if plan.break_when_all_done and (env.batch_size or "done" not in env.done_keys):
        return "environments, or agents, whose episode has ended are left out of steps."
    if plan.callback is not None:
        return "a callback takes the TensorDict of each step."
    if plan.policy_device is not None:
        return "each step is moved to the policy's device and back."
    return None


def _steps(plan: RolloutPlan, frames: TensorDictFrames) -> Step:
    """Return a function that takes one step of a rollout on TensorDicts."""
    env, act, all_done = plan.env, actor(plan), bool(plan.break_when_all_done)
    until_done = plan.break_when_any_done or all_done
    resets_last = "step_and_maybe_reset" in env.overridden_methods

    def step(root: TensorDictBase) -> tuple[TensorDictBase, TensorDictBase | None]:
        root, following = act(root), None
        last = frames.taken == plan.max_steps - 1
        if until_done or (last and not resets_last):
            if all_done and frames.taken:
                _skip_ended(env, root)
            frame = env.step(root)
        else:
            frame, following = env.step_and_maybe_reset(root)
        kept = frame
        if plan.callback is not None:
            kept = shallow_copy(frame)
            plan.callback(env, frame)
        if plan.storing_device is not None:
            kept = kept.to(plan.storing_device)
        if not last and following is None and not _ended(env, frame.get("next"), every=all_done):
            following = env.step_mdp(frame)
        return kept, following

    return step


def _skip_ended(env: EnvBase, root: TensorDictBase) -> None:
    done = rows_ended(root, env.done_groups, every=True)
    if bool(done.any()):
        root.set("_step", ~done)


def _ended(env: EnvBase, following: TensorDictBase, *, every: bool) -> bool:
    if every:
        return bool(rows_ended(following, env.done_groups, every=True).all())
    return any_done(following, env.done_groups)
