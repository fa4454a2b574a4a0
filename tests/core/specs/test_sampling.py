"""Random data is drawn inside its spec."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from spec_strategies import same, seeds, shapes, specs

from steppe.specs import Spec


@given(spec=specs, seed=seeds)
@settings(max_examples=300)
def test_random_data_is_in_the_spec(spec: Spec, seed: int) -> None:
    drawn = spec.rand(generator=torch.Generator().manual_seed(seed))
    assert spec.is_in(drawn) is True
    assert drawn.shape == spec.shape


@given(spec=specs, lead=shapes, seed=seeds)
@settings(max_examples=200)
def test_a_block_of_random_data_is_in_the_expanded_spec(spec: Spec, lead: torch.Size, seed: int) -> None:
    block = spec.rand(lead, generator=torch.Generator().manual_seed(seed))
    spec.expand(*lead, *spec.shape).assert_is_in(block)


@given(spec=specs, seed=seeds)
def test_one_seed_draws_one_value(spec: Spec, seed: int) -> None:
    drawn = [spec.rand((3,), generator=torch.Generator().manual_seed(seed)) for _ in range(2)]
    assert same(*drawn)


@given(spec=specs, lead=shapes)
def test_zeros_and_ones_have_the_shape_and_dtype(spec: Spec, lead: torch.Size) -> None:
    for made, value in ((spec.zero(lead), 0), (spec.one(lead), 1)):
        assert made.shape == (*lead, *spec.shape)
        assert not isinstance(made, torch.Tensor) or (made.dtype is spec.dtype and bool((made == value).all()))
