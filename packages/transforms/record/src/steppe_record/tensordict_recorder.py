"""TensorDictRecorder: the data of an environment, kept until it is written to a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import torch
from tensordict import NonTensorData, TensorDictBase, is_leaf_nontensor, is_non_tensor, stack

from steppe.errors import SpecError
from steppe.transforms import EnvSpecs, Hooks, Transform

from .files import NewFile

__all__ = ["TensorDictRecorder"]


class TensorDictRecorder(Transform):
    """Keeps the data that an environment returns, and writes it to a file when ``dump`` is called.

    What is written is one TensorDict ``[T, *B]``, which ``torch.load(file, weights_only=False)`` reads: of each step
    that is kept what is below ``"next"``. The data passes unchanged.

    Inside a batch each recorder keeps the data of its environment. Nobody can call ``dump`` there: it is called when
    the batch is closed. Each needs an ``out_file_base`` of its own.

    Args:
        out_file_base: what the file's name begins with: ``"data/run"`` for ``data/run_tensordict.t``.
        skip_reset: leave out the data of resets. Otherwise they are kept too, with zeros for what a reset does not
            have, such as rewards, and None for text; where only some environments of a batch are reset, the others keep
            their last data.
        skip: every ``skip``-th TensorDict is kept, resets counted, the ``skip``-th first.
        in_keys: what to keep of it; everything by default.
        overwrite: replace a file that is there.

    Raises:
        SpecError: ``skip`` is not positive.

    Attributes:
        td: the data kept.
        count: how many came since the last ``dump``.
        iter: how often ``dump`` was called.
    """

    writes_done = False

    def __init__(
        self,
        out_file_base: str | os.PathLike[str],
        skip_reset: bool = True,
        skip: int = 4,
        in_keys: Any = None,
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
        """Write what is left, where the recorder is inside a batch."""
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
            # Copies: what is given may be memory that the next step writes.
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
            found = fresh.keys(include_nested=True, leaves_only=True, is_leaf=is_leaf_nontensor)
            known = [key for key in found if self._last.get(key, None) is not None]
            fresh = fresh.select(*known).where(rows, self._last.select(*known))
        self._call(fresh)
        return tensordict_reset

    def _chosen(self, data: TensorDictBase) -> TensorDictBase:
        return data.select(*self.in_keys, strict=False) if self.in_keys else data.exclude("_reset")

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Keep data that is there already."""
        return self._call(tensordict)

    def dump(self, suffix: str | None = None, step: int | None = None) -> None:
        """Write what was kept, and forget it; nothing is written where there is nothing.

        Args:
            suffix: added to the name of the file, behind an underscore.
            step: taken as a :class:`VideoRecorder` takes it; without effect.

        Raises:
            FileExists: the file is there, and ``overwrite`` is False. What was kept is still there.
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
    """The TensorDicts as one, with zeros, or None for what is no number, for entries that some of them lack."""
    models: dict[Any, Any] = {}
    for part in parts:
        models.update(part.items(include_nested=True, leaves_only=True, is_leaf=is_leaf_nontensor))
    for part in parts:
        for key in models.keys() - set(part.keys(include_nested=True, leaves_only=True, is_leaf=is_leaf_nontensor)):
            part[key] = _blank(models[key])
    return stack(parts)


def _blank(value: Any) -> Any:
    """What stands for an entry like ``value`` where there is none."""
    if is_non_tensor(value):
        return NonTensorData(None, batch_size=value.batch_size, device=value.device)
    return torch.zeros_like(value)
