"""RolloutPlan: the arguments of a rollout, its policy or actions, and the finish of its result."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from tensordict import TensorDict, TensorDictBase

from steppe.envs.data_types import Key
from steppe.envs.done import truncated_keys
from steppe.envs.kept_entries import declared_keys
from steppe.envs.rollout.policies import Policy, as_policy, note_policy, on_device, with_written
from steppe.envs.rollout.random_actions import RandomActions, write_actions
from steppe.envs.rollout.row_frames import TakeActions
from steppe.errors import ArgumentError, SpecError
from steppe.specs import CPU, StackedComposite
from steppe.storage import entries, name_dims

if TYPE_CHECKING:
    from steppe.envs.base import EnvBase

__all__ = ["RolloutPlan", "actor", "finish", "known_actions"]


@dataclass
class RolloutPlan:
    """The arguments of :meth:`EnvBase.rollout`, checked; made when the environment has been reset.

    Attributes:
        policy: a function from TensorDict to TensorDict; None for random actions or ``actions``.
        tensordict: the data of the first step.
        policy_device: the device to which data is moved for the policy; None if it is not moved.
        truncated_keys: the truncated and done entries that the last step sets.
        declared: private entries that are kept.
    """

    env: EnvBase
    max_steps: int
    policy: Any
    callback: Callable[[Any, TensorDictBase], object] | None
    actions: Any
    auto_reset: bool
    auto_cast_to_device: bool
    break_when_any_done: bool | None
    break_when_all_done: bool | None
    return_contiguous: bool | None
    tensordict: TensorDictBase | None
    set_truncated: bool
    out: TensorDictBase | None
    trust_policy: bool
    storing_device: torch.device | str | None
    set_state: bool | None

    def __post_init__(self) -> None:
        """Check the arguments, and reset the environment unless ``auto_reset`` is False."""
        env, max_steps = self.env, self.max_steps
        if isinstance(max_steps, bool) or not isinstance(max_steps, int) or max_steps < 1:
            raise ArgumentError(f"rollout: max_steps is a whole number >= 1, found {max_steps!r}.")
        if self.break_when_any_done and self.break_when_all_done:
            raise TypeError("rollout: break_when_any_done and break_when_all_done cannot both be True: choose one.")
        if self.break_when_any_done is None:
            self.break_when_any_done = not self.break_when_all_done
        if self.policy is not None and self.actions is not None:
            raise TypeError("rollout: give a policy or actions, not both.")
        if isinstance(self.actions, Sized):
            if not len(self.actions):
                raise _out_of_actions()
            self.max_steps = min(max_steps, len(self.actions))
        if self.actions is not None:
            self.actions = iter(self.actions)
        if self.policy is not None and not self.trust_policy:
            self.policy = as_policy(self.policy, env)
        if self.auto_reset:
            self.tensordict = env.reset(self.tensordict, set_state=self.set_state)
        elif self.tensordict is None:
            raise TypeError("rollout: auto_reset=False needs tensordict=, the data to start from.")
        else:
            self.tensordict = env.maybe_reset(self.tensordict)
        self.batch_dims = self.tensordict.batch_dims
        self.policy_device = _policy_device(self.policy) if self.auto_cast_to_device else None
        self.truncated_keys = truncated_keys(env, "rollout") if self.set_truncated else []
        self.declared = declared_keys(env, self.policy)


def _policy_device(policy: Any) -> torch.device | None:
    for parameter in getattr(policy, "parameters", list)():
        return torch.device(parameter.device)
    return None


def actor(plan: RolloutPlan) -> Policy:
    """Return a function that writes the actions of a rollout into the data of each step."""
    env, policy = plan.env, plan.policy
    if plan.actions is not None:
        return _replay(plan.actions, env)
    if policy is None:
        return RandomActions(env)
    called = policy if plan.policy_device is None else on_device(policy, plan.policy_device, env.device or CPU)

    def act(td: TensorDictBase) -> TensorDictBase:
        try:
            return with_written(td, called(td))
        except Exception as error:
            note_policy(error, policy, td)
            raise

    return act


def known_actions(plan: RolloutPlan) -> TakeActions:
    """Return a function that gathers ``actions=`` into blocks, each checked once, or that draws random actions."""
    env, actions = plan.env, plan.actions
    writer = env.row_writer
    if actions is None:
        return RandomActions(env).take
    assert writer is not None
    taken = 0

    def take(at_most: int) -> dict[Key, torch.Tensor]:
        nonlocal taken
        steps = list(itertools.islice(actions, at_most))
        if not steps:
            raise _out_of_actions()
        if isinstance(steps[0], TensorDictBase):
            columns = {key: [step.get(key, None) for step in steps] for key in writer.layout.action_keys}
        else:
            columns = {env.action_key: steps}
        first, taken = taken, taken + len(steps)
        fitted: dict[Key, torch.Tensor] = writer.layout.actions.fit_steps(columns, env.batch_size, first=first)
        return fitted

    return take


def _out_of_actions() -> SpecError:
    """Return the error of a rollout whose ``actions=`` are used up."""
    return SpecError("rollout: actions= has fewer entries than steps were taken; lower max_steps or give more.")


def _replay(actions: Iterator[Any], env: EnvBase) -> Policy:
    """Return a policy that replays ``actions=``: TensorDicts of the action keys, or values of the only key.

    If all actions are in one group, entries may be TensorDicts of that group.
    """
    keys, spec = env.action_keys, env.full_action_spec
    only = keys[0] if len(keys) == 1 else None
    groups = {key[0] if isinstance(key, tuple) else None for key in keys}
    group = groups.pop() if len(groups) == 1 else None

    def replayed(td: TensorDictBase) -> TensorDictBase:
        try:
            action = next(actions)
        except StopIteration:
            raise _out_of_actions() from None
        plain = type(action) is torch.Tensor and type(td) is TensorDict
        if plain and type(only) is str and td.device in (None, action.device) and not td.is_locked:
            entries(td)[only] = action  # the step checks it
            return td
        if isinstance(action, TensorDictBase):
            if group is not None and group not in action.keys():
                action = TensorDict({group: action}, batch_size=td.batch_size)
            if isinstance(spec, StackedComposite):
                return td.update(action.select(*keys))
            write_actions(td, action, spec)
            return td
        if only is None:
            raise SpecError(f"rollout: actions= must give TensorDicts with {keys}, found {type(action).__name__}.")
        return td.set(only, action)

    return replayed


def finish(plan: RolloutPlan, result: TensorDictBase) -> TensorDictBase:
    """Name the time dimension, mark truncation, move the result, and write it into ``out=``."""
    for truncated, done in plan.truncated_keys:
        following = result.get("next")
        for key in (truncated, done):
            value = following.get(key).clone()
            value[(slice(None),) * plan.batch_dims + (-1,)] = True
            following.set(key, value)
    name_dims(result, [*[None] * plan.batch_dims, "time"])
    if plan.storing_device is not None:
        result = result.to(plan.storing_device)
    if plan.out is not None:
        return plan.out.update_(result) if plan.out.batch_size == result.batch_size else _wrong_out(plan.out, result)
    return result


def _wrong_out(out: TensorDictBase, result: TensorDictBase) -> TensorDictBase:
    raise SpecError(f"rollout: out= has batch size {tuple(out.batch_size)}, the result {tuple(result.batch_size)}.")
