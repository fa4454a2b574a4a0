"""write_row: writing the observations of array environments."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from steppe import write_row
from steppe.errors import SpecError


@pytest.mark.parametrize("value", [np.array([1, 2, 3]), [1.0, 2.0, 3.0], torch.tensor([1.0, 2.0, 3.0])])
def test_a_value_is_copied_into_its_row(value):
    out = {"x": np.zeros(3, np.float32)}
    row = out["x"]
    write_row(out, "x", value)

    assert out["x"] is row
    assert row.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("shape", "value", "text"),
    [
        ((3,), np.zeros(1), r"'x' must have shape \(3,\), as its spec says, found \(1,\)\. Change the value, or"),
        ((3,), 5.0, r"found \(\)\. Change the value"),
        ((1,), 5.0, r"found \(\)\. Write out\['x'\]\[0\] = value"),
        ((3,), np.zeros((1, 3)), r"found \(1, 3\)\. Write np.reshape\(value, \(3,\)\)"),
        ((2, 3), [[1], [2]], r"must have shape \(2, 3\).*found \(2, 1\)"),
    ],
)
def test_a_value_that_would_be_repeated_is_an_error(shape, value, text):
    out = {"x": np.zeros(shape)}
    with pytest.raises(SpecError, match=text):
        write_row(out, "x", value)

    assert not out["x"].any()


@pytest.mark.parametrize(
    ("shape", "value"),
    [((1,), [None]), ((), None), ((2,), ["1", "2"]), ((2,), np.array([1.0, None], dtype=object)), ((), "3")],
)
@pytest.mark.parametrize("dtype", [np.float32, np.int64, bool])
def test_a_value_that_is_no_number_is_an_error(shape, value, dtype):
    out = {"x": np.zeros(shape, dtype)}
    with pytest.raises(SpecError, match="'x' must be a number, or an array of numbers; found "):
        write_row(out, "x", value)

    assert not out["x"].any()


@pytest.mark.parametrize(("shape", "value"), [((3,), [[1, 2, 3]]), ((2, 2), torch.arange(4)), ((1, 2), np.arange(2.0))])
def test_the_hint_of_an_error_writes_the_value(shape, value):
    out = {"x": np.zeros(shape)}
    with pytest.raises(SpecError) as caught:
        write_row(out, "x", value)
    suggested = re.search(r"Write ((?:np|value)\..*)\.$", str(caught.value)).group(1)
    write_row(out, "x", eval(suggested, {"np": np, "value": value}))
    assert out["x"].ravel().tolist() == np.asarray(value).ravel().tolist()


def test_a_value_of_another_layout_is_not_to_be_reshaped():
    with pytest.raises(SpecError, match="Change the value, or the shape of the spec"):
        write_row({"x": np.zeros((3, 2))}, "x", np.zeros((2, 3)))
