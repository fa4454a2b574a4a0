"""BatchMetadata: add metadata to the steps of a batch, drop redundant entries, copy and move it for the caller."""

from __future__ import annotations

import torch
from tensordict import LazyStackedTensorDict, TensorDict, TensorDictBase

from steppe.envs import DoneGroup, EnvBase
from steppe.errors import SpecError
from steppe.specs import CPU, below_next

__all__ = ["BatchMetadata"]


class BatchMetadata:
    """Converts the stored steps of a batch to what a collector yields.

    Args:
        name: of the collector, for errors.
        env: the environment that made the steps.
        groups: the levels of its data that have done entries, the root first.
        set_truncated: mark the last frame of each row as truncated and done.
        track_traj_ids: write ``("collector", "traj_ids")``.
        track_policy_version: write ``"policy_version"`` at the root and below ``"next"`` too.
        compact_obs: drop the entries below ``"next"`` that equal the root of the next step.
        masks: write ``("collector", "mask")``, because batches may be interrupted.
        copies: yield a copy that the next batch does not overwrite.
        storing_device: the device of the batches; None keeps the device of the data.

    Raises:
        SpecError: ``set_truncated`` needs a done entry that the environment has not.
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
        self,
        stored: TensorDictBase,
        ids: torch.Tensor,
        steps: int,
        version: int,
        infos: TensorDictBase | None,
        *,
        overwritten: bool,
    ) -> TensorDictBase:
        """Return the batch that the collector yields.

        Args:
            stored: steps ``[*B, T]``; their last frames are marked as truncated in place.
            ids: the trajectory of each frame, ``[*B, T]``.
            steps: the number of steps that were collected, at most T.
            version: of the policy.
            infos: the ``agent_info`` of each row ``[*B]``, or None.
            overwritten: the next batch overwrites ``stored``.
        """
        self.truncate(stored.get("next")[..., :steps])
        stored = self.without_mirrored(stored)
        batch = stored.clone() if overwritten and self._copies and self._stays(stored) else stored
        return self.marked(self.moved(batch), ids, steps, version, infos)

    def marked(
        self, batch: TensorDictBase, ids: torch.Tensor, steps: int, version: int, infos: TensorDictBase | None
    ) -> TensorDictBase:
        """Add the metadata of each frame to a batch; see :meth:`yielded`."""
        versions = torch.full_like(ids, version)
        metadata = {"traj_ids": ids, "policy_version": versions} if self._traj_ids else {"policy_version": versions}
        if self._masks:
            metadata["mask"] = torch.arange(ids.shape[-1], device=CPU).lt(steps).expand(ids.shape).clone()
        collector = TensorDict(metadata, batch_size=ids.shape)
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
        """Drop the entries below ``"next"`` that equal the root of the next step, if ``compact_obs`` is set."""
        if not self._compact:
            return batch
        return batch.exclude(*(below_next(key) for key in (*self._env.observation_keys, *self._env.state_keys)))

    def moved(self, batch: TensorDictBase) -> TensorDictBase:
        """Move a batch to ``storing_device``."""
        return batch if self._device is None or batch.device == self._device else batch.to(self._device)

    def _stays(self, stored: TensorDictBase) -> bool:
        """Whether :meth:`moved` would return the storage itself, because it is on the right device already."""
        return self._device is None or self._device == (stored.device or torch.device("cpu"))

    def truncate(self, following: TensorDictBase) -> None:
        """Mark the last frame ``[*B, T]`` as truncated and done, if ``set_truncated`` is set."""
        if not self._truncated:
            return
        last = following[..., -1]
        for keys in self._truncated:
            for key in keys:
                if isinstance(following, LazyStackedTensorDict):
                    # Replace the entries of the frame: the root of the next batch may have the same tensors.
                    last.set(key, torch.ones_like(last.get(key)))
                else:
                    last.get(key).fill_(True)
