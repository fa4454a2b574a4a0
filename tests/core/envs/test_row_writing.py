"""write_row: what authors of array environments write their observations with."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from steppe import ArrayEnv, write_row
from steppe.errors import SpecError
from steppe.specs import Bounded, Composite, OneHot, Unbounded


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
        ((3,), np.zeros((1, 3)), r"found \(1, 3\)\. Write value.reshape\(\(3,\)\)"),
        ((2, 3), [[1], [2]], r"must have shape \(2, 3\).*found \(2, 1\)"),
    ],
)
def test_a_value_that_would_be_repeated_is_an_error(shape, value, text):
    out = {"x": np.zeros(shape)}
    with pytest.raises(SpecError, match=text):
        write_row(out, "x", value)

    assert not out["x"].any()


class Shrinking(ArrayEnv):
    """Observes three numbers, and one from its second step on."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_spec = Composite(position=Bounded(0.0, 9.0, shape=(3,)))
        self.action_spec = OneHot(2)
        self.reward_spec = Unbounded((1,))
        self.steps = 0

    def reset_into(self, out, seed, env_info):
        self.steps = 0
        write_row(out, "position", np.zeros(3))

    def step_into(self, action, out):
        self.steps += 1
        write_row(out, "position", np.zeros(3 if self.steps < 2 else 1))
        out["reward"][0] = 1.0
        return False, False


def test_an_environment_that_changes_the_shape_of_its_observation_says_so():
    assert Shrinking().rollout(1).shape == (1,)
    with pytest.raises(SpecError, match=r"'position' must have shape \(3,\).*found \(1,\)"):
        Shrinking().rollout(4)
