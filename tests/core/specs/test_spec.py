"""Methods that all spec classes have."""

from __future__ import annotations

import inspect
import math
import time
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import LazyStackedTensorDict, TensorDict

import steppe.specs
from steppe.errors import IgnoredArgumentWarning, NotSupported, SpecError
from steppe.specs import (
    Binary,
    Bounded,
    Categorical,
    Composite,
    MultiCategorical,
    MultiOneHot,
    NonTensor,
    OneHot,
    Spec,
    Stacked,
    StackedComposite,
    Unbounded,
)

SPECS: dict[str, Any] = {
    "Bounded": lambda: Bounded(torch.zeros(2, 3), torch.ones(3)),
    "Unbounded": lambda: Unbounded((2, 3)),
    "Categorical": lambda: Categorical(4, (2, 3)),
    "OneHot": lambda: OneHot(4, (2, 3, 4)),
    "MultiCategorical": lambda: MultiCategorical([2, 3], (2, 3, 2)),
    "MultiOneHot": lambda: MultiOneHot([2, 3], (2, 3, 5)),
    "Binary": lambda: Binary(3, (2, 3)),
    "NonTensor": lambda: NonTensor((2, 3), example_data="x"),
    "Stacked": lambda: torch.stack([Bounded(0, 1, (3,)), Bounded(3, 4, (3,))]),
    "Composite": lambda: Composite({"a": Unbounded((2, 3, 1)), ("n", "b"): OneHot(2, (2, 3, 2))}, shape=(2, 3)),
    "StackedComposite": lambda: torch.stack(
        [Composite(a=Bounded(0, 1, (3, 1)), shape=(3,)), Composite(a=Bounded(0, 2, (3, 1)), shape=(3,))]
    ),
}


@pytest.fixture(params=SPECS)
def spec(request: pytest.FixtureRequest) -> Spec:
    return SPECS[request.param]()


def test_memoize_encode_has_no_effect(spec: Spec) -> None:
    before = spec.clone()
    with pytest.warns(IgnoredArgumentWarning, match="encode has nothing to prepare"):
        spec.memoize_encode(True)
    spec.memoize_encode(mode=False)
    spec.erase_memoize_cache()
    assert spec == before


def test_second_names_do_the_same(spec: Spec) -> None:
    assert spec.sample((2,)).shape == spec.rand((2,)).shape == (2, *spec.shape)
    assert spec.zeros().shape == spec.zero().shape == spec.ones().shape == spec.one().shape
    assert spec.contains(spec.rand()) is True
    assert spec.ndim == len(spec.shape)
    assert spec.numel() == spec.shape.numel()
    assert spec.view(spec.shape) == spec.reshape(spec.shape) == spec


def test_data_is_made_checked_and_converted(spec: Spec) -> None:
    drawn = spec.rand(generator=torch.Generator().manual_seed(0))
    spec.assert_is_in(drawn)
    spec.type_check(drawn)
    spec.assert_is_in(spec.project(drawn))
    spec.assert_is_in(spec.encode(drawn))
    spec.assert_is_in(spec.encode(spec.to_numpy(drawn, True)))


def test_rows_are_judged_one_by_one_unless_the_check_is_exact(spec: Spec) -> None:
    rows = spec.rand((5,))
    spec.assert_is_in(rows)
    assert spec.is_in(spec.project(rows))
    assert spec.contains(rows) is True
    assert spec.is_in(spec.rand((3, 2)))
    assert spec.is_in(rows[3], exact=True)
    assert spec.is_in(rows, exact=True) is False
    with pytest.raises(SpecError):
        spec.assert_is_in(rows, exact=True)
    if type(spec).__name__ != "Choice":  # one choice is made for all rows of an expanded spec
        spec.expand(5, *spec.shape).assert_is_in(rows, exact=True)


@pytest.mark.parametrize("wrong", [None, 3, "x", [1], np.zeros(3), torch.zeros(7, 7), TensorDict(q=torch.zeros(1)), {}])
def test_nothing_makes_is_in_raise(spec: Spec, wrong: Any) -> None:
    assert spec.is_in(wrong) is False
    with pytest.raises(SpecError):
        spec.assert_is_in(wrong, key="here")


def test_devices_are_set_and_cleared(spec: Spec) -> None:
    moved = spec.to("cpu")
    assert moved.device == torch.device("cpu")
    assert moved.to("cpu") is moved
    assert moved.to(None) is moved
    assert moved.cpu() is moved
    assert spec.device is None
    assert moved.is_in(moved.rand())
    assert moved.clear_device_() == spec
    assert moved.device is None


def test_sizes_become_dynamic(spec: Spec) -> None:
    dynamic = spec.clone()
    assert dynamic.make_neg_dim(1) is dynamic
    assert dynamic.shape == (2, -1, *spec.shape[2:])
    assert dynamic != spec
    assert dynamic.zero().shape == spec[:, :1].shape
    assert dynamic.is_in(spec.rand())
    with pytest.raises(IndexError, match="out of range"):
        spec.make_neg_dim(9)


def test_slices_may_go_backwards(spec: Spec) -> None:
    assert spec[::-1].shape == spec.shape
    assert spec[::-1][::-1] == spec
    assert spec[..., ::-2].shape == (2, 2, *spec.shape[2:]) if spec.ndim == 2 else True
    assert spec[:, ::-1].is_in(spec.rand()[:, torch.tensor([2, 1, 0])])
    assert spec[1::-1, 5:0:-1].shape == (2, 2, *spec.shape[2:])
    assert spec[0:1:-1].shape[0] == 0 if not isinstance(spec, (Stacked, StackedComposite)) else True


def test_dimensions_can_be_split_and_joined(spec: Spec) -> None:
    assert spec.unflatten(1, (3, 1)).flatten(1, 2) == spec
    assert spec.unsqueeze(1).squeeze(1) == spec
    assert spec[:, None][:, 0] == spec
    assert spec[..., :].shape == spec.shape
    assert len(spec.unbind(1)) == 3
    assert torch.stack(spec.unbind(0)).shape == spec.shape
    assert spec[np.array([1, 0])][np.int64(1)] == spec[0]


def test_indices_that_make_no_sense_are_refused(spec: Spec) -> None:
    for wrong in (object(), 1.5, {"a"}):
        with pytest.raises((SpecError, IndexError, TypeError)):
            spec[wrong]
    with pytest.raises(IndexError):
        spec[5]
    with pytest.raises(SpecError, match="cannot expand"):
        spec.expand(7)


def test_attributes_say_what_the_data_is(spec: Spec) -> None:
    drawn = spec.rand()
    assert (
        spec.dtype is getattr(drawn, "dtype", None)
        or isinstance(spec, (Composite, NonTensor))
        or type(spec).__name__ == "Choice"
    )
    floating = spec.dtype is not None and spec.dtype.is_floating_point
    if isinstance(spec, Composite):
        assert spec.domain == "composite"
    else:
        assert spec.domain == (None if spec.dtype is None else "continuous" if floating else "discrete")
    if spec.dtype is not None:
        assert repr(spec.space)
        assert spec.space == spec.clone().space


def test_counts_and_lists_agree() -> None:
    for name in ("Categorical", "OneHot", "MultiCategorical", "MultiOneHot", "Binary"):
        spec = SPECS[name]()
        assert len(spec.enumerate()) == spec.cardinality()
        assert all(spec.is_in(row) for row in spec.enumerate())
    with pytest.raises(NotSupported):
        SPECS["StackedComposite"]().enumerate()


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (Bounded(0, 255, (200, 100, 3), dtype=torch.uint8), 256**60_000),
        (Composite(a=Bounded(1, 8, (300_000,), dtype=torch.int32), b=OneHot(4)), 8**300_000 * 4),
        (Composite(a=Binary(20_000), b=Unbounded(())), math.inf),
        (Composite(a=Unbounded((2,)), b=Categorical(0)), 0),
        (Composite({"a": Categorical(3), ("n", "b"): MultiCategorical([2, 5]), "none": None}), 30),
        (MultiOneHot([3] * 50_000), 3**50_000),
    ],
    ids=["image", "composite", "bits and floats", "nothing to choose", "nested", "choices"],
)
def test_any_number_of_data_is_counted_at_once(spec: Spec, expected: float) -> None:
    began = time.process_time()
    assert spec.cardinality() == expected
    assert time.process_time() - began < 20  # it took minutes
    if expected > 2**24:
        with pytest.raises(NotSupported, match="enumerate is not possible"):
            spec.enumerate()


def test_combinations_that_are_too_many_are_not_listed() -> None:
    spec = Composite(a=Bounded(0, 255, (2,), dtype=torch.uint8), b=Bounded(0, 255, (2,), dtype=torch.uint8))
    with pytest.raises(NotSupported, match="it has more than 16777216 data"):
        spec.enumerate()
    assert len(Composite(a=Categorical(40), b=Categorical(50)).enumerate()) == 2000


def test_choices_of_stacks_are_listed_side_by_side() -> None:
    parts = [Composite(a=Categorical(3, mask=torch.tensor(mask))) for mask in ([True] * 3, [True, True, False])]
    listed = torch.stack(parts).enumerate()
    assert listed["a"].tolist() == [[0, 0], [1, 1], [2, 2]]
    assert torch.stack([part["a"] for part in parts]).enumerate().tolist() == [[0, 0], [1, 1], [2, 2]]
    with pytest.raises(NotSupported, match="different numbers of choices"):
        torch.stack([Categorical(2), Categorical(3)]).enumerate()


@pytest.mark.parametrize("name", ["Categorical", "OneHot", "MultiCategorical", "MultiOneHot"])
def test_encodings_convert_both_ways(name: str) -> None:
    spec = SPECS[name]()
    drawn = spec.rand()
    numbers, rows = spec.to_categorical_spec(), spec.to_one_hot_spec()
    assert numbers.is_in(spec.to_categorical(drawn, safe=True))
    assert rows.is_in(spec.to_one_hot(drawn, safe=True))
    assert numbers.to_one_hot_spec() == rows
    assert rows.to_categorical_spec() == numbers
    assert (numbers.n if hasattr(spec, "n") else numbers.nvec[0, 0].tolist()) == (4 if hasattr(spec, "n") else [2, 3])
    assert spec.mask is None
    with pytest.raises(SpecError):
        spec.to_one_hot(drawn + 9 if drawn.dtype is not torch.bool else ~drawn, safe=True)


@pytest.mark.parametrize("name", ["OneHot", "MultiOneHot"])
def test_sizes_of_categories_are_never_dynamic(name: str) -> None:
    with pytest.raises(NotSupported, match="need static sizes"):
        SPECS[name]().make_neg_dim(-1)
    with pytest.raises(SpecError, match="a mask needs static sizes"):
        SPECS[name]().make_neg_dim(0).update_mask(torch.ones(1, dtype=torch.bool))


def test_rows_of_a_dynamic_batch_are_checked() -> None:
    spec = Composite(a=Unbounded((-1, 2)), shape=(-1,))
    rows = [TensorDict(a=torch.zeros(2)) for _ in range(3)]
    assert spec.is_in(LazyStackedTensorDict.lazy_stack(rows))
    assert spec.is_in(torch.stack(rows))
    assert not spec.is_in(LazyStackedTensorDict.lazy_stack([TensorDict(a=torch.zeros(3))] * 2))


def test_data_of_stacks_may_be_lists() -> None:
    composite: StackedComposite = SPECS["StackedComposite"]()
    rows = [part.rand() for part in composite.specs]
    assert composite.is_in(composite.encode(rows))
    assert [part["a"].shape for part in composite.to_numpy(rows)] == [(3, 1)] * 2
    with pytest.raises(SpecError, match="expected a TensorDict of batch size"):
        composite.encode([{"a": np.zeros((3, 1))}])
    with pytest.raises(SpecError, match="one for each of 2 stacked specs"):
        SPECS["Stacked"]().project(torch.zeros(3, 3))


def test_numbers_of_numpy_are_numbers() -> None:
    three = np.int64(3)
    assert Categorical(three, three) == Categorical(3, (3,))
    assert OneHot(three) == OneHot(3)
    assert Unbounded(three).expand(three, three) == Unbounded((3, 3))


def test_no_dtype_is_the_default_one() -> None:
    assert Categorical(3, dtype=None) == Categorical(3)
    assert OneHot(3, dtype=None) == OneHot(3)
    assert MultiCategorical([3, 2], dtype=None) == MultiCategorical([3, 2])
    assert MultiOneHot([3, 2], dtype=None) == MultiOneHot([3, 2])
    assert Binary(3, dtype=None) == Binary(3)
    assert Unbounded((3,), dtype=None).dtype is torch.float32


def test_parameters_are_not_shared_with_the_caller() -> None:
    mask, high = torch.tensor([True, False]), torch.tensor([3, 3])
    masked, bounded = Categorical(2, mask=mask), Bounded(0, high, dtype=torch.int64)
    mask[:], high[:] = True, 9
    assert not masked.is_in(torch.tensor(1))
    assert not bounded.is_in(torch.tensor([4, 4]))


def test_all_public_names_have_docstrings() -> None:
    for name in steppe.specs.__all__:
        value = getattr(steppe.specs, name)
        if not inspect.isclass(value):
            continue
        assert value.__doc__, name
        for method, function in vars(value).items():
            if not method.startswith("_") and (inspect.isfunction(function) or isinstance(function, property)):
                assert function.__doc__, f"{name}.{method}"
