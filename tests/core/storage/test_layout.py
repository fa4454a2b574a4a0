"""Layouts of storage: specs without fixed sizes have none."""

from __future__ import annotations

import pytest
import torch

from steppe.errors import NotSupported
from steppe.specs import Composite, NonTensor, Unbounded
from steppe.storage import Storage, no_storage_reason


@pytest.mark.parametrize(
    ("leaf", "text"),
    [
        (NonTensor(shape=()), "'x' is not a tensor"),
        (Unbounded(shape=(3, -1)), r"'x' has a dynamic shape \(3, -1\)"),
    ],
)
def test_a_leaf_without_fixed_size_is_refused_by_name(leaf: object, text: str) -> None:
    with pytest.raises(NotSupported, match=text):
        Storage(Composite(x=leaf), (2,))


def test_unequal_rows_have_no_layout() -> None:
    stacked = torch.stack([Composite(x=Unbounded(shape=(2,))), Composite(x=Unbounded(shape=(3,)))], 0)

    assert no_storage_reason(stacked) is not None
