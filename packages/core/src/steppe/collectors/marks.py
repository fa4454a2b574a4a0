"""From the steps of a batch to what is yielded: marked, left out, copied and moved as the caller asked."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import LazyStackedTensorDict, TensorDict, TensorDictBase

from steppe.envs import DoneGroup, EnvBase
from steppe.errors import SpecError
from steppe.specs import CPU, below_next

__all__ = ["Marks"]


class Marks:
    """What is done with the steps of each batch.

    Args:
        name: of the collector, for errors.
        env: whose steps they are.
        groups: the levels of its data that have done entries, the root first.
        set_truncated: mark the last frame of each row as truncated and done.
        track_traj_ids: write ``("collector", "traj_ids")``.
        track_policy_version: write ``"policy_version"`` at the root and below ``"next"`` too.
        compact_obs: leave out below ``"next"`` what is the root of the step after it.
        masks: write ``("collector", "mask")``: batches may be interrupted.
        copies: yield what the next batch does not write over.
        storing_device: where batches are moved to; None leaves them where they are.

    Raises:
        SpecError: the environment has no entry for ``set_truncated``.
    """

    def __init__(
        self,
        name: str,
        env: EnvBase,
        groups: list[DoneGroup],
        *,
        set_truncated: bool,
        track_traj_ids: bool,
        track_policy_version: bool,
        compact_obs: bool,
        masks: bool,
        copies: bool,
        storing_device: torch.device | None,
    ) -> None:
        self._traj_ids, self._versions, self._masks = track_traj_ids, track_policy_version, masks
        self._compact, self._copies, self._device = compact_obs, copies, storing_device
        self._env = env
        self._truncated = [
            (group.key("truncated"), group.key("done")) for group in groups if "truncated" in group.names
        ]
        if set_truncated and not self._truncated:
            raise SpecError(
                f"{name}: set_truncated=True needs a 'truncated' entry in the done spec, which has "
                f"{env.done_keys}. Add one with env.add_truncated_keys()."
            )
        if not set_truncated:
            self._truncated = []

    def yielded(
        self, stored: TensorDictBase, ids: torch.Tensor, steps: int, version: int, infos: Any, *, overwritten: bool
    ) -> TensorDictBase:
        """Make of the steps of a batch what the caller gets.

        Args:
            stored: ``[*B, T]``; its last frames may be marked as truncated.
            ids: the trajectory of each frame, ``[*B, T]``.
            steps: how many were collected.
            version: of the policy.
            infos: what the agent was told of each row ``[*B]``, or None.
            overwritten: whether the next batch is written over ``stored``.
        """
        self.truncate(stored.get("next")[..., :steps])
        stored = self.without_mirrored(stored)
        batch = stored.clone() if overwritten and self._copies and self._stays(stored) else stored
        return self.marked(self.moved(batch), ids, steps, version, infos)

    def marked(self, batch: TensorDictBase, ids: torch.Tensor, steps: int, version: int, infos: Any) -> TensorDictBase:
        """Add what the collector says of each frame; see :meth:`yielded`."""
        versions = torch.full_like(ids, version)
        told = {"traj_ids": ids, "policy_version": versions} if self._traj_ids else {"policy_version": versions}
        if self._masks:
            told["mask"] = torch.arange(ids.shape[-1], device=CPU).lt(steps).expand(ids.shape).clone()
        collector = TensorDict(told, batch_size=ids.shape)
        batch.set("collector", collector if batch.device is None else collector.to(batch.device))
        if self._versions:
            for key in ("policy_version", ("next", "policy_version")):
                batch.set(key, versions.clone())
        if infos is not None:
            infos = infos.unsqueeze(-1).expand(batch.batch_size)
            batch.set("agent_info", infos if batch.device is None else infos.to(batch.device))
        batch.names = [None] * (batch.batch_dims - 1) + ["time"]
        return batch

    def without_mirrored(self, batch: TensorDictBase) -> TensorDictBase:
        """Leave out, where asked to, what is below ``"next"`` and at the root of the step after it."""
        if not self._compact:
            return batch
        return batch.exclude(*(below_next(key) for key in (*self._env.observation_keys, *self._env.state_keys)))

    def moved(self, batch: TensorDictBase) -> TensorDictBase:
        """Move a batch to where batches are stored."""
        return batch if self._device is None or batch.device == self._device else batch.to(self._device)

    def _stays(self, stored: TensorDictBase) -> bool:
        """Whether what is yielded would be the storage itself: a move to another device copies anyway."""
        return self._device is None or self._device == (stored.device or torch.device("cpu"))

    def truncate(self, following: TensorDictBase) -> None:
        """Mark the last frame ``[*B, T]`` as truncated and done, where asked to."""
        if not self._truncated:
            return
        last = following[..., -1]
        for keys in self._truncated:
            for key in keys:
                if isinstance(following, LazyStackedTensorDict):
                    # The frame itself: its tensors are those of the next root too.
                    last.set(key, torch.ones_like(last.get(key)))
                else:
                    last.get(key).fill_(True)
