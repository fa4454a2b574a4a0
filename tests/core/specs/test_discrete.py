"""Categorical, OneHot and Binary."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from steppe.errors import IgnoredArgumentWarning, NotSupported, SpecError
from steppe.specs import (
    Binary,
    Categorical,
    CategoricalBox,
    MultiCategorical,
    MultiOneHot,
    OneHot,
    Spec,
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


def test_masks_say_what_is_drawn_and_what_is_in() -> None:
    spec = Categorical(3, (2,), mask=MASK)
    drawn = spec.rand((600,), generator=seeded())
    assert drawn[:, 0].bincount().tolist() == pytest.approx([300, 0, 300], abs=60)
    assert drawn[:, 1].unique().tolist() == [1]
    assert spec.is_in(torch.tensor([0, 1]))
    assert not spec.is_in(torch.tensor([1, 1]))
    with pytest.raises(SpecError, match="categories from 0 to 2 that the mask allows, found"):
        spec.assert_is_in(torch.tensor([0, 0]))


def test_projection_goes_to_the_nearest_allowed_category() -> None:
    spec = Categorical(5, (3,), mask=torch.tensor([False, True, False, False, True]))
    assert spec.project(torch.tensor([0, 3, 9])).tolist() == [1, 4, 4]


def test_a_row_that_allows_nothing_restricts_nothing() -> None:
    spec = Categorical(3, (2,), mask=torch.tensor([[False] * 3, [True, False, False]]))
    drawn = spec.rand((300,), generator=seeded())
    assert drawn[:, 0].unique().tolist() == [0, 1, 2]
    assert drawn[:, 1].unique().tolist() == [0]
    assert spec.expand(300, 2).is_in(drawn)


def test_a_mask_can_be_set_and_removed() -> None:
    spec = Categorical(3)
    spec.update_mask(torch.tensor([False, False, True]))
    assert spec.rand((20,)).unique().tolist() == [2]
    spec.update_mask(None)
    assert spec.mask is None
    assert spec == Categorical(3)


@pytest.mark.parametrize("make", [lambda m: Categorical(3, (2,), mask=m), lambda m: OneHot(3, (2, 3), mask=m)])
def test_masks_may_be_lists_of_zeros_and_ones_in_any_number_of_dimensions(make) -> None:
    expected = make(torch.tensor([True, False, True]))
    for mask in ([True, False, True], [1, 0, 1], torch.tensor([[[1.0, 0.0, 1.0]]]), np.array([1, 0, 1])):
        assert make(mask) == expected


@pytest.mark.parametrize("make", [lambda m: Categorical(3, (2,), mask=m), lambda m: OneHot(3, (2, 3), mask=m)])
def test_masks_that_do_not_fit_are_refused(make) -> None:
    with pytest.raises(SpecError, match=r"other values than 0 and 1 in tensor\(\[0, 1, 2\]\)"):
        make([0, 1, 2])
    with pytest.raises(SpecError, match=r"broadcasts to \(2, 3\), found \(4,\)"):
        make(torch.ones(4, dtype=torch.bool))


@pytest.mark.parametrize("spec", [Categorical(3, (2,), mask=MASK), OneHot(3, (2, 3), mask=MASK)])
def test_masks_follow_the_shape(spec) -> None:
    assert torch.equal(spec[1].mask, MASK[1])
    assert torch.equal(spec[[1, 0]].mask, MASK[[1, 0]])
    assert torch.equal(spec.unsqueeze(0).expand(4, *spec.shape).mask, MASK.expand(4, 2, 3))
    assert spec[1] != spec[0]
    with pytest.raises(NotSupported, match="mask"):
        spec.make_neg_dim(0)


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


def test_categories_are_listed_alike_in_all_rows() -> None:
    assert Categorical(3, (2,)).enumerate().tolist() == [[0, 0], [1, 1], [2, 2]]
    assert Categorical(3, (2,)).cardinality() == OneHot(3, (2, 3)).cardinality() == 3
    assert OneHot(3, (2, 3)).enumerate().shape == (3, 2, 3)


def test_masks_shorten_the_list_where_all_rows_agree() -> None:
    mask = torch.tensor([True, False, True])
    assert Categorical(3, (2,), mask=mask).enumerate(use_mask=True).tolist() == [[0, 0], [2, 2]]
    assert OneHot(3, mask=mask).enumerate(use_mask=True).long().tolist() == [[1, 0, 0], [0, 0, 1]]
    assert len(Categorical(3, (2,), mask=MASK).enumerate()) == 3
    with pytest.raises(NotSupported, match="different categories"):
        Categorical(3, (2,), mask=MASK).enumerate(use_mask=True)


def test_index_picks_the_chosen_value() -> None:
    values = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    assert Categorical(3).index(torch.tensor([2, 0]), values).tolist() == [3, 4]
    assert OneHot(3).index(torch.tensor([[0, 0, 1], [1, 0, 0]]).bool(), values).tolist() == [3, 4]
    assert Categorical(3).index(torch.tensor(1), values[0]).item() == 2


@pytest.mark.parametrize(
    ("spec", "shape"),
    [
        (Categorical(3), (2, 4)),
        (OneHot(3), (5, 3)),
        (MultiCategorical([2, 3]), (2, 4)),
        (MultiOneHot([2, 3]), (3, 5)),
        (Binary(3), (2, 4)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_that_do_not_belong_to_the_categories_are_refused(spec: Spec, shape: tuple[int, ...]) -> None:
    with pytest.raises(SpecError, match=rf"index: .* found \({shape[0]}, {shape[1]}\)"):
        spec.index(spec.rand((2,)), torch.zeros(shape))


def test_one_hot_zeros_are_storage_and_not_in_the_domain() -> None:
    spec = OneHot(3)
    assert spec.zero().tolist() == [False] * 3
    assert not spec.is_in(spec.zero())
    assert not spec.is_in(spec.one())


@pytest.mark.parametrize("row", [[0, 0, 0], [1, 1, 0], [2, 0, 0], [1, -1, 1]])
def test_rows_without_a_single_one_are_not_one_hot(row: list[int]) -> None:
    spec = OneHot(3, dtype=torch.int64)
    assert not spec.is_in(torch.tensor(row))
    assert spec.is_in(spec.project(torch.tensor(row)))


def test_one_hot_projection_takes_the_best_allowed_score() -> None:
    spec = OneHot(3, (2, 3), mask=MASK)
    scores = torch.tensor([[0.1, 5.0, 0.3], [9.0, -2.0, 3.0]])
    assert spec.project(scores).long().tolist() == [[0, 0, 1], [0, 1, 0]]


def test_one_hot_rows_are_encoded_from_numbers() -> None:
    spec = OneHot(3, (2, 3))
    assert spec.encode([2, 0]).long().tolist() == [[0, 0, 1], [1, 0, 0]]
    assert OneHot(3).encode(np.int64(1)).tolist() == [False, True, False]
    assert OneHot(3).encode([False, True, False]).tolist() == [False, True, False]
    for wrong in ([3, 0], [-1, 0], [0.5, 0.0]):
        with pytest.raises(SpecError, match="'action': expected categories from 0 to 2"):
            spec.encode(wrong, key="action")
    with pytest.raises(SpecError, match=r"found \(3,\).*Category numbers of shape \(2,\)"):
        spec.encode([0, 1, 2])


def test_one_hot_goes_to_numpy_as_numbers() -> None:
    spec = OneHot(3)
    assert spec.to_numpy(torch.tensor([False, False, True])) == 2
    assert spec.to_numpy(spec.enumerate()).tolist() == [0, 1, 2]
    with pytest.raises(SpecError, match="a single one"):
        spec.to_numpy(spec.zero(), safe=True)


def test_the_categories_of_one_hot_can_not_be_taken_apart() -> None:
    spec = OneHot(3, (2, 3))
    for bad in (lambda: spec.flatten(), lambda: spec.unsqueeze(-1), lambda: spec[:, :2], lambda: spec[0, 0]):
        with pytest.raises(IndexError, match="holds the categories"):
            bad()
    assert spec[..., :].shape == (2, 3)
    assert spec[0].shape == (3,)
    with pytest.raises(SpecError, match="last size is the number of categories"):
        OneHot(3, (2, 4))


def test_a_binary_spec_needs_a_size() -> None:
    assert Binary(4).shape == (4,)
    assert Binary(1, shape=(5, 1), dtype=torch.bool).shape == (5, 1)
    assert Binary(shape=()).cardinality() == 2
    with pytest.raises(SpecError, match="found neither"):
        Binary()
    with pytest.raises(SpecError, match=r"last size is n=4, found \(3,\)"):
        Binary(4, shape=(3,))


def test_binary_data_is_zero_or_one() -> None:
    spec = Binary(3)
    assert not spec.is_in(torch.tensor([0, 1, 2], dtype=torch.int8))
    assert spec.project(torch.tensor([0.2, 0.8, 7.0])).tolist() == [0, 1, 1]
    assert spec.project(torch.tensor([-3, 1, 7])).tolist() == [0, 1, 1]


def test_binary_rows_are_listed_in_counting_order() -> None:
    assert Binary(2).enumerate().tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert Binary(2, (3, 2)).enumerate().shape == (4, 3, 2)
    assert Binary(2).cardinality() == 4
    with pytest.raises(NotSupported, match=r"2\*\*30"):
        Binary(30).enumerate()


def test_binary_index_picks_where_there_are_ones() -> None:
    values = torch.arange(6.0).view(2, 3)
    assert Binary(3).index(torch.tensor([[0, 1, 1], [1, 0, 1]]), values).tolist() == [[1, 2], [3, 5]]
    with pytest.raises(SpecError, match="equal numbers of ones"):
        Binary(3).index(torch.tensor([[0, 1, 1], [0, 0, 1]]), values)


def test_texts() -> None:
    assert repr(Categorical(3)) == "Categorical(n=3, shape=(), dtype=int64)"
    assert repr(OneHot(2, mask=torch.ones(2).bool())) == "OneHot(n=2, mask=..., shape=(2,), dtype=bool)"


@pytest.mark.parametrize("make", [lambda s: Categorical(0, s), lambda s: OneHot(0, (*s, 0))])
def test_a_choice_among_nothing_has_no_data(make) -> None:
    spec = make((2,))
    assert (spec.n, spec.cardinality(), len(spec.enumerate())) == (0, 0, 0)
    assert spec.zero().shape == spec.shape
    assert spec.is_in(spec.zero()) is False
    assert spec.expand(3, *spec.shape)[0] == spec
    for refused in (spec.rand, lambda: spec.project(spec.zero())):
        with pytest.raises(NotSupported, match="it has no category"):
            refused()
    assert spec.is_in(spec.rand((0,)))
    assert make((0,)).is_in(make((0,)).rand())
    assert spec.to_one_hot_spec().to_categorical_spec() == spec.to_categorical_spec()


def test_one_of_several_choices_may_be_among_nothing() -> None:
    for spec in (MultiCategorical([0, 2]), MultiOneHot([0, 2])):
        assert spec.cardinality() == 0
        assert len(spec.enumerate()) == 0
        assert spec.is_in(spec.zero()) is False
        with pytest.raises(NotSupported, match="no category"):
            spec.rand()
        with pytest.raises(NotSupported, match="no category"):
            spec.project(spec.zero())


def test_binary_rows_may_be_empty() -> None:
    assert Binary(0).rand().shape == (0,)
    assert Binary(n=0, shape=()).rand().shape == ()


def test_the_number_of_categories_may_be_said_again() -> None:
    spec = Categorical(3)
    spec.set_provisional_n(3)
    with pytest.raises(SpecError, match="n is 3 already"):
        spec.set_provisional_n(4)


def test_registers_are_taken_and_have_no_effect() -> None:
    with pytest.warns(IgnoredArgumentWarning, match="OneHot: the argument use_register has no effect"):
        spec = OneHot(3, use_register=True)
    assert spec.use_register is True
    assert spec.encode(2).int().tolist() == [0, 0, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert OneHot(3, (3,), None, torch.bool, False, torch.tensor([True, False, True])).use_register is False
        assert MultiOneHot([2, 2], use_register=False).use_register is False


@pytest.mark.parametrize("remove", [True, False])
def test_singletons_are_never_removed(remove) -> None:
    with pytest.warns(IgnoredArgumentWarning, match="samples always have the shape of the spec"):
        spec = MultiCategorical([5], remove_singleton=remove)
    assert spec.remove_singleton is remove
    assert spec.rand().shape == (1,)


def test_a_binary_spec_is_a_categorical_of_two() -> None:
    spec = Binary(3)
    assert isinstance(spec, Categorical)
    assert (spec.n, spec.space, spec.mask) == (2, CategoricalBox(2), None)
    assert spec.cardinality() == len(spec.enumerate()) == 8
    rows = spec.to_one_hot(torch.tensor([1, 0, 1], dtype=torch.int8))
    assert rows.int().tolist() == [[0, 1], [1, 0], [0, 1]]
    assert spec.to_one_hot_spec() == OneHot(2, (3, 2))
    assert spec.to_one_hot_spec().is_in(rows)


def test_a_binary_spec_takes_a_mask() -> None:
    spec = Binary(3)
    spec.update_mask([[True, True], [True, False], [False, True]])
    drawn = spec.rand((50,))
    assert drawn[:, 0].unique().tolist() == [0, 1]
    assert drawn[:, 1:].unique(dim=0).tolist() == [[0, 1]]
    assert spec.is_in(drawn)
    assert spec.enumerate(use_mask=True).tolist() == [[0, 0, 1], [1, 0, 1]]
    assert len(spec.enumerate()) == 8
    assert spec.project(torch.tensor([1, 1, 0])).tolist() == [1, 0, 1]
    assert spec.expand(4, 3)[0] == spec
    rows = Binary(shape=(2, 1))
    rows.update_mask([[[True, False]], [[False, True]]])
    with pytest.raises(NotSupported, match="different masks"):
        rows.enumerate(use_mask=True)


def test_several_categories_pick_from_one_row() -> None:
    values = torch.arange(6.0).view(2, 3)
    assert Categorical(3, (1,)).index(torch.tensor([[1], [2]]), values).tolist() == [[1], [5]]
    assert Categorical(3, (3,)).index(torch.tensor([[2, 1, 0], [0, 0, 1]]), values).tolist() == [[2, 1, 0], [3, 3, 4]]
    assert Categorical(3).index(torch.tensor([1, 2]), values).tolist() == [1, 5]


@pytest.mark.parametrize("make", [lambda *s: OneHot(7, (*s, 7)), lambda *s: MultiOneHot([3, 4], (*s, 7))])
def test_an_index_is_about_the_rows_where_it_would_reach_into_the_categories(make) -> None:
    spec = make(5, 3)
    assert spec[..., 0] == make(5)
    assert spec[..., :2] == make(5, 2)
    assert spec[1, ..., 2] == make()
    assert spec[..., None] == make(5, 3, 1)
    assert spec[..., [0, 1], [0]] == make(2)
    assert spec[..., :] == spec[:, :, :] == spec
    for wrong in (5, (0, 1, 2), (1, ..., 2, ..., 3), range(10), torch.tensor([10, 2])):
        with pytest.raises(IndexError):
            spec[wrong]


def test_masks_follow_an_index_about_the_rows() -> None:
    mask = torch.tensor([[True, False, False], [False, True, True]])
    assert torch.equal(OneHot(3, (2, 3), mask=mask)[..., 1].mask, mask[1])
