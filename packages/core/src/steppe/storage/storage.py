"""Storage: rows of every leaf of a spec, as numpy and torch views of one memory."""

from __future__ import annotations

import math
import mmap
import os
import weakref
from collections.abc import Collection
from typing import Any, Literal, get_args

import numpy as np
import torch
from tensordict import TensorDict

from steppe.errors import NotSupported, SpecError
from steppe.specs import CPU, Composite
from steppe.storage.build import TensorDictBuilder
from steppe.storage.large_arrays import large_array
from steppe.storage.layout import Layout
from steppe.systems import anonymous_file

__all__ = ["Kind", "Storage"]

Kind = Literal["plain", "shared", "cuda"]


class Storage:
    """Rows of every leaf of ``spec``, as numpy and torch views of one memory.

    Args:
        spec: spec of one row, without the row dimensions. Nested keys are tuples.
        rows: leading dimensions, ``(n,)`` for a batch, ``(T,)`` or ``(n, T)`` for a rollout.
        kind: ``"plain"``: one allocation for each leaf in this process. ``"shared"``: one anonymous mapping, whose
            descriptor can be sent to other processes. ``"cuda"``: on the GPU, without numpy views.
        device: the GPU of a ``"cuda"`` storage.
        unset: keys of entries that are written before they are read. In a plain storage their memory is not cleared,
            and large arrays reuse earlier memory.
        fd: descriptor of a ``"shared"`` storage of another process with the same ``spec`` and ``rows``; the storage
            closes it.

    Attributes:
        arrays: key to numpy view, ``[*rows, *shape]``; empty on a GPU, and without leaves that have no numpy dtype.
        tensors: key to torch view of the same memory.
        block: ``[nbytes]`` uint8, all leaves in the order of ``layout``; not for the ``"plain"`` kind.

    A new storage holds zeros, except in ``unset`` entries. Shared memory is freed when its last view is gone, because
    closing the mapping under a live tensor would crash the process.

    Raises:
        NotSupported: a leaf has no fixed shape or is not a tensor, or this machine does not support the kind.
    """

    def __init__(
        self,
        spec: Composite,
        rows: tuple[int, ...],
        *,
        kind: Kind = "plain",
        device: torch.device | None = None,
        unset: Collection[str | tuple[str, ...]] = (),
        fd: int | None = None,
    ) -> None:
        if kind not in get_args(Kind):
            raise SpecError(f"There is no storage of kind {kind!r}. Kinds: {', '.join(get_args(Kind))}.")
        self.spec = spec
        self.rows = tuple(int(size) for size in rows)
        self.kind: Kind = kind
        self.layout = Layout.of(spec, self.rows)
        self.arrays: dict[Any, np.ndarray] = {}
        self.tensors: dict[Any, torch.Tensor] = {}
        self._fd: int | None = None
        self._td: TensorDict | None = None
        self._device = device
        self._block: torch.Tensor | None = None
        # Tensors made in inference mode cannot be written outside of it, but training may follow an evaluation.
        with torch.inference_mode(False):
            if kind == "shared":
                self._share(anonymous_file(self.layout.nbytes) if fd is None else fd)
            else:
                self._allocate(unset)

    @property
    def fd(self) -> int:
        """The descriptor of a ``"shared"`` storage, with which another process makes the same storage.

        Raises:
            NotSupported: this storage is of another kind.
        """
        if self._fd is None:
            raise NotSupported(f"A {self.kind} storage has no descriptor for another process: make it 'shared'.")
        return self._fd

    @property
    def td(self) -> TensorDict:
        """All rows as one TensorDict of views, batch size ``[*rows, *spec.shape]``."""
        if self._td is None:
            self._td = TensorDictBuilder(self.spec, self.rows)(self.tensors)
        return self._td

    def new_views(self, at: tuple[int, ...]) -> tuple[TensorDict, np.ndarray]:
        """Return some rows of a ``"shared"`` storage as a TensorDict of new views.

        Args:
            at: the first indices of the rows.

        Returns:
            The views, batch size ``[*rows[len(at):], *spec.shape]``, and an array that lives as long as they do: a weak
            reference to it tells when the last of them is gone.
        """
        memory = np.frombuffer(self._mapping, np.uint8)
        outer, rows = self.rows[: len(at)], self.rows[len(at) :]
        index = int(np.ravel_multi_index(at, outer))
        tensors = {}
        with torch.inference_mode(False):
            for field in self.layout.fields:
                nbytes = math.prod((*rows, *field.shape)) * field.dtype.itemsize
                start = field.offset + index * nbytes
                block = torch.from_numpy(memory[start : start + nbytes])
                tensors[field.key] = block.view(field.dtype).view((*rows, *field.shape))
        return TensorDictBuilder(self.spec, rows)(tensors), memory

    @property
    def block(self) -> torch.Tensor:
        """All leaves as one ``[nbytes]`` uint8 tensor.

        Raises:
            NotSupported: this is a plain storage, with one allocation for each leaf.
        """
        if self._block is None:
            raise NotSupported("A plain storage is no block of memory: make it 'shared' or 'cuda'.")
        return self._block

    def pin(self) -> None:
        """Lock the block's pages for direct copies to a GPU, until the last view is gone."""
        block = self.block
        if block.device.type == "cuda" or block.is_pinned():
            return
        cudart: Any = torch.cuda.cudart
        runtime = cudart()
        failed = runtime.cudaHostRegister(block.data_ptr(), block.nbytes, 0)
        if int(failed):
            raise NotSupported(f"CUDA refused to lock {block.nbytes} bytes of shared memory (error {int(failed)}).")
        # The lock must end before the mapping, which is freed with its last view.
        weakref.finalize(self._mapping, runtime.cudaHostUnregister, block.data_ptr())

    def _allocate(self, unset: Collection[str | tuple[str, ...]]) -> None:
        if self.kind == "plain":
            for field in self.layout.fields:
                shape = (*self.rows, *field.shape)
                if field.numpy_dtype is None:
                    self.tensors[field.key] = torch.zeros(shape, dtype=field.dtype, device=CPU)
                else:
                    allocate = large_array if field.key in unset else np.zeros
                    array = self.arrays[field.key] = allocate(shape, field.numpy_dtype)
                    self.tensors[field.key] = torch.from_numpy(array)
            return
        if not torch.cuda.is_available():
            raise NotSupported(f"A {self.kind} storage needs a CUDA device, and torch sees none on this machine.")
        self._lay(torch.zeros(self.layout.nbytes, dtype=torch.uint8, device=self._device or "cuda"))

    def _share(self, fd: int) -> None:
        self._fd = fd
        weakref.finalize(self, os.close, fd)
        self._mapping = mmap.mmap(fd, self.layout.nbytes)
        self._lay(torch.from_numpy(np.frombuffer(self._mapping, np.uint8)))

    def _lay(self, block: torch.Tensor) -> None:
        """Make the views of all leaves in one block of bytes."""
        self._block = block
        for field in self.layout.fields:
            shape = (*self.rows, *field.shape)
            end = field.offset + math.prod(shape) * field.dtype.itemsize
            tensor = self.tensors[field.key] = block[field.offset : end].view(field.dtype).view(shape)
            if tensor.is_cpu and field.numpy_dtype is not None:
                self.arrays[field.key] = tensor.numpy()
