"""LazyTensorStorage and LazyMemmapStorage: storages whose memory is allocated when the first data comes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from steppe.errors import SpecError, StateError
from steppe_replay.memory import FileMemory
from steppe_replay.tensor_storage import TensorStorage
from steppe_replay.torchrl_arguments import check_others

__all__ = ["LazyMemmapStorage", "LazyTensorStorage"]


class LazyTensorStorage(TensorStorage):
    """Rows in memory, allocated when the first data comes.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> from steppe_replay import LazyTensorStorage, ReplayBuffer
    >>> buffer = ReplayBuffer(storage=LazyTensorStorage(100), batch_size=2)
    >>> _ = buffer.extend(TensorDict({"x": torch.arange(5)}, [5]))
    >>> buffer.sample().batch_size
    torch.Size([2])

    Args:
        max_size: how many rows it holds.
        device: device of the rows.
        ndim: how many leading dimensions of the data count as rows.
        compact: observations whose frames are stored once, see :class:`TensorStorage`.
        shared: allocate memory that workers can write.
        **others: arguments of TorchRL that have no effect here are ignored with a warning.
    """

    def __init__(
        self,
        max_size: int,
        *,
        device: torch.device | str | None = "cpu",
        ndim: int = 1,
        compact: Any = (),
        shared: bool = False,
        **others: Any,
    ) -> None:
        memory = FileMemory() if shared else None
        super().__init__(None, max_size, device=device, ndim=ndim, compact=compact, memory=memory, **others)


class LazyMemmapStorage(TensorStorage):
    """Rows in a file that is mapped into memory: larger than memory, and still there after the program has ended.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> from steppe_replay import LazyMemmapStorage, ReplayBuffer
    >>> buffer = ReplayBuffer(storage=LazyMemmapStorage(100), batch_size=2)
    >>> _ = buffer.extend(TensorDict({"x": torch.arange(5)}, [5]))
    >>> len(buffer)
    5

    Args:
        max_size: how many rows it holds.
        scratch_dir: the folder of the file. With None the file has no name, and is in memory.
        device: ``"cpu"``.
        ndim: how many leading dimensions of the data count as rows.
        existsok: go on with the rows that the folder has; otherwise they are an error.
        compact: observations whose frames are stored once, see :class:`TensorStorage`.
        **others: arguments of TorchRL that have no effect here are ignored with a warning.
    """

    #: The file in ``scratch_dir``.
    FILE = "rows.bin"

    def __init__(
        self,
        max_size: int,
        *,
        scratch_dir: str | Path | None = None,
        device: torch.device | str | None = "cpu",
        ndim: int = 1,
        existsok: bool = False,
        compact: Any = (),
        **others: Any,
    ) -> None:
        check_others(type(self), {**others, "shared_init": None})  # before a folder is made; all are shared
        path = None
        if scratch_dir is not None:
            folder = Path(scratch_dir)
            folder.mkdir(parents=True, exist_ok=True)
            file = folder / self.FILE
            if file.exists() and not existsok:
                raise StateError(
                    f"{file} has rows of an earlier storage: pass existsok=True to go on with them, or remove it."
                )
            path = str(file)
        self.scratch_dir = scratch_dir
        super().__init__(None, max_size, device=device, ndim=ndim, compact=compact, memory=FileMemory(path))
        if self.ring is not None:
            self._recover()

    @classmethod
    def in_folder(cls, folder: Path) -> TensorStorage:
        """Return the storage in a folder, with its own size and dimensions, to read its rows.

        Rows that a writer was writing when it was killed are finished first.
        """
        memory = FileMemory(str(folder / cls.FILE))
        storage = TensorStorage(max_size=1, memory=memory)
        if storage.ring is not None:
            storage.ndim = 1 + len(memory.info["lead"])
            storage.compact = {tuple(key): n for key, _, _, n in memory.info["frames"]}
            storage.max_size = (storage.ring.columns - storage.margin) * storage.lanes
            storage.ring.finish_others(storage._finish_other, 0.0)
        return storage

    @classmethod
    def rows_in(cls, folder: Path) -> dict[str, Any]:
        """Return the state of the storage in a folder."""
        storage = cls.in_folder(folder)
        return {"rows": None, "write_count": 0, "lead": ()} if storage.ring is None else storage.state_dict()

    def _recover(self) -> None:
        """Let go of columns that a writer was writing when it was killed."""
        assert self.ring is not None
        columns = self.max_size // self.lanes + self.margin
        if columns != self.ring.columns:
            raise SpecError(
                f"{self.scratch_dir} has room for {self.ring.columns * self.lanes} rows, and max_size is "
                f"{self.max_size}."
            )
        self.ring.finish_others(self._finish_other, 0.0)
        self.ring.recover()
