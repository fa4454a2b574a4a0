"""write_row: what authors of array environments write their observations with."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from steppe import ArrayEnv, SerialEnv, write_row
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
        ((3,), np.zeros((1, 3)), r"found \(1, 3\)\. Write np.reshape\(value, \(3,\)\)"),
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


class Flags(ArrayEnv):
    """Returns flags that it was given in its third step; pays what it was given."""

    def __init__(self, flags=(False, False), reward=1.0):
        super().__init__()
        self.observation_spec = Composite(x=Unbounded((2,)))
        self.action_spec, self.reward_spec = OneHot(2), Unbounded((1,))
        self.flags, self.reward = flags, reward

    def reset_into(self, out, seed, env_info):
        self.steps = 0
        write_row(out, "x", np.zeros(2))

    def step_into(self, action, out):
        self.steps += 1
        later = self.steps == 3
        write_row(out, "x", np.ones(2))
        write_row(out, "reward", [self.reward if later else 1.0])
        return self.flags if later else (False, False)


@pytest.mark.parametrize("flags", [(None, False), (False, None), ("no", True), (False, [True, False])])
@pytest.mark.parametrize("batch", [False, True])
def test_flags_that_are_none_are_an_error(flags, batch):
    env = SerialEnv(2, [Flags, lambda: Flags(flags)]) if batch else Flags(flags)

    text = r"Flags\(.*\).step: Flags.step_into must return two bools, terminated and truncated, found \("
    with pytest.raises(SpecError, match=text):
        env.rollout(5)


@pytest.mark.parametrize("flags", [(np.True_, False), (False, 1), (np.ones(1), np.False_)])
def test_flags_may_be_those_of_numpy(flags):
    assert Flags(flags).rollout(5)["next", "done"].flatten().tolist() == [False, False, True]


def test_a_reward_that_is_none_names_environment_and_step():
    with pytest.raises(SpecError, match=r"^Flags\(.*\).step: 'reward' must be a number.*found \[None\]"):
        Flags(reward=None).rollout(4)


def test_an_environment_that_changes_the_shape_of_its_observation_says_so():
    assert Shrinking().rollout(1).shape == (1,)
    with pytest.raises(SpecError, match=r"'position' must have shape \(3,\).*found \(1,\)"):
        Shrinking().rollout(4)


@pytest.mark.parametrize(("shape", "value"), [((3,), [[1, 2, 3]]), ((2, 2), torch.arange(4)), ((1, 2), np.arange(2.0))])
def test_following_the_hint_writes_the_value(shape, value):
    out = {"x": np.zeros(shape)}
    with pytest.raises(SpecError) as caught:
        write_row(out, "x", value)
    suggested = re.search(r"Write ((?:np|value)\..*)\.$", str(caught.value)).group(1)
    write_row(out, "x", eval(suggested, {"np": np, "value": value}))
    assert out["x"].ravel().tolist() == np.asarray(value).ravel().tolist()


def test_a_value_of_another_layout_is_not_to_be_reshaped():
    with pytest.raises(SpecError, match="Change the value, or the shape of the spec"):
        write_row({"x": np.zeros((3, 2))}, "x", np.zeros((2, 3)))
