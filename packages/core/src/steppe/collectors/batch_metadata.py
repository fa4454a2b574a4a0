"""BatchMetadata: add metadata to the steps of a batch, drop redundant entries, and move it for the caller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from tensordict import LazyStackedTensorDict, TensorDict, TensorDictBase

from steppe.envs import EnvBase, truncated_keys
from steppe.specs import CPU, below_next

if TYPE_CHECKING:
    from steppe.collectors.engine import Collector

__all__ = ["BatchMetadata"]


class BatchMetadata:
    """Convert the stored steps of a batch to the batch that a collector yields.

    Args:
        collector: the collector, whose arguments say what to add to its batches and what to leave out.
        env: the environment that made the steps.
        masks: write ``("collector", "mask")``, because batches may be interrupted.

    Raises:
        SpecError: ``set_truncated`` needs a done entry that the environment has not.
    """

    def __init__(self, collector: Collector, env: EnvBase, *, masks: bool) -> None:
        self._traj_ids, self._versions = collector.track_traj_ids, collector.track_policy_version
        self._compact, self._device = collector.compact_obs, collector.storing_device
        self._env, self._masks = env, masks
        self._truncated: list[tuple[Any, Any]] = []
        if collector.set_truncated:
            self._truncated = truncated_keys(env, type(collector).__name__)

    def yielded(
        self,
        stored: TensorDictBase,
        ids: torch.Tensor,
        steps: int,
        version: int,
        infos: TensorDictBase | None,
    ) -> TensorDictBase:
        """Return the batch that the collector yields.

        Args:
            stored: steps ``[*B, T]``; their last frames are marked as truncated in place.
            ids: the trajectory of each frame, ``[*B, T]``.
            steps: the number of steps that were collected, at most T.
            version: of the policy.
            infos: the ``agent_info`` of each row ``[*B]``, or None.
        """
        self._truncate(stored.get("next")[..., :steps])
        if self._compact:
            mirrored = (*self._env.observation_keys, *self._env.state_keys)
            stored = stored.exclude(*(below_next(key) for key in mirrored))
        batch = stored if self._device in (None, stored.device) else stored.to(self._device)
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

    def _truncate(self, following: TensorDictBase) -> None:
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
