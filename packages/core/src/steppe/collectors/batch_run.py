"""Steps of a batch of environments, copied from its storage to where the batch of frames is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDictBase

from steppe.batched import ParallelEnv, SerialEnv
from steppe.collectors.writer import FrameWriter
from steppe.envs import EnvBase
from steppe.errors import PolicyError
from steppe.storage import build_td, entries

__all__ = ["BatchRun"]


class BatchRun:
    """Fills batches without a TensorDict of what a step returns: only the policy gets one, of the root.

    Args:
        env: a batch for which :meth:`fits` holds.
        writer: has been made from a frame of its data and of the policy's.
    """

    @staticmethod
    def fits(env: EnvBase, writer: FrameWriter) -> bool:
        """Whether the data of a step is where this class looks for it."""
        if not isinstance(env, (SerialEnv, ParallelEnv)) or env.in_storage is None:
            return False
        keys = (*env.observation_keys, *env.done_keys, *env.reward_keys)
        return (
            writer.flat
            and writer.storage.kind == "plain"
            and not env.state_keys
            and not env.allow_done_after_reset
            and not env.run_type_checks
            and set(writer.next_keys) == {("next", key) for key in keys}
            and set(writer.carried) == {*env.observation_keys, *env.done_keys}
        )

    def __init__(self, env: SerialEnv | ParallelEnv, writer: FrameWriter) -> None:
        steps = env.in_storage
        assert steps is not None
        storage = steps.storage
        self.env, self.steps, self.writer = env, steps, writer
        self.following = [storage.tensors[key] for key in writer.next_keys]
        done = set(env.done_keys)
        # A row that has ended is reset in the same trip, so no root is done: one False tensor serves all steps.
        self.false = {name: torch.zeros_like(storage.tensors[name]) for name in writer.carried if name in done}
        self.sources = [
            (name, storage.arrays["next", name], storage.arrays[name]) for name in writer.carried if name not in done
        ]

    def run(
        self,
        act: Callable[[TensorDictBase], TensorDictBase],
        root: TensorDictBase,
        first: int,
        stopped: Callable[[], bool] | None = None,
    ) -> tuple[int, TensorDictBase]:
        """Step from ``first`` to the end of the batch; returns how many steps it has, and the root of the next one.

        Args:
            act: the policy.
            root: data to begin from.
            first: the first step to write.
            stopped: asked after each step whether the batch is to end there.
        """
        step_in_storage, writer, following = self.steps.step, self.writer, self.following
        names = [name for name, _, _ in self.sources]
        writer.fill(self.false, first)
        batch_size, device = root.batch_size, root.device
        level: dict[str, Any] = dict(root.items())
        fresh = True
        for step in range(first, writer.steps):
            level.update(self.false)
            root = build_td(level, batch_size, device)
            carried = [level[name] for name in names]
            acted = act(root)
            if acted is not root:
                if not isinstance(acted, TensorDictBase):
                    raise PolicyError(f"The policy must return a TensorDict, found {type(acted).__name__}.")
                root.update(acted)
            level = entries(root)
            reset = step_in_storage(root)
            for name, value in zip(names, carried, strict=True):
                fresh = fresh or level[name] is not value
            writer.write_values(step, names if fresh else [], root, following)
            fresh = reset is not None
            level = dict(level)
            for name, after, start in self.sources:
                array = after.copy()
                if reset is not None:
                    array[reset] = start[reset]
                level[name] = torch.from_numpy(array)
            if stopped is not None and stopped():
                break
        return step + 1, build_td({**level, **self.false}, batch_size, device)
