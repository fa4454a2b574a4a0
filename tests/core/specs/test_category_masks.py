"""Masks of categories: shapes that are accepted, and what they allow."""

from __future__ import annotations

import pytest
import torch

from steppe.errors import NotSupported, SpecError
from steppe.specs import Categorical, MultiCategorical


def test_a_mask_of_combinations_becomes_flat_in_each_row():
    grids = torch.arange(24).reshape(2, 3, 4) % 5 == 0
    spec = Categorical(12, shape=(2,), mask=grids)

    assert torch.equal(spec.mask, grids.reshape(2, 12))
    assert all(bool(row[number]) for _ in range(20) for row, number in zip(spec.mask, spec.rand(), strict=True))


def test_the_grid_of_one_row_counts_for_all_rows():
    grid = torch.tensor([[[True, False], [False, True]]])

    assert Categorical(4, shape=(3,), mask=grid).mask.tolist() == [[True, False, False, True]] * 3


@pytest.mark.parametrize("shape", [(5,), (2, 5), (3, 2, 2)])
def test_a_mask_of_another_size_is_refused(shape):
    with pytest.raises(SpecError, match="mask that broadcasts to"):
        Categorical(4, shape=(2,), mask=torch.ones(shape, dtype=torch.bool))


def test_a_choice_without_an_allowed_category_is_free():
    spec = MultiCategorical([2, 3], mask=[False, False, False, True, False])

    drawn = spec.rand((200,))
    assert set(drawn[:, 0].tolist()) == {0, 1}
    assert set(drawn[:, 1].tolist()) == {1}


def test_unequal_masks_have_no_list_of_categories():
    spec = Categorical(3, shape=(2,), mask=[[True, False, True], [True, True, True]])

    with pytest.raises(NotSupported, match="The rows allow different categories"):
        spec.enumerate(use_mask=True)
