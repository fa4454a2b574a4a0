"""Dataset: writes transitions to a folder that appears complete or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import torch
from tensordict import LazyStackedTensorDict, TensorDict, TensorDictBase
from tensordict import cat as cat_tds

from steppe.cli import UsageError


class Dataset:
    """Write batches ``[n, t]`` one after the other to one memory-mapped TensorDict ``[n, rows]``.

    Batches ``[*B, t]`` of libraries that step several environments at once are flattened to ``[n, t]``.

    The data is written to a folder beside `out`, which replaces `out` at the end. Tensors are written as they arrive;
    data without a fixed shape is kept in memory until the end.

    Args:
        out: the folder to write.
        rows: length of the time dimension.

    Raises:
        UsageError: the folder cannot be made, or the disk has no room for so many rows.
    """

    def __init__(self, out: Path, *, rows: int) -> None:
        self._out = out.absolute()
        self._rows = rows
        self._done = 0
        self._store: TensorDictBase | None = None
        self._kept: list[TensorDictBase] = []
        self.frames = 0
        try:
            self._out.parent.mkdir(parents=True, exist_ok=True)
            self._work = Path(tempfile.mkdtemp(prefix=f".{self._out.name}-", dir=self._out.parent))
        except OSError as error:
            raise UsageError(f"--out {str(out)!r} cannot be written: {error}") from error

    def write(self, batch: TensorDictBase) -> None:
        """Append a batch ``[*B, t]``, or the part of it that makes ``rows`` in total."""
        if batch.ndim > 2:
            batch = batch.flatten(0, batch.ndim - 2)
        taken = batch[:, : self._rows - self._done]
        end = self._done + taken.shape[1]
        if _fixed(taken):
            if self._store is None:
                self._check_room(taken)
                self._store = _room(taken, self._rows, self._work / "data")
            self._store[:, self._done : end] = taken
        else:
            self._kept.append(taken.clone())
        self._done = end
        self.frames = self._done * taken.shape[0]

    def _check_room(self, batch: TensorDictBase) -> None:
        """Raise UsageError if the disk is too small: sparse files would be made, and fail when they are filled."""
        needed = batch.bytes() * self._rows // batch.shape[1]
        free = shutil.disk_usage(self._work).free
        if needed > free:
            frames, gib = batch.shape[0] * self._rows, 2**30
            raise UsageError(
                f"--out {str(self._out)!r}: {frames} frames take {needed / gib:,.1f} GiB, and {free / gib:,.1f} GiB "
                "are free there: collect fewer --frames, or write to another disk"
            )

    def finish(self) -> TensorDictBase:
        """Cut the data to the rows that were written, and move the folder to `out`; returns the data there."""
        source = self._work / "data"
        if self._store is None:
            cat_tds(self._kept, 1).memmap(prefix=source)
        elif self._done < self._rows:
            source = self._work / "cut"
            _room(self._store, self._done, source)[:, :] = self._store[:, : self._done]
        self._store = None
        if self._out.exists():
            self._out.rename(self._work / "before")
        os.replace(source, self._out)
        data: TensorDictBase = TensorDict.load_memmap(self._out)
        return data

    def discard(self) -> None:
        """Remove temporary files; a folder that `finish` has moved to `out` stays."""
        shutil.rmtree(self._work, ignore_errors=True)


def _room(like: TensorDictBase, rows: int, folder: Path) -> TensorDictBase:
    return like[:, :1].expand(like.shape[0], rows).memmap_like(prefix=folder)


def _fixed(data: TensorDictBase) -> bool:
    if isinstance(data, LazyStackedTensorDict):
        return False
    return all(
        _fixed(value) if isinstance(value, TensorDictBase) else torch.is_tensor(value) for value in data.values()
    )
