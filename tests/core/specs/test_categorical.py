"""One choice as a number."""

from __future__ import annotations

import pytest
import torch

from steppe.errors import NotSupported, SpecError
from steppe.specs import (
    Categorical,
    CategoricalBox,
    OneHot,
)


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


MASK = torch.tensor([[True, False, True], [False, True, False]])


def test_categories_are_drawn_evenly() -> None:
    drawn = Categorical(3, (6000,)).rand(generator=seeded())
    assert drawn.bincount().tolist() == pytest.approx([2000] * 3, rel=0.1)


def test_a_wrong_shape_of_categories_raises_nothing() -> None:
    spec = Categorical(3, (4,), mask=torch.ones(4, 3, dtype=torch.bool))
    for wrong in (torch.zeros(5, dtype=torch.int64), torch.zeros((), dtype=torch.int64), torch.zeros(4, 3).long()):
        assert spec.is_in(wrong) is False


@pytest.mark.parametrize("value", [-1, 3, 200])
def test_categories_out_of_range_are_not_in_the_spec(value: int) -> None:
    assert not Categorical(3).is_in(torch.tensor(value))
    assert Categorical(3).project(torch.tensor(value)).item() in (0, 2)


def test_projection_takes_large_numbers_to_the_last_category() -> None:
    large = torch.tensor([torch.inf, 1e30, -torch.inf, torch.nan])
    assert Categorical(3, (4,), dtype=torch.float32).project(large).tolist() == [2, 2, 0, 0]


def test_categories_may_be_floats_but_whole() -> None:
    spec = Categorical(3, (2,), dtype=torch.float32)
    assert spec.is_in(torch.tensor([0.0, 2.0]))
    assert not spec.is_in(torch.tensor([0.0, 1.5]))
    assert not spec.is_in(torch.tensor([0.0, float("nan")]))


def test_flags_are_categories_of_two() -> None:
    spec = Categorical(2, (500, 1), dtype=torch.bool)
    assert spec.rand(generator=seeded()).unique().tolist() == [False, True]
    assert spec.zero().dtype is torch.bool


def test_a_dtype_that_is_too_small_is_refused() -> None:
    with pytest.raises(SpecError, match=r"torch\.int8 cannot number 129 categories"):
        Categorical(129, dtype=torch.int8)
    with pytest.raises(SpecError, match=r"torch\.bool cannot number 3"):
        Categorical(3, dtype=torch.bool)
    with pytest.raises(SpecError, match="0 or more categories, or -1"):
        Categorical(-2)
    with pytest.raises(SpecError, match=r"torch\.uint8 cannot number"):
        Categorical(1000).to(torch.uint8)
    assert Categorical(128, dtype=torch.int8).is_in(torch.tensor(127, dtype=torch.int8))


def test_projection_goes_to_the_nearest_allowed_category() -> None:
    spec = Categorical(5, (3,), mask=torch.tensor([False, True, False, False, True]))
    assert spec.project(torch.tensor([0, 3, 9])).tolist() == [1, 4, 4]


def test_categories_to_one_hot_and_back() -> None:
    spec = Categorical(3, (2,), mask=MASK)
    hot = spec.to_one_hot_spec()
    assert hot == OneHot(3, (2, 3), mask=MASK)
    assert hot.to_categorical_spec() == spec
    rows = spec.to_one_hot(torch.tensor([2, 1]), safe=True)
    assert rows.tolist() == [[False, False, True], [False, True, False]]
    assert hot.to_categorical(rows, safe=True).tolist() == [2, 1]
    assert spec.to_categorical(rows.argmax(-1) if rows.dtype is not torch.bool else torch.tensor([2, 1])).tolist() == [
        2,
        1,
    ]
    with pytest.raises(SpecError, match="mask"):
        spec.to_one_hot(torch.tensor([1, 1]), safe=True)


def test_the_number_of_categories_may_come_later() -> None:
    spec = Categorical(-1)
    assert spec.is_in(torch.tensor(10**6))
    assert not spec.is_in(torch.tensor(-1))
    assert spec.space.n == -1
    with pytest.raises(NotSupported, match=r"Categorical\.n needs the number of categories: call set_provisional_n"):
        spec.n  # noqa: B018
    with pytest.raises(NotSupported, match="set_provisional_n"):
        spec.rand()
    spec.set_provisional_n(4)
    assert (spec.n, spec.space) == (4, CategoricalBox(4))
    assert not spec.is_in(torch.tensor(4))
    with pytest.raises(SpecError, match="n is 3 already"):
        Categorical(3).set_provisional_n(4)


def test_all_rows_list_the_same_categories() -> None:
    assert Categorical(3, (2,)).enumerate().tolist() == [[0, 0], [1, 1], [2, 2]]
    assert Categorical(3, (2,)).cardinality() == OneHot(3, (2, 3)).cardinality() == 3
    assert OneHot(3, (2, 3)).enumerate().shape == (3, 2, 3)


def test_index_picks_the_chosen_value() -> None:
    values = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    assert Categorical(3).index(torch.tensor([2, 0]), values).tolist() == [3, 4]
    assert OneHot(3).index(torch.tensor([[0, 0, 1], [1, 0, 0]]).bool(), values).tolist() == [3, 4]
    assert Categorical(3).index(torch.tensor(1), values[0]).item() == 2


def test_the_number_of_categories_may_be_said_again() -> None:
    spec = Categorical(3)
    spec.set_provisional_n(3)
    with pytest.raises(SpecError, match="n is 3 already"):
        spec.set_provisional_n(4)


def test_several_categories_pick_from_one_row() -> None:
    values = torch.arange(6.0).view(2, 3)
    assert Categorical(3, (1,)).index(torch.tensor([[1], [2]]), values).tolist() == [[1], [5]]
    assert Categorical(3, (3,)).index(torch.tensor([[2, 1, 0], [0, 0, 1]]), values).tolist() == [[2, 1, 0], [3, 3, 4]]
    assert Categorical(3).index(torch.tensor([1, 2]), values).tolist() == [1, 5]
