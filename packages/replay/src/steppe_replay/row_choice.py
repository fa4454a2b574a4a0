"""Choose the rows of a sample and copy them while other threads and processes write."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from steppe.errors import StateError
from steppe_replay.samplers import Info, Sampler
from steppe_replay.storages import Storage

__all__ = ["choose_rows"]


def choose_rows(storage: Storage, sampler: Sampler, batch_size: int) -> tuple[np.ndarray, Info, Any]:
    """Return the indices of a sample, the entries that the sampler adds, and copies of the rows.

    If a writer begins a row while it is copied, the sampler chooses another row in its place.
    """
    while True:
        assert storage.ring is not None
        begun = storage.ring.begun
        try:
            return _chosen(storage, sampler, batch_size)
        except StateError:  # writers may have written over all that the sampler had found
            if not storage.ring.overtaken(begun):
                raise


def _chosen(storage: Storage, sampler: Sampler, batch_size: int) -> tuple[np.ndarray, Info, Any]:
    assert storage.ring is not None
    begun = storage.ring.begun
    index, info = sampler.sample(storage, batch_size)
    rows = storage.take(index)
    while (bad := storage.torn(begun, index)) is not None:
        begun = storage.ring.begun
        replacement = sampler.again(storage, index, info, bad)
        if replacement is None:
            index, info = sampler.sample(storage, batch_size)
            rows = storage.take(index)
            continue
        places, new, entries = replacement
        index[places] = new
        fresh = storage.take(new)
        at = torch.from_numpy(places)
        for key, value in entries.items():
            info[key][at] = value
        if isinstance(rows, list):
            for place, row in zip(places.tolist(), fresh, strict=True):
                rows[place] = row
        else:
            rows[at] = fresh
    return index, info, rows
