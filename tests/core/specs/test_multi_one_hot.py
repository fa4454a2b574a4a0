"""MultiOneHot: several choices in one vector."""

from __future__ import annotations

import pytest
import torch

from steppe.errors import NotSupported, SpecError
from steppe.specs import MultiCategorical, MultiOneHot

MASK = torch.tensor([True, False, True, True, False])


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_one_hot_masks_hold_for_rows() -> None:
    spec = MultiOneHot([2, 3], mask=MASK)
    assert spec.expand(200, 5).is_in(spec.rand((200,), generator=seeded()))
    assert not spec.is_in(torch.tensor([0, 1, 1, 0, 0]).bool())
    assert spec.project(torch.tensor([0.0, 9.0, 0.0, 1.0, 5.0])).long().tolist() == [1, 0, 0, 1, 0]
    spec.update_mask(None)
    assert spec == MultiOneHot([2, 3])


def test_rows_are_encoded_from_numbers() -> None:
    spec = MultiOneHot([2, 3])
    assert spec.encode([1, 2]).long().tolist() == [0, 1, 0, 0, 1]
    assert spec.encode([0, 1, 0, 0, 1]).tolist() == [False, True, False, False, True]
    assert MultiOneHot([1, 1]).encode([0, 0]).tolist() == [True, True]
    with pytest.raises(SpecError, match=r"'a': expected whole numbers from 0 to \[1, 2\], found \[2, 0\]"):
        spec.encode([2, 0], key="a")
    with pytest.raises(SpecError, match=r"expected shape \(5,\), found \(3,\)"):
        spec.encode([0, 1, 0])


def test_a_row_needs_a_one_in_each_part() -> None:
    spec = MultiOneHot([2, 2])
    assert spec.is_in(torch.tensor([1, 0, 0, 1]).bool())
    assert not spec.is_in(torch.tensor([1, 1, 0, 0]).bool())
    assert not spec.is_in(spec.zero())


def test_nested_counts_have_no_one_hot_rows() -> None:
    spec = MultiCategorical([[2, 3], [4, 5]], (7, 2, 2))
    with pytest.raises(NotSupported, match=r"MultiCategorical\.to_one_hot is not possible: nvec is nested"):
        spec.to_one_hot(spec.rand())
    with pytest.raises(NotSupported, match=r"MultiCategorical\.to_one_hot_spec is not possible: nvec is nested"):
        spec.to_one_hot_spec()
    rows = [part.to_one_hot_spec().is_in(part.to_one_hot(part.rand())) for part in spec.unbind(1)]
    assert rows == [True, True]
