"""NonTensor: text and other data that is no tensor."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tensordict import NonTensorStack

from steppe.errors import IgnoredArgumentWarning, NotSupported, SpecError
from steppe.specs import (
    Composite,
    NonTensor,
    Unbounded,
)


def test_text_in_a_tensordict_is_in_the_spec() -> None:
    spec = Composite(text=NonTensor(example_data="hello"), x=Unbounded((1,)))
    drawn = spec.rand()
    assert drawn["text"] == "hello"
    assert spec.is_in(drawn)
    assert spec.expand(3).is_in(spec.rand((3,)))
    assert spec.is_in(spec.encode({"text": "other", "x": [1.0]}))
    assert spec.to_numpy(drawn)["text"] == "hello"


def test_tensors_and_wrong_batches_are_no_text() -> None:
    spec = NonTensor((2,), example_data="a")
    assert spec.is_in(NonTensorStack("a", "b"))
    assert not spec.is_in(NonTensorStack("a", "b", "c"))
    assert not spec.is_in("a")
    assert not NonTensor().is_in(torch.zeros(()))
    with pytest.raises(SpecError, match="expected non-tensor data, found Tensor"):
        NonTensor().type_check(torch.zeros(()))
    with pytest.raises(SpecError, match=r"expected non-tensor data of shape \(2,\), found a bare str"):
        spec.project("a")


def test_lists_are_encoded_one_by_one() -> None:
    spec = NonTensor((2, 2))
    encoded = spec.encode([["a", "b"], ["c", "d"]])
    assert spec.is_in(encoded)
    assert spec.to_numpy(encoded) == [["a", "b"], ["c", "d"]]
    assert spec.encode("x").tolist() == [["x", "x"], ["x", "x"]]
    with pytest.raises(SpecError, match=r"'t': expected \(2, 2\) values"):
        spec.encode(["a", "b", "c"], key="t")


def test_text_follows_shapes_and_compares_by_example() -> None:
    spec = NonTensor((2, 3), example_data=np.zeros(2))
    assert spec[0].shape == (3,)
    assert spec.flatten().zero().batch_size == (6,)
    assert spec.make_neg_dim(0).shape == (-1, 3)
    assert spec == spec.clone()
    assert NonTensor(example_data="a") != NonTensor(example_data="b")
    assert NonTensor((2,)).to("cpu").device == torch.device("cpu")
    assert NonTensor().dtype is None
    with pytest.raises(NotSupported, match="not countable"):
        spec.enumerate()


@pytest.mark.parametrize(
    ("name", "value"), [("batched", True), ("batched", False), ("feature_dims", 1), ("dtype", torch.int64)]
)
def test_storage_options_of_text_warn_and_have_no_effect(name, value) -> None:
    with pytest.warns(IgnoredArgumentWarning, match=f"NonTensor: the argument {name} has no effect"):
        spec = NonTensor((2, 3), example_data="x", **{name: value})
    assert spec == NonTensor((2, 3), example_data="x")
    if name != "dtype":
        assert getattr(spec, name) == getattr(spec.expand(4, 2, 3), name) == value


def test_text_takes_its_arguments_by_position() -> None:
    assert NonTensor((2,), None, None, "x").example_data == "x"
    assert NonTensor((2,)).batched is NonTensor((2,)).feature_dims is None
