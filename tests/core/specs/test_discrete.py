"""Properties of all discrete specs: masks, texts, no categories."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from steppe.errors import NotSupported, SpecError
from steppe.specs import (
    Binary,
    Categorical,
    MultiCategorical,
    MultiOneHot,
    OneHot,
    Spec,
)


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


MASK = torch.tensor([[True, False, True], [False, True, False]])


def test_masks_say_what_is_drawn_and_what_is_in() -> None:
    spec = Categorical(3, (2,), mask=MASK)
    drawn = spec.rand((600,), generator=seeded())
    assert drawn[:, 0].bincount().tolist() == pytest.approx([300, 0, 300], abs=60)
    assert drawn[:, 1].unique().tolist() == [1]
    assert spec.is_in(torch.tensor([0, 1]))
    assert not spec.is_in(torch.tensor([1, 1]))
    with pytest.raises(SpecError, match="a whole number from 0 to 2 that the mask allows, found"):
        spec.assert_is_in(torch.tensor([0, 0]))


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
def test_a_mask_may_be_a_list_of_numbers_of_any_dimensions(make) -> None:
    """Masks may be lists or arrays of zeros and ones in any number of dimensions."""
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


def test_masks_shorten_the_list_where_all_rows_agree() -> None:
    mask = torch.tensor([True, False, True])
    assert Categorical(3, (2,), mask=mask).enumerate(use_mask=True).tolist() == [[0, 0], [2, 2]]
    assert OneHot(3, mask=mask).enumerate(use_mask=True).long().tolist() == [[1, 0, 0], [0, 0, 1]]
    assert len(Categorical(3, (2,), mask=MASK).enumerate()) == 3
    with pytest.raises(NotSupported, match="different categories"):
        Categorical(3, (2,), mask=MASK).enumerate(use_mask=True)


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


def test_masks_follow_an_index_about_the_rows() -> None:
    mask = torch.tensor([[True, False, False], [False, True, True]])
    assert torch.equal(OneHot(3, (2, 3), mask=mask)[..., 1].mask, mask[1])
