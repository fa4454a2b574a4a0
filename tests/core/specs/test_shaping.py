"""Shape operations of specs follow those of tensors."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from spec_strategies import composites, leaves, operations, seeds, specs

from steppe.errors import SpecError
from steppe.specs import Composite, MultiCategorical, MultiOneHot, OneHot, Spec


def attempt(operation: Any, subject: Any) -> Any:
    try:
        return operation.apply(subject)
    except (RuntimeError, IndexError, SpecError, ValueError) as error:
        return error


EVENT = (OneHot, MultiOneHot, MultiCategorical)


def keeps_the_last_dimension(spec: Spec, operation: Any) -> bool:
    mark = torch.arange(spec.shape[-1])
    out = operation.apply(mark.expand(spec.shape))
    return out.ndim > 0 and out.shape[-1] == len(mark) and bool((out == mark).all())


@given(spec=leaves, data=st.data(), seed=seeds)
@settings(max_examples=1000)
def test_shapes_follow_torch_and_data_follows_the_spec(spec: Spec, data: Any, seed: int) -> None:
    operation = data.draw(operations(spec.ndim))
    drawn = spec.rand(generator=torch.Generator().manual_seed(seed))
    expected, found = attempt(operation, drawn), attempt(operation, spec)
    if isinstance(expected, Exception):
        assert isinstance(found, Exception)
        return
    # The last dimension of these holds one choice and cannot be taken apart.
    assume(not (isinstance(spec, EVENT) and isinstance(found, (IndexError, SpecError))))
    assume(not isinstance(spec, OneHot) or keeps_the_last_dimension(spec, operation))
    assert isinstance(found, Spec), found
    assert found.shape == expected.shape == attempt(operation, spec.zero()).shape
    found.assert_is_in(expected)
    assert found.is_in(found.rand())


@given(spec=composites(), data=st.data())
@settings(max_examples=300)
def test_shapes_of_composites_follow_their_batch_size(spec: Composite, data: Any) -> None:
    operation = data.draw(operations(spec.ndim))
    drawn = spec.rand()
    expected, found = attempt(operation, torch.zeros(spec.shape)), attempt(operation, spec)
    if isinstance(expected, Exception):
        return
    assert isinstance(found, Composite), found
    assert found.shape == expected.shape
    for key, leaf in found.items(include_nested=True, leaves_only=True):
        assert leaf.shape[: found.ndim] == found.shape
        assert leaf.shape[found.ndim :] == spec[key].shape[spec.ndim :]
    if operation.text.startswith("["):
        found.assert_is_in(drawn[index_of(operation)])


def index_of(operation: Any) -> Any:
    class Recorder:
        def __getitem__(self, index: Any) -> Any:
            return index

    return operation.apply(Recorder())


@given(spec=specs, dim=st.integers(-3, 2))
def test_equal_specs_stack_to_one_of_their_class(spec: Spec, dim: int) -> None:
    assume(-spec.ndim - 1 <= dim <= spec.ndim)
    at = dim % (spec.ndim + 1)
    assume(not (isinstance(spec, EVENT) and at == spec.ndim))
    stacked = torch.stack([spec, spec.clone()], dim)
    assert type(stacked) is type(spec)
    assert stacked.shape == torch.stack([torch.zeros(spec.shape)] * 2, dim).shape
    assert stacked.unbind(at)[1] == spec
