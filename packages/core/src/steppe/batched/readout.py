"""Copies of data in storage, which later steps do not change, on the host or on a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tensordict import TensorDict

from steppe.specs import Composite, is_host
from steppe.storage import Storage, TensorDictBuilder, build_td

__all__ = ["HostReadout", "StagedReadout", "readout"]

_from_numpy = torch.from_numpy


class HostReadout:
    """Copy leaves of a storage to fresh memory of this process.

    Args:
        storage: the storage.
        keys: keys of the result, to keys in storage.
        spec: the spec of the result, ``[n, ...]``.
        device: the device of the result, CPU or None.
    """

    def __init__(self, storage: Storage, keys: dict[Any, Any], spec: Composite, device: torch.device | None) -> None:
        self.spec, self.batch_size, self.device = spec, spec.shape, device
        self._arrays = [(key, storage.arrays[at]) for key, at in keys.items() if at in storage.arrays]
        # Methods looked up once: a step copies all of these.
        self._copies = [(key, array.copy) for key, array in self._arrays]
        # bfloat16 and its like, which numpy lacks
        self._tensors = [(key, storage.tensors[at]) for key, at in keys.items() if at not in storage.arrays]
        self._flat = all(isinstance(key, str) for key in keys)
        self._builder = TensorDictBuilder(spec, device=device)
        self._builders: dict[int, TensorDictBuilder] = {}

    def take(self, rows: Any = None) -> dict[Any, torch.Tensor]:
        """Copy the leaves, of all rows or of ``rows``, ``[k]`` int64 numpy."""
        if rows is not None:
            flat = {key: torch.from_numpy(array[rows]) for key, array in self._arrays}
            flat.update((key, tensor[torch.from_numpy(rows)]) for key, tensor in self._tensors)
            return flat
        flat = {key: _from_numpy(copy()) for key, copy in self._copies}
        if self._tensors:
            flat.update((key, tensor.clone()) for key, tensor in self._tensors)
        return flat

    def build(self, flat: dict[Any, torch.Tensor]) -> TensorDict:
        """Build the TensorDict of a result of ``take``, which it takes over."""
        if self._flat:
            return build_td(flat, self.batch_size, self.device)
        return self._builder(flat)

    def some(self, rows: np.ndarray[Any, Any]) -> TensorDict:
        """Build a TensorDict of copies of some rows."""
        n = len(rows)
        builder = self._builders.get(n)
        if builder is None:
            spec = self.spec[:n] if n < self.spec.shape[0] else self.spec
            builder = self._builders[n] = TensorDictBuilder(spec, device=self.device)
        return builder(self.take(rows))

    def begun(self, others: Any, was_reset: np.ndarray[Any, Any], rows: Any = None) -> dict[Any, torch.Tensor]:
        """Return the entries of the next root, in new memory.

        Args:
            others: the data of the other rows, by key: the result of ``take`` in this step, of the readout of
                ``next``, or a root made of it.
            was_reset: ``[n]`` bool, the rows that begin an episode, whose data this readout returns.
            rows: which rows all of this is about, ``[n]`` int64 numpy; None for all.
        """
        out = {}
        for key, tensor in self.take(rows).items():
            mask = torch.from_numpy(was_reset.copy()).to(tensor.device).view((-1,) + (1,) * (tensor.ndim - 1))
            out[key] = torch.where(mask, tensor, others[key])
        return out


class StagedReadout(HostReadout):
    """Move leaves of a storage to a device, with one transfer of the block that holds them.

    The storage needs one block of memory (any kind but ``"plain"``). For a GPU the block is page-locked.
    """

    def __init__(self, storage: Storage, keys: dict[Any, Any], spec: Composite, device: torch.device | None) -> None:
        super().__init__(storage, keys, spec, device)
        fields = {field.key: field for field in storage.layout.fields}
        wanted = [(key, fields[at], storage.tensors[at]) for key, at in keys.items()]
        first = min((field.offset for _, field, _ in wanted), default=0)
        end = max((field.offset + tensor.nbytes for _, field, tensor in wanted), default=0)
        self._block = storage.block[first:end]
        self._places = [
            (key, field.offset - first, tensor.nbytes, tensor.dtype, tensor.shape) for key, field, tensor in wanted
        ]
        if device is not None and device.type == "cuda":
            storage.pin()

    def take(self, rows: Any = None) -> dict[Any, torch.Tensor]:
        # Not asynchronous, because the next command to the workers may overwrite the block.
        block = self._block.to(self.device, copy=True)
        flat = {key: block[at : at + nbytes].view(dtype).view(shape) for key, at, nbytes, dtype, shape in self._places}
        if rows is None:
            return flat
        index = torch.from_numpy(rows).to(block.device)
        return {key: tensor[index] for key, tensor in flat.items()}


def readout(storage: Storage, keys: dict[Any, Any], spec: Composite, device: torch.device | None) -> HostReadout:
    """Return a readout for a device: staged for a GPU, otherwise on the host."""
    return (HostReadout if is_host(device) else StagedReadout)(storage, keys, spec, device)
