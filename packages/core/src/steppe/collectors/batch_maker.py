"""BatchMaker: step an environment with a policy, and collect the steps in batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import torch
from tensordict import TensorDict, TensorDictBase

from steppe.collectors.acting import Acting
from steppe.collectors.agent_hook import AgentStepper
from steppe.collectors.batch_metadata import BatchMetadata
from steppe.collectors.trajectories import TrajectoryIds
from steppe.envs import (
    EnvBase,
    RandomActions,
    RowFrames,
    TensorDictFrames,
    declared_keys,
    no_row_frames_reason,
    rows_ended,
    with_written,
)
from steppe.errors import NotSupported, SpecError
from steppe.specs import CPU, Composite, make_composite_from_td
from steppe.storage import no_storage_reason

__all__ = ["BatchMaker", "Key"]

Key: TypeAlias = "str | tuple[str, ...]"


class BatchMaker:
    """Make batches ``[*B, T]``, each of which continues where the one before stopped.

    Args:
        env: one environment, or a batch ``[*B]``.
        acting: the policy, or random actions.
        agent: steps a policy that declares infos or a recurrent state; None for an ordinary policy.
        metadata: adds metadata to the steps of a batch.
        steps: T.
        stopped: called after each step; True ends the batch there. None: batches have T steps.
        same: yield one TensorDict, which the next batch overwrites, instead of giving its memory away.

    Attributes:
        steps: T.
        steps_of_batch: the number of steps of the last batch.
        ids: the numbers of the trajectories.
        holds_first_step: whether the first step of the next batch has been taken.
    """

    def __init__(
        self,
        env: EnvBase,
        acting: Acting,
        agent: AgentStepper | None,
        metadata: BatchMetadata,
        *,
        steps: int,
        stopped: Callable[[], bool] | None,
        same: bool,
    ) -> None:
        self.env, self._acting, self._agent = env, acting, agent
        self._metadata, self._stopped, self._same = metadata, stopped, same
        self.steps = self.steps_of_batch = steps
        self.ids = TrajectoryIds(env.batch_size)
        self.holds_first_step = False
        self._root: TensorDictBase | None = None
        self._frames: RowFrames | TensorDictFrames | None = None
        self._frames_are_for: tuple[bool, RandomActions | None, int] | None = None
        self._memory: Mapping[Key, torch.Tensor] = {}
        self._batch: TensorDictBase | None = None

    # -- the root of the next batch ------------------------------------------------------------------------------

    @property
    def goes_on(self) -> bool:
        """Whether the next batch continues episodes."""
        return self._root is not None

    def forget_root(self) -> None:
        """Let the next batch begin with a reset, even if its first step has been taken."""
        self._root, self.holds_first_step = None, False

    def close(self) -> None:
        """Release all data."""
        self.forget_root()
        self._frames = self._frames_are_for = self._batch = None
        self._memory = {}

    def reset(self, kwargs: dict[str, Any]) -> None:
        """Begin new episodes in all rows.

        Args:
            kwargs: arguments of ``env.reset``.
        """
        self.forget_root()  # if the reset is interrupted, the state of the rows is unknown: the next batch resets
        self._root = self._begin(kwargs)

    def _begin(self, kwargs: dict[str, Any] | None = None) -> TensorDictBase:
        self.ids.begin()
        root = self.env.reset(**(kwargs or {}))
        return root if self._agent is None else self._agent.begin(root)

    # -- batches --------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def prepare(self) -> Composite | None:
        """Take the first step of the next batch, with the policy, unless it was taken.

        Returns:
            The spec of a whole batch; None if its data has no fixed layout.
        """
        if not self.holds_first_step:
            root = self._root if self._root is not None else self._begin()
            self._root = None  # as in ``collect``
            self._root, self.holds_first_step = self._steps_to(1, root, random=False), True
        example = self._stored().clone()
        if self.env.has_dynamic_specs or not _is_plain(example):
            return None
        ids = torch.zeros(example.batch_size, dtype=torch.int64, device=CPU)
        example = self._metadata.yielded(example, ids, self.steps, self._acting.version, self._infos())
        spec = make_composite_from_td(example, unsqueeze_null_shapes=False)
        devices = {value.device for value in example.values(True, True)}
        return spec if len(devices) == 1 and no_storage_reason(spec) is None else None

    def keep_batches_in(self, memory: Mapping[Key, torch.Tensor]) -> None:
        """Write the batches from the next one on to memory that another process reads.

        Args:
            memory: tensors ``[*B, T, *shape]`` by key. Entries without one get new memory for each batch.
        """
        self._memory = memory
        if self._frames is not None:
            if not self.holds_first_step:
                self._frames.forget()
            self._frames.keep_in(memory)

    @torch.no_grad()
    def collect(self, random: bool, *, anew: bool = False) -> TensorDictBase:
        """Make a batch.

        Args:
            random: take random actions without calling the policy; the batch lacks what the policy writes. If
                :meth:`prepare` has taken the first step, the policy takes the others too.
            anew: begin new episodes.
        """
        begun, self.holds_first_step = self.holds_first_step, False
        if anew and not begun:
            self._root = None
        root = self._root if self._root is not None else self._begin()
        # An interrupted batch leaves the environment in an unknown state: the next batch then begins with a reset.
        self._root = None
        if not begun or not (self.steps == 1 or (self._stopped is not None and self._stopped())):
            root = self._steps_to(self.steps, root, random=random and not begun, begun=begun)
        batch = self._yielded()
        self._root = root
        return batch

    def _steps_to(self, end: int, root: TensorDictBase, *, random: bool, begun: bool = False) -> TensorDictBase:
        """Take steps from ``root`` on until the batch has ``end`` of them, and return the root of the next one."""
        act = self._acting.in_batch(random)
        if not begun:
            self._use_frames(root, act)
        frames, stopped = self._frames, self._stopped
        if isinstance(frames, RowFrames):
            return frames.run(act, root, end, goes_on=True, stopped=stopped)
        assert frames is not None
        following = frames.run(partial(self._step, act, random), root, end, stopped=stopped)
        assert following is not None
        return following

    def _use_frames(self, root: TensorDictBase, act: Callable[[TensorDictBase], TensorDictBase]) -> None:
        """Keep the steps of a new batch by rows if its data allows that, otherwise as TensorDicts."""
        env = self.env
        random = act if isinstance(act, RandomActions) and act.in_blocks else None
        on_rows = self._agent is None and no_row_frames_reason(env, root, acts=random is None) is None
        wanted = on_rows, random, env.specs_version
        if self._frames is None or wanted != self._frames_are_for:
            declared = declared_keys(env, self._acting.policy)
            if on_rows:
                self._frames = RowFrames(env, self.steps, declared, take=None if random is None else random.take)
            else:
                self._frames = TensorDictFrames(
                    env.batch_dims, self.steps, declared, copies_large=True, changes_roots=random is None
                )
            self._frames.keep_in(self._memory)
            self._frames_are_for = wanted
        self._frames.forget()

    def _step(
        self, act: Callable[[TensorDictBase], TensorDictBase], random: bool, root: TensorDictBase
    ) -> tuple[TensorDictBase, TensorDictBase]:
        if self._agent is not None:
            return self._agent.step(act, root, random)
        return self.env.step_and_maybe_reset(with_written(root, act(root)))

    def _yielded(self) -> TensorDictBase:
        """Number the trajectories of the batch, and return the batch that the caller gets."""
        frames = self._frames
        assert frames is not None
        steps = self.steps_of_batch = frames.taken
        stored = self._stored()
        frames.forget()
        ids = self.ids.advance(rows_ended(stored.get("next"), self.env.done_groups)[..., :steps])
        if steps < self.steps:
            ids = torch.nn.functional.pad(ids, (0, self.steps - steps), value=-1)
        if self._same and not self._memory and _is_plain(stored):
            stored = stored.clone()  # the policy may have kept its roots, which are views of the frames
            keys: list[Any] = list(stored.keys(include_nested=True, leaves_only=True))
            self.keep_batches_in({key: stored.get(key) for key in keys})
        batch = self._metadata.yielded(stored, ids, steps, self._acting.version, self._infos())
        if not self._same or not _is_plain(batch):
            return batch
        self._batch = batch if self._batch is None else self._batch.update(batch)
        return self._batch

    def _stored(self) -> TensorDictBase:
        """Return the steps of the batch, without metadata."""
        frames = self._frames
        assert frames is not None
        if isinstance(frames, RowFrames):
            return frames.result(whole=True)
        try:
            return frames.result(whole=True, contiguous=not self.env.has_dynamic_specs)
        except NotSupported as error:
            raise SpecError(
                f"The data of a step differs from the data of the first step: {error} Policies write the same entries "
                "in each step; a TensorDictPrimer adds what they read from the step before to the data of a reset."
            ) from error

    def _infos(self) -> Any:
        return None if self._agent is None else self._agent.infos


def _is_plain(data: TensorDictBase) -> bool:
    """Whether data consists of tensors in plain TensorDicts."""
    return type(data) is TensorDict and all(
        _is_plain(value) if isinstance(value, TensorDictBase) else isinstance(value, torch.Tensor)
        for value in data.values()
    )
