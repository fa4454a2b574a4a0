"""Properties of all specs."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from spec_strategies import anything_shaped, composites, leaves, same, seeds, shapes, specs

from steppe.errors import SpecError
from steppe.specs import Composite, MultiCategorical, MultiOneHot, OneHot, Spec


@given(spec=leaves, data=st.data())
@settings(max_examples=400)
def test_projecting_twice_changes_nothing_more(spec: Spec, data: Any) -> None:
    projected = spec.project(data.draw(anything_shaped(spec.shape)))
    spec.assert_is_in(projected)
    assert spec.project(projected) is projected


@given(spec=leaves, data=st.data())
def test_data_in_the_spec_is_projected_on_itself(spec: Spec, data: Any) -> None:
    inside = spec.rand()
    assert spec.project(inside) is inside
    assert same(spec.project(torch.stack([inside, inside])), torch.stack([inside, inside]))


@given(spec=composites())
def test_a_composite_projects_its_entries_and_leaves_the_rest(spec: Composite) -> None:
    broken = spec.rand().apply(lambda t: t.clone().fill_(77) if t.dtype is not torch.bool else ~t)
    rows = torch.stack([broken, spec.rand()])
    assert spec.project(broken) is broken
    spec.assert_is_in(broken, exact=True)
    assert spec.project(rows) is rows
    spec.assert_is_in(rows)
    assert same(rows[0], broken)


@given(spec=specs, seed=seeds)
@settings(max_examples=200)
def test_data_goes_to_numpy_and_back(spec: Spec, seed: int) -> None:
    drawn = spec.rand(generator=torch.Generator().manual_seed(seed))
    back = spec.encode(spec.to_numpy(drawn, safe=True))
    assert same(drawn, back)
    spec.assert_is_in(back)


EVENT = (OneHot, MultiOneHot, MultiCategorical)


@given(spec=specs)
def test_copies_are_equal_and_independent(spec: Spec) -> None:
    for other in (spec.clone(), copy.deepcopy(spec), copy.copy(spec), pickle.loads(pickle.dumps(spec))):
        assert other == spec
        assert other is not spec
        assert same(*(s.rand((2,), generator=torch.Generator().manual_seed(0)) for s in (spec, other)))


@given(spec=specs)
def test_a_spec_differs_from_its_expansion_and_other_classes(spec: Spec) -> None:
    assert spec != spec.expand(2, *spec.shape)
    assert spec != "spec"
    assert spec.unsqueeze(0).squeeze(0) == spec


@given(spec=specs)
def test_every_spec_has_a_short_text(spec: Spec) -> None:
    assert repr(spec).startswith(type(spec).__name__)
    assert str(tuple(spec.shape)) in repr(spec)


@given(spec=leaves)
def test_a_wrong_shape_is_not_in_the_spec_and_raises_nothing(spec: Spec) -> None:
    for wrong in (spec.rand((7,)), spec.rand().flatten()[:0], spec.rand().unsqueeze(-1)):
        if wrong.shape != spec.shape:
            assert spec.is_in(wrong, exact=True) is False
            assert spec.is_in(wrong) in (True, False)


@given(spec=specs, lead=shapes, seed=seeds)
def test_rows_are_in_the_spec_when_each_of_them_is(spec: Spec, lead: torch.Size, seed: int) -> None:
    rows = spec.rand(lead, generator=torch.Generator().manual_seed(seed))
    assert spec.is_in(rows)
    assert spec.is_in(rows, exact=True) is (not lead)
    assert spec.expand(*lead, *spec.shape).is_in(rows, exact=True)


@given(spec=leaves)
def test_an_array_of_another_shape_is_never_reshaped(spec: Spec) -> None:
    assume(not isinstance(spec, EVENT) and spec.numel() > 1)  # one element has one place
    wrong = spec.rand().unsqueeze(-1)
    with pytest.raises(SpecError, match=r"'obs': expected shape \(.*\), found \("):
        spec.encode(wrong, key="obs")
