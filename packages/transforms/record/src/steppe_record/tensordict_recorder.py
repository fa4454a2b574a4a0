"""TensorDictRecorder: record the data of an environment and write it to a file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from tensordict import NestedKey, NonTensorData, TensorDictBase, is_leaf_nontensor, is_non_tensor, stack

from steppe.errors import SpecError
from steppe.transforms import EnvSpecs, Hooks, Transform

from .files import NewFile

__all__ = ["TensorDictRecorder"]


class TensorDictRecorder(Transform):
    """Record the data of steps, and write it to a file at ``dump``.

    The file holds one TensorDict ``[T, *B]`` of the data below ``"next"`` of the recorded steps; read it with
    ``torch.load(file, weights_only=False)``. The data stays unchanged.

    A recorder inside a batch records its own environment and calls ``dump`` when the batch is closed. Each of these
    recorders needs a separate ``out_file_base``.

    >>> import torch
    >>> from steppe import TensorDictRecorder, TransformedEnv, make_env
    >>> recorder = TensorDictRecorder("run", skip=1)
    >>> env = TransformedEnv(make_env("gym:Pendulum-v1"), recorder)
    >>> _ = env.rollout(10)
    >>> recorder.dump()
    >>> torch.load("run_tensordict.t", weights_only=False)["observation"].shape
    torch.Size([10, 3])

    Args:
        out_file_base: beginning of the name of the file: ``"data/run"`` for ``data/run_tensordict.t``.
        skip_reset: record no data of resets. Otherwise it is recorded too, with zeros for entries that a reset lacks,
            such as rewards, and None for text; if only some environments of a batch are reset, the others have their
            last data.
        skip: record every ``skip``-th TensorDict, resets included, beginning with number ``skip``.
        in_keys: entries to record. Default: all.
        overwrite: replace an existing file.

    Raises:
        SpecError: ``skip`` is not positive.

    Attributes:
        td: the recorded data.
        count: number of TensorDicts since the last ``dump``.
        iter: number of calls of ``dump``.
    """

    writes_done = False

    def __init__(
        self,
        out_file_base: str | os.PathLike[str],
        skip_reset: bool = True,
        skip: int = 4,
        in_keys: NestedKey | Sequence[NestedKey] | None = None,
        *,
        overwrite: bool = False,
    ) -> None:
        super().__init__([] if in_keys is None else in_keys)
        if not isinstance(skip, int) or isinstance(skip, bool) or skip < 1:
            raise SpecError(f"TensorDictRecorder takes a positive integer as skip, found {skip!r}.")
        self.out_file_base = os.fspath(out_file_base)
        self.skip_reset = skip_reset
        self.skip = skip
        self.overwrite = overwrite
        self.iter = 0
        self.count = 0
        self.td: list[TensorDictBase] = []
        self._last: TensorDictBase | None = None
        self._in_batch = False

    def _check_batched_worker_compat(self) -> None:
        super()._check_batched_worker_compat()
        self._in_batch = True

    def close(self) -> None:
        """Write the remaining data, if the recorder is inside a batch."""
        if self._in_batch:
            self.dump()

    def hooks(self, specs: EnvSpecs) -> Hooks:
        hooks = super().hooks(specs)
        hooks.reads_root = False
        return hooks

    def _call(self, next_tensordict: TensorDictBase) -> TensorDictBase:
        self.count += 1
        kept = self.count % self.skip == 0
        if kept or not self.skip_reset:
            # Copies, because the next step may write into the same memory.
            self._last = self._chosen(next_tensordict).clone()
        if kept and self._last is not None:
            self.td.append(self._last)
        return next_tensordict

    def _reset(self, tensordict: TensorDictBase | None, tensordict_reset: TensorDictBase) -> TensorDictBase:
        if self.skip_reset:
            self.count += 1
            return tensordict_reset
        mask = None if tensordict is None else tensordict.get("_reset", None)
        fresh = tensordict_reset
        if mask is not None and not mask.all() and self._last is not None:
            rows = mask.reshape(*fresh.batch_size, -1).any(-1)
            keys = fresh.keys(include_nested=True, leaves_only=True, is_leaf=is_leaf_nontensor)
            known = [key for key in keys if self._last.get(key, None) is not None]
            fresh = fresh.select(*known).where(rows, self._last.select(*known))
        self._call(fresh)
        return tensordict_reset

    def _chosen(self, data: TensorDictBase) -> TensorDictBase:
        return data.select(*self.in_keys, strict=False) if self.in_keys else data.exclude("_reset")

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Record data that comes from no environment."""
        return self._call(tensordict)

    def dump(self, suffix: str | None = None, step: int | None = None) -> None:
        """Write the recorded data and clear it; without data, nothing is written.

        Args:
            suffix: appended to the name of the file after an underscore.
            step: no effect; accepted so that one call of ``Compose.dump`` serves a :class:`VideoRecorder` too.

        Raises:
            FileExists: the file exists, and ``overwrite`` is False. The data is kept then.
        """
        if self.td:
            base = self.out_file_base if suffix is None else f"{self.out_file_base}_{suffix}"
            with NewFile(f"{base}_tensordict.t", overwrite=self.overwrite) as file:
                torch.save(_stacked(self.td), file.path)
        self.iter += 1
        self.count = 0
        self.td.clear()

    def _repr_keys(self) -> Iterator[str]:
        yield from ("out_file_base", "in_keys", "skip_reset", "skip")


def _stacked(parts: list[TensorDictBase]) -> TensorDictBase:
    """Stack TensorDicts; missing entries become zeros (None if not numeric)."""
    models: dict[Any, Any] = {}
    for part in parts:
        models.update(part.items(include_nested=True, leaves_only=True, is_leaf=is_leaf_nontensor))
    for part in parts:
        for key in models.keys() - set(part.keys(include_nested=True, leaves_only=True, is_leaf=is_leaf_nontensor)):
            part[key] = _blank(models[key])
    return stack(parts)


def _blank(value: Any) -> Any:
    """Return the replacement for a missing entry like ``value``."""
    if is_non_tensor(value):
        return NonTensorData(None, batch_size=value.batch_size, device=value.device)
    return torch.zeros_like(value)
