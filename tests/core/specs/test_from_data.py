"""Specs that are made from data."""

from __future__ import annotations

import pytest
import torch
from tensordict import LazyStackedTensorDict, NonTensorData, TensorDict, tensorclass

from steppe.errors import SpecError
from steppe.specs import (
    NonTensor,
    StackedComposite,
    Unbounded,
    make_composite_from_td,
)


def test_a_spec_is_made_from_data() -> None:
    data = TensorDict(
        {
            "a": torch.zeros(2, 3),
            ("n", "b"): torch.zeros(2, dtype=torch.bool),
            "t": NonTensorData("x", batch_size=(2,)),
        },
        batch_size=(2,),
    )
    spec = make_composite_from_td(data)
    assert spec["a"] == Unbounded((2, 3))
    assert spec["n", "b"] == Unbounded((2,), dtype=torch.bool)
    assert spec["t"] == NonTensor((2,), example_data="x")
    assert spec.is_in(data)


@tensorclass
class Frame:
    pixels: torch.Tensor
    caption: str
    inner: Frame | None = None


def test_a_spec_is_made_from_a_tensorclass() -> None:
    data = Frame(pixels=torch.zeros(3, 2), caption="hey", batch_size=[3])
    spec = make_composite_from_td(data)
    assert spec["caption"] == NonTensor((3,), example_data="hey")
    assert list(spec.keys()) == ["pixels", "caption"]
    assert type(spec.rand()) is Frame
    assert spec.is_in(data)
    assert spec.is_in(spec.rand())
    nested = make_composite_from_td(TensorDict(frame=data, text="y", batch_size=[3]))
    assert nested["frame"] == spec
    assert nested.is_in(TensorDict(frame=data, text="y", batch_size=[3]))


def test_values_without_dimensions_get_one_unless_told() -> None:
    data = TensorDict(a=torch.zeros(()))
    assert make_composite_from_td(data)["a"].shape == (1,)
    assert make_composite_from_td(data, unsqueeze_null_shapes=False).is_in(data)


def test_data_may_be_dynamic_or_ragged() -> None:
    data = TensorDict({"a": torch.zeros(2, 3, 4)}, batch_size=(2,))
    assert make_composite_from_td(data, dynamic_shape=True)["a"].shape == (2, 3, -1)
    rows = LazyStackedTensorDict.lazy_stack([TensorDict(a=torch.zeros(1)), TensorDict(a=torch.zeros(3))])
    spec = make_composite_from_td(rows)
    assert isinstance(spec, StackedComposite)
    assert spec.is_in(rows)
    with pytest.raises(SpecError, match="found Tensor"):
        make_composite_from_td(torch.zeros(2))
