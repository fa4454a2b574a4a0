"""Bounded and Unbounded."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from steppe.errors import NotSupported, SpecError
from steppe.specs import Bounded, ContinuousBox, Unbounded

INF = math.inf


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize(("low", "high"), [(2.0, INF), (-INF, -3.0), (-INF, INF), (3e38, INF)])
def test_a_half_infinite_spec_draws_finite_values_inside_itself(low: float, high: float) -> None:
    spec = Bounded(low, high, shape=(1000,))
    drawn = spec.rand(generator=seeded())
    assert spec.is_in(drawn)
    assert bool(drawn.isfinite().all())


def test_bounds_may_be_finite_for_some_elements_only() -> None:
    spec = Bounded(torch.tensor([-1.0, 0.0, -INF, -INF]), torch.tensor([1.0, INF, 0.0, INF]))
    drawn = spec.rand((2000,), generator=seeded())
    assert spec.expand(2000, 4).is_in(drawn)
    assert drawn[:, 0].std() == pytest.approx(1 / math.sqrt(3), abs=0.05)
    assert drawn[:, 3].std() == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_floats_of_any_width_are_drawn_continuously(dtype: torch.dtype) -> None:
    spec = Bounded(-1, 1, shape=(2000,), dtype=dtype)
    drawn = spec.rand(generator=seeded())
    assert spec.domain == "continuous"
    assert spec.is_in(drawn)
    assert len(drawn.unique()) > 100


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_rounding_does_not_leave_narrow_bounds(dtype: torch.dtype) -> None:
    high = torch.tensor(1000.0, dtype=dtype)
    low = torch.nextafter(high, torch.zeros_like(high)) if dtype is not torch.float16 else high - 1
    spec = Bounded(torch.stack([low, high]), torch.stack([high, high]), dtype=dtype)
    assert spec.expand(1000, 2).is_in(spec.rand((1000,), generator=seeded()))


def test_the_whole_range_of_a_float_is_drawn_without_overflow() -> None:
    largest = torch.finfo(torch.float32).max
    for spec in (
        Bounded(-largest, largest, (500,)),
        Bounded(torch.full((500,), -largest), torch.full((500,), largest)),
    ):
        drawn = spec.rand(generator=seeded())
        assert spec.is_in(drawn)
        assert drawn.double().std() > largest / 3


def test_integers_include_both_ends() -> None:
    drawn = Bounded(3, 5, shape=(500,), dtype=torch.uint8).rand(generator=seeded())
    assert drawn.dtype is torch.uint8
    assert drawn.unique().tolist() == [3, 4, 5]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_the_whole_range_of_an_integer_is_drawn(dtype: torch.dtype) -> None:
    info = torch.iinfo(dtype)
    low, high = torch.full((4000,), info.min), torch.full((4000,), info.max)
    high[0] = info.max - 1
    for spec in (Bounded(info.min, info.max, (4000,), dtype=dtype), Bounded(low, high, dtype=dtype)):
        drawn = spec.rand(generator=seeded())
        assert spec.is_in(drawn)
        assert drawn.double().mean() / info.max == pytest.approx((info.min + info.max) / 2 / info.max, abs=0.06)


def test_spans_beyond_half_of_int64_are_uniform() -> None:
    low = torch.tensor([-(2**62) - 5, -(2**63), 0])
    high = torch.tensor([2**62 + 5, 2**62, 9])
    spec = Bounded(low, high, dtype=torch.int64)
    drawn = spec.rand((4000,), generator=seeded())
    assert spec.expand(4000, 3).is_in(drawn)
    middle = (low.double() + high.double()) / 2
    assert torch.allclose(drawn.double().mean(0) / high, middle / high, atol=0.1)


def test_infinite_bounds_of_integers_are_the_limits_of_the_dtype() -> None:
    spec = Bounded(-INF, np.float64(7.5), dtype=torch.int8)
    assert (spec.low.item(), spec.high.item()) == (-128, 7)


def test_a_wrong_shape_is_not_in_the_spec() -> None:
    spec = Bounded(torch.zeros(3), torch.ones(3))
    for wrong in (torch.zeros(4), torch.zeros(()), torch.zeros(2, 4), torch.zeros(3, 1)):
        assert spec.is_in(wrong) is False


def test_nan_is_outside_bounds_and_inside_unbounded() -> None:
    nan = torch.tensor([math.nan])
    assert not Bounded(-INF, INF, (1,)).is_in(nan)
    assert Unbounded((1,)).is_in(nan)
    assert Bounded(2, 3, (1,)).project(nan).item() == 2


def test_a_wrong_dtype_is_not_in_the_spec() -> None:
    assert not Bounded(0, 1, (2,)).is_in(torch.zeros(2, dtype=torch.float64))
    assert not Unbounded((2,)).is_in(torch.zeros(2, dtype=torch.int64))


def test_an_array_is_not_in_the_spec() -> None:
    assert Bounded(0, 1, (2,)).is_in(np.zeros(2, np.float32)) is False
    with pytest.raises(SpecError, match=r"'x': expected a tensor, found ndarray.*spec\.encode"):
        Bounded(0, 1, (2,)).assert_is_in(np.zeros(2, np.float32), key="x")


def test_projection_clamps_and_casts() -> None:
    assert Bounded(-1, 1, (3,)).project(torch.tensor([-5.0, 0.5, INF])).tolist() == [-1, 0.5, 1]
    assert Bounded(0, 255, (3,), dtype=torch.uint8).project(torch.tensor([-5.0, 7.9, 1e30])).tolist() == [0, 7, 255]
    wide = Bounded(-INF, INF, (2,), dtype=torch.int64).project(torch.tensor([INF, -INF]))
    assert wide.tolist() == [2**63 - 1, -(2**63)]


def test_projection_takes_blocks_and_refuses_other_shapes() -> None:
    spec = Bounded(torch.zeros(2), torch.ones(2))
    assert spec.project(torch.full((5, 2), 3.0)).tolist() == [[1, 1]] * 5
    with pytest.raises(SpecError, match=r"'action': expected shape \(2,\), found \(3,\)"):
        spec.project(torch.zeros(3), key="action")


def test_encode_never_reshapes() -> None:
    image = np.zeros((3, 84, 84), np.uint8)
    with pytest.raises(SpecError) as caught:
        Bounded(0, 255, (84, 84, 3), dtype=torch.uint8).encode(image, key=("agents", "pixels"))
    assert str(caught.value) == (
        "('agents', 'pixels'): expected shape (84, 84, 3), found (3, 84, 84). The dimensions are in another order: "
        "permute the data, or change the shape of the spec."
    )
    with pytest.raises(SpecError, match="Nothing is reshaped silently"):
        Unbounded((4,)).encode(np.zeros((2, 2)))


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
@pytest.mark.parametrize("value", [0.5, [0.5], np.array([[0.5]]), torch.tensor(0.5)])
def test_one_element_is_encoded_in_any_shape_of_one_element(shape, value) -> None:
    encoded = Unbounded(shape).encode(value)
    assert encoded.shape == shape
    assert encoded.item() == 0.5


def test_encode_adds_no_dimension() -> None:
    with pytest.raises(SpecError, match=r"expected shape \(1, 2\), found \(2,\)"):
        Unbounded((1, 2)).encode([0.5, 0.5])
    with pytest.raises(SpecError, match=r"expected shape \(-1,\), found \(\)"):
        Unbounded((-1,)).encode(0.5)


def test_encode_copies_arrays_and_casts() -> None:
    source = np.arange(3, dtype=np.float64)[::-1]
    encoded = Unbounded((3,)).encode(source)
    source[:] = 9
    assert encoded.tolist() == [2, 1, 0]
    assert encoded.dtype is torch.float32


def test_encode_takes_lists_and_refuses_what_is_no_number() -> None:
    assert Unbounded((2, 1), dtype=torch.int64).encode([[1], [2]]).tolist() == [[1], [2]]
    assert Unbounded((2,)).encode([torch.tensor(1.0), torch.tensor(2.0)]).tolist() == [1, 2]
    for wrong in (["a", "b"], [[1], [2, 3]], None, object()):
        with pytest.raises(SpecError, match="'x': expected numbers"):
            Unbounded((2,)).encode(wrong, key="x")


def test_bfloat16_goes_through_numpy_as_float32() -> None:
    spec = Bounded(-1, 1, (3,), dtype=torch.bfloat16)
    assert spec.to_numpy(spec.zero()).dtype == np.float32


def test_type_check_names_the_key_and_both_dtypes() -> None:
    with pytest.raises(SpecError, match=r"'reward': expected dtype torch.float32, found torch.float64"):
        Unbounded((1,)).type_check(torch.zeros(1, dtype=torch.float64), "reward")
    Unbounded((1,)).type_check(torch.zeros(7))


def test_the_error_about_values_names_bounds_and_values() -> None:
    with pytest.raises(SpecError, match=r"'x': expected values from 0 to 1, found \[0\.5, 2\.0\]"):
        Bounded(0, 1, (2,)).assert_is_in(torch.tensor([0.5, 2]), key="x")
    with pytest.raises(SpecError, match="found values from 2 to 2, 1 NaN"):
        Bounded(0, 1, (50,)).assert_is_in(torch.cat([torch.full((49,), 2.0), torch.tensor([math.nan])]))


def test_the_error_about_a_block_says_how_to_expand() -> None:
    with pytest.raises(SpecError, match=r"spec\.expand\(128, \*spec\.shape\)"):
        Unbounded((3,)).assert_is_in(torch.zeros(128, 3), exact=True)


def test_bounds_have_the_full_shape_and_cost_one_number() -> None:
    spec = Bounded(0, 1, shape=(84, 84)).expand(1000, 84, 84)
    assert spec.space.low.shape == spec.low.shape == (1000, 84, 84)
    assert spec.space.least.numel() == 1
    assert Bounded(torch.arange(3.0), 5).expand(1000, 3).space.least.shape == (3,)


def test_the_shape_comes_from_the_bounds() -> None:
    assert Bounded(0, 1).shape == ()
    assert Bounded(torch.zeros(2, 1), torch.ones(3)).shape == (2, 3)
    assert Unbounded().shape == (1,)
    assert Unbounded(3).shape == (3,)


def test_floats_are_the_default_whatever_the_bounds_are() -> None:
    assert Bounded(torch.tensor(0), torch.tensor(3)).dtype is torch.float32
    assert Bounded(np.zeros(2), np.ones(2), dtype="uint8").dtype is torch.uint8


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"low": 1, "high": 0}, "low must not exceed high"),
        ({"low": math.nan, "high": 0}, "low holds NaN"),
        ({"low": INF, "high": INF}, "leaves no finite value"),
        ({"low": -1, "high": 5, "dtype": torch.uint8}, "low=-1 is outside of torch.uint8, which holds 0 to 255"),
        ({"low": 0, "high": 300.0, "dtype": torch.uint8}, "high=300 is outside of torch.uint8"),
        ({"low": 0, "high": 1, "dtype": torch.uint64}, "Use torch.int64"),
        ({"low": torch.zeros(3), "high": 1, "shape": (2,)}, r"low has shape \(3,\), which does not broadcast"),
        ({"low": torch.zeros(3), "high": torch.ones(2)}, r"shape \(3,\) and high of shape \(2,\) differ"),
        ({"low": "a", "high": 1}, "low must be numbers"),
        ({"low": 0, "high": 1, "shape": (-2,)}, "expected sizes of 0 or more"),
        ({"low": 0, "high": 1, "dtype": "no"}, "Expected a torch dtype"),
    ],
)
def test_bounds_that_make_no_sense_are_refused(arguments: dict, text: str) -> None:
    with pytest.raises(SpecError, match=text):
        Bounded(**arguments)


def test_bounds_compare_up_to_rounding() -> None:
    assert Bounded(0, 0.1 + 0.2, (2,)) == Bounded(0, 0.3, (2,))
    assert Bounded(0, 1, (2,)) != Bounded(0, 1.001, (2,))
    assert Bounded(0, torch.ones(2)) == Bounded(0, 1, (2,))
    assert Bounded(0, 1, (2,)) != Unbounded((2,))


def test_a_change_of_dtype_keeps_the_bounds_that_it_can_hold() -> None:
    pixels = Bounded(0, 255, (2,), dtype=torch.uint8)
    assert pixels.to(torch.float32) == Bounded(0, 255, (2,))
    assert Bounded(-INF, 1e10, (2,)).to(torch.int8) == Bounded(-128, 127, (2,), dtype=torch.int8)
    assert pixels.to(torch.uint8) is pixels


def test_the_device_may_be_none() -> None:
    spec = Bounded(0, 1, (2,))
    assert spec.device is None
    assert spec.rand().device.type == "cpu"
    moved = spec.to("cpu")
    assert moved.device == torch.device("cpu")
    assert moved != spec
    assert moved.to("cpu") is moved
    assert moved.clear_device_() == spec


def test_integers_can_be_counted_and_listed() -> None:
    spec = Bounded(torch.tensor([0, 5]), torch.tensor([1, 7]), dtype=torch.int64)
    assert spec.cardinality() == 6
    listed = spec.enumerate()
    assert len(listed.unique(dim=0)) == 6
    assert spec.expand(6, 2).is_in(listed)


def test_floats_cannot_be_listed() -> None:
    assert Bounded(0, 1).cardinality() == Unbounded().cardinality() == INF
    with pytest.raises(NotSupported, match="not countable"):
        Bounded(0, 1).enumerate()
    with pytest.raises(NotSupported, match="no categories"):
        Unbounded().index(torch.zeros(1), torch.zeros(1))


def test_unsigned_integers_work_without_torchs_comparison() -> None:
    spec = Bounded(10, 60000, (500,), dtype=torch.uint16)
    drawn = spec.rand(generator=seeded())
    assert drawn.dtype is torch.uint16
    assert spec.is_in(drawn)
    assert not spec.is_in(torch.full((500,), 3, dtype=torch.uint16))
    assert spec.project(torch.full((500,), -3)).to(torch.int64).unique().tolist() == [10]


def test_flags_may_be_bounded() -> None:
    assert Bounded(0, 1, (50,), dtype=torch.bool).rand(generator=seeded()).unique().tolist() == [False, True]
    assert Unbounded((50,), dtype=torch.bool).rand(generator=seeded()).unique().tolist() == [False, True]


def test_the_space_of_unbounded_is_the_whole_dtype() -> None:
    assert Unbounded((2,)).space == ContinuousBox(torch.full((2,), -INF), torch.full((2,), INF))
    assert Unbounded((2,), dtype=torch.int8).space.high.tolist() == [127, 127]


def test_texts() -> None:
    assert repr(Bounded(-1, 1, (2,), "cpu")) == "Bounded(low=-1, high=1, shape=(2,), dtype=float32, device='cpu')"
    assert repr(Bounded(torch.arange(6.0), 9)) == "Bounded(low=[0, 1, 2, 3, ...], high=9, shape=(6,), dtype=float32)"
