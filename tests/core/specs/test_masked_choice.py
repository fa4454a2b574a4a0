"""MaskedChoice: random choices under masks that come with the data."""

from __future__ import annotations

import pytest
import torch

from steppe.errors import SpecError
from steppe.specs import Categorical, MultiCategorical
from steppe.specs.masked_choice import MaskedChoice

NONE = torch.Size([])


def drawn(choice: MaskedChoice, mask: torch.Tensor, lead: torch.Size = NONE) -> torch.Tensor:
    return choice.draw(mask, lead, torch.Generator().manual_seed(3))


def test_only_allowed_categories_are_drawn():
    mask = torch.tensor([False, True, False, True]).expand(200, 4)

    numbers = drawn(MaskedChoice(Categorical(4), torch.Size([4]), None), mask, torch.Size([200]))
    assert set(numbers.tolist()) == {1, 3}


def test_combinations_are_drawn_together():
    joint = torch.eye(3, dtype=torch.bool)[:2].expand(100, 2, 3)

    pairs = drawn(MaskedChoice(MultiCategorical([2, 3]), torch.Size([2, 3]), [2, 3]), joint, torch.Size([100]))
    assert {tuple(pair) for pair in pairs.tolist()} == {(0, 0), (1, 1)}


def test_each_choice_may_have_a_row_of_its_own():
    rows = torch.tensor([[True, False, False], [False, False, True]])

    assert drawn(MaskedChoice(MultiCategorical([3, 3]), rows.shape, [3, 3]), rows).tolist() == [0, 2]


def test_a_mask_of_another_shape_is_refused():
    with pytest.raises(SpecError, match=r"must have the shape \(4,\), and its spec has \(5,\)"):
        MaskedChoice(Categorical(4), torch.Size([5]), None)
    with pytest.raises(SpecError, match=r"found \(4,\) and torch.float32"):
        drawn(MaskedChoice(Categorical(4), torch.Size([4]), None), torch.ones(4))
