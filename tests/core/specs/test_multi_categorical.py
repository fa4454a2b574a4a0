"""MultiCategorical and MultiOneHot."""

from __future__ import annotations

import pytest
import torch

from steppe.errors import IgnoredArgumentWarning, NotSupported, SpecError
from steppe.specs import BoxList, Categorical, CategoricalBox, MultiCategorical, MultiOneHot, OneHot

MASK = torch.tensor([True, False, True, True, False])


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_each_choice_has_its_own_range() -> None:
    drawn = MultiCategorical([2, 5], dtype=torch.int32).rand((500,), generator=seeded())
    assert drawn.dtype is torch.int32
    assert drawn[:, 0].unique().tolist() == [0, 1]
    assert drawn[:, 1].unique().tolist() == [0, 1, 2, 3, 4]


def test_each_choice_has_its_box() -> None:
    boxes = MultiOneHot([2, 5]).space
    assert boxes == BoxList([CategoricalBox(2), CategoricalBox(5)]) == MultiCategorical([2, 5]).space
    assert [box.n for box in boxes] == [2, 5]
    assert (len(boxes), boxes[1].n) == (2, 5)


def test_values_out_of_range_are_outside() -> None:
    spec = MultiCategorical([2, 5])
    assert spec.is_in(torch.tensor([1, 4]))
    assert not spec.is_in(torch.tensor([2, 0]))
    assert spec.is_in(torch.tensor([1])) is False
    assert spec.project(torch.tensor([7, -7])).tolist() == [1, 0]


def test_masks_are_split_between_the_choices() -> None:
    for spec in (MultiCategorical([2, 3], mask=MASK), MultiOneHot([2, 3], mask=MASK).to_categorical_spec()):
        drawn = spec.rand((300,), generator=seeded())
        assert drawn[:, 0].unique().tolist() == [0]
        assert drawn[:, 1].unique().tolist() == [0, 1]
        assert spec.project(torch.tensor([1, 2])).tolist() == [0, 1]
        assert not spec.is_in(torch.tensor([1, 1]))
        assert spec.enumerate(use_mask=True).tolist() == [[0, 0], [0, 1]]


def test_numbers_and_rows_convert_into_each_other() -> None:
    spec = MultiCategorical([2, 3], (4, 2))
    hot = spec.to_one_hot_spec()
    assert hot == MultiOneHot([2, 3], (4, 5))
    assert hot.to_categorical_spec() == spec
    numbers = spec.rand(generator=seeded())
    rows = spec.to_one_hot(numbers)
    assert hot.is_in(rows)
    assert torch.equal(hot.to_categorical(rows), numbers)
    assert torch.equal(torch.from_numpy(hot.to_numpy(rows)), numbers)


def test_index_picks_one_value_for_each_choice() -> None:
    values = torch.arange(10.0).view(2, 5)
    assert MultiCategorical([2, 3]).index(torch.tensor([[1, 0], [0, 2]]), values).tolist() == [[1, 2], [5, 9]]
    rows = MultiOneHot([2, 3]).encode([1, 0])
    assert MultiOneHot([2, 3]).index(rows, values[0]).tolist() == [1, 2]


def test_all_combinations_are_listed() -> None:
    spec = MultiCategorical([2, 3], (4, 2))
    assert spec.cardinality() == 6
    assert spec.enumerate().shape == (6, 4, 2)
    assert len(spec.enumerate()[:, 0].unique(dim=0)) == 6
    hot = MultiOneHot([2, 3])
    assert hot.expand(6, 5).is_in(hot.enumerate())


def test_counts_may_be_nested() -> None:
    spec = MultiCategorical([[2, 3], [4, 5]], (7, 2, 2))
    assert spec.is_in(spec.rand(generator=seeded()))
    assert spec[0, 1] == MultiCategorical([4, 5])
    assert spec[:, 0, 1] == Categorical(3, (7,))
    assert spec.cardinality() == 120


def test_a_repeated_nvec_equals_its_row() -> None:
    spec = MultiCategorical([2, 3], (4, 2))
    assert spec.nvec.tolist() == [[2, 3]] * 4
    assert MultiCategorical(spec.nvec) == spec
    assert MultiCategorical(spec.nvec).to_one_hot_spec() == MultiOneHot([2, 3], (4, 5))


def test_nested_counts_have_nested_boxes() -> None:
    assert MultiCategorical([[2, 3], [4, 5]]).space == BoxList(
        [BoxList([CategoricalBox(2), CategoricalBox(4)]), BoxList([CategoricalBox(3), CategoricalBox(5)])]
    )
    assert BoxList.from_nvec(torch.tensor(3)) == CategoricalBox(3)


def test_one_choice_of_several_is_a_categorical() -> None:
    spec = MultiCategorical([2, 5], (3, 2))
    assert spec[..., 1] == Categorical(5, (3,))
    assert spec.unbind(-1) == (Categorical(2, (3,)), Categorical(5, (3,)))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: MultiCategorical([2, -1]), "0 or more"),
        (lambda: MultiCategorical([]), "0 or more"),
        (lambda: MultiCategorical([2.5]), "0 or more"),
        (lambda: MultiCategorical([2, 3], (3,)), r"ends with \(2,\)"),
        (lambda: MultiCategorical([200], dtype=torch.int8), "cannot number 200"),
        (lambda: MultiCategorical([[2], [3]], mask=torch.ones(5).bool()), "flat nvec"),
        (lambda: MultiOneHot([2, 3], (4,)), r"sum\(nvec\) = 5"),
        (lambda: MultiOneHot([[2, 3]]), "flat nvec"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(make, text: str) -> None:
    with pytest.raises(SpecError, match=text):
        make()


def test_several_choices_are_of_the_class_of_one() -> None:
    numbers, rows = MultiCategorical([2, 3]), MultiOneHot([2, 3])
    assert isinstance(numbers, Categorical)
    assert isinstance(rows, OneHot)
    for spec in (numbers, rows):
        assert not hasattr(spec, "n")
        with pytest.raises(AttributeError, match="each choice has its own number of categories, see nvec"):
            spec.n  # noqa: B018
    assert numbers != Categorical(2, (2,))
    with pytest.raises(SpecError, match="cannot number 300"):
        MultiCategorical([300]).to(torch.int8)


def test_one_of_several_choices_may_be_among_nothing() -> None:
    for spec in (MultiCategorical([0, 2]), MultiOneHot([0, 2])):
        assert spec.cardinality() == 0
        assert len(spec.enumerate()) == 0
        assert spec.is_in(spec.zero()) is False
        with pytest.raises(NotSupported, match="no category"):
            spec.rand()
        with pytest.raises(NotSupported, match="no category"):
            spec.project(spec.zero())


@pytest.mark.parametrize("remove", [True, False])
def test_singletons_are_never_removed(remove) -> None:
    with pytest.warns(IgnoredArgumentWarning, match="samples always have the shape of the spec"):
        spec = MultiCategorical([5], remove_singleton=remove)
    assert spec.remove_singleton is remove
    assert spec.rand().shape == (1,)
