"""set_array, copy_rows and clear_rows write arrays of any size."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from steppe.storage import clear_rows
from steppe.storage.write_arrays import copy_rows, set_array


@pytest.mark.parametrize("size", [2, 2_000])
@pytest.mark.parametrize("viewed", [True, False], ids=["numpy", "torch alone"])
def test_a_tensor_is_written_whole_or_to_some_rows(size, viewed):
    array = np.zeros((3, size), np.float32)
    tensor = torch.from_numpy(array)
    whole = torch.arange(3.0 * size).reshape(3, size)

    set_array(array if viewed else None, tensor, whole)
    assert torch.equal(tensor, whole)
    set_array(array if viewed else None, tensor, -whole[:2], np.array([2, 0]))
    assert torch.equal(tensor, torch.stack([-whole[1], whole[1], -whole[0]]))


@pytest.mark.parametrize(
    "rows", [[1], list(range(0, 30, 2)), list(range(29, -1, -1))], ids=["a loop", "one index", "all rows"]
)
def test_rows_are_copied_and_cleared(rows):
    source = np.arange(60).reshape(30, 2) + 1
    target = np.zeros_like(source)

    copy_rows(target, source, rows)
    assert (target[rows] == source[rows]).all()
    assert target.any(-1).sum() == len(rows)
    clear_rows(target, rows)
    assert not target.any()
