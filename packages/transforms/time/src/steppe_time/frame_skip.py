"""FrameSkipTransform: repeat the action several times in one step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from tensordict import TensorDictBase

from steppe.envs import BoundWriter, merge_rows, rows_ended, step_mask
from steppe.errors import SpecError
from steppe.transforms import EnvSpecs, Hooks, InnerWriter, RowHooks, SteppingTransform

from .repeated import Repeated

__all__ = ["FrameSkipTransform"]


class FrameSkipTransform(SteppingTransform):
    """Repeat the action ``frame_skip`` times in one step, and sum up the rewards.

    A row stops when its episode ends. Transforms before this one run on each repeated step (a StepCounter counts them
    all), those after it only once. All rewards of the environment are summed up, including those of groups of agents.
    Resets are unchanged.

    >>> from steppe import FrameSkipTransform, TransformedEnv, make_env
    >>> env = TransformedEnv(make_env("gym:CartPole-v1"), FrameSkipTransform(4))
    >>> env.rollout(2)["next", "reward"].flatten()
    tensor([4., 4.])

    Args:
        frame_skip: number of repetitions, >= 1.

    Raises:
        SpecError: ``frame_skip`` is not a whole number >= 1.
    """

    writes_done = True
    keeps_nothing = True

    def __init__(self, frame_skip: int = 1) -> None:
        if isinstance(frame_skip, bool) or not isinstance(frame_skip, int) or frame_skip < 1:
            raise SpecError(f"FrameSkipTransform: frame_skip must be a whole number >= 1, found {frame_skip!r}.")
        super().__init__()
        self.frame_skip = frame_skip

    def hooks(self, specs: EnvSpecs) -> Hooks:
        # Rewards are added up before later casts.
        rewards = list(specs.reward.keys(include_nested=True, leaves_only=True))

        def wrap(inner: InnerWriter) -> BoundWriter:
            counts = [part.frame_skip for part in inner.parts if isinstance(part, FrameSkipTransform)]
            counts = counts * inner.n if len(counts) == 1 else counts
            if max(counts) == 1:
                return inner.writer
            return Repeated(inner.writer, counts, inner.root_inputs, [inner.following[key] for key in rewards])

        rows = RowHooks(wrap=wrap, steps_again=True, reads=rewards)
        return Hooks(rows=rows) if self.frame_skip == 1 else replace(super().hooks(specs), rows=rows)

    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        env = self.env
        groups, following = env.done_groups, next_tensordict
        rewards = {key: following.get(key) for key in env.reward_keys}
        mask: Any = tensordict.pop("_step", None)
        running = None if mask is None else step_mask(tensordict, mask)
        actions = {key: tensordict.get(key) for key in env.action_keys}
        root = tensordict
        for _ in range(self.frame_skip - 1):
            acting = ~rows_ended(following, groups)
            if running is not None:
                acting = acting & running
            partial = not bool(acting.all())
            if partial and not bool(acting.any()):
                break
            root = env.step_mdp(root.set("next", following))
            for key, action in actions.items():
                root.set(key, action)
            if partial:
                root.set("_step", acting)
            again = env.step(root).get("next")
            root.pop("_step", None)
            following = merge_rows(acting, again, following) if partial else again
            for key, total in rewards.items():
                if not partial:
                    rewards[key] = total + again.get(key)
                    continue
                shaped = acting.reshape(*acting.shape, *(1,) * (total.ndim - acting.ndim))
                rewards[key] = total + torch.where(shaped, again.get(key), torch.zeros_like(total))
        for key, total in rewards.items():
            following.set(key, total)
        return following

    def _repr_keys(self) -> Any:
        return ("frame_skip",)
