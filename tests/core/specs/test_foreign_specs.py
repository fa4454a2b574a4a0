"""NonTensor, and the functions on specs."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
import torch
from tensordict import LazyStackedTensorDict, NonTensorData, NonTensorStack, TensorDict, tensorclass

import steppe.specs.from_data
from steppe.errors import IgnoredArgumentWarning, NotSupported, SpecError
from steppe.specs import (
    Binary,
    Composite,
    NonTensor,
    Stacked,
    StackedComposite,
    Unbounded,
    check_no_exclusive_keys,
    contains_lazy_spec,
    make_composite_from_td,
    numpy_to_torch_dtype_dict,
    torch_to_numpy_dtype_dict,
)

# NonTensor -------------------------------------------------------------------------------------------------------


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


# Arguments without effect ------------------------------------------------------------------------------------------


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


# From data -------------------------------------------------------------------------------------------------------


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


def test_the_example_runs() -> None:
    result = doctest.testmod(steppe.specs.from_data)
    assert (result.attempted, result.failed) == (4, 0)


# Stacks ----------------------------------------------------------------------------------------------------------


def exclusive() -> StackedComposite:
    return torch.stack(
        [
            Composite({"obs": Unbounded((3,)), "lidar": Unbounded((8, 2)), ("n", "a"): Binary(2)}),
            Composite({"obs": Unbounded((4,)), ("n", "b"): NonTensor(example_data="x")}),
        ]
    )


def test_exclusive_keys_are_found() -> None:
    assert not check_no_exclusive_keys(exclusive())
    assert not check_no_exclusive_keys(Composite(agents=exclusive()))
    assert check_no_exclusive_keys(Composite(a=Unbounded(), n=Composite(b=None)))
    nested = torch.stack([Composite({("n", "a"): Binary(2)}), Composite({("n", "b"): Binary(2)})])
    assert not check_no_exclusive_keys(nested)
    assert check_no_exclusive_keys(nested, recurse=False)


def test_lazy_specs_are_found_at_any_depth() -> None:
    assert contains_lazy_spec(exclusive())
    assert contains_lazy_spec(Composite(n=Composite(agents=exclusive())))
    assert contains_lazy_spec(Composite(a=Stacked(Unbounded((2,)), Unbounded((3,)))))
    assert not contains_lazy_spec(Composite(n=Composite(a=Unbounded(), b=None)))


# Dtypes ----------------------------------------------------------------------------------------------------------


def test_dtype_maps_are_inverse() -> None:
    for numpy_dtype, torch_dtype in numpy_to_torch_dtype_dict.items():
        assert torch.from_numpy(np.zeros(1, numpy_dtype)).dtype is torch_dtype
        assert torch_to_numpy_dtype_dict[torch_dtype] == numpy_dtype
