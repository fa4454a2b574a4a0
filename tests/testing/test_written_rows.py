"""check_written_rows: values that array environments do not write, or that numpy converts."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from steppe import StepCounter, TransformedEnv, write_row
from steppe.envs import ArrayEnv
from steppe.errors import SpecError
from steppe.specs import Binary, Bounded, Composite, OneHot, Unbounded
from steppe_testing import ACTION_KINDS, ArrayCountingEnv, check_written_rows

SPECS = {
    "float": Unbounded((3,)),
    "float64": Unbounded((3,), dtype=torch.float64),
    "int": Unbounded((3,), dtype=torch.int64),
    "byte": Bounded(0, 255, (3,), dtype=torch.uint8),
    "flag": Binary(3, dtype=torch.bool),
}


class Grid(ArrayEnv):
    """An environment with a ``grid`` of three values, written by ``write``."""

    def __init__(self, spec="float", write=None, reward=lambda out: out["reward"].fill(1.0), flags=(False, False)):
        super().__init__()
        self.observation_spec = Composite(grid=SPECS[spec])
        self.action_spec = OneHot(2)
        self.reward_spec = Unbounded((1,))
        self.write, self.reward, self.flags = write or (lambda out, where: out["grid"].fill(1)), reward, flags

    def reset_into(self, out, seed, env_info):
        self.write(out, "reset")

    def step_into(self, action, out):
        self.write(out, "step")
        self.reward(out)
        return self.flags


def text_of(env, **kwargs):
    with pytest.raises(SpecError) as caught:
        check_written_rows(env, **kwargs)
    return str(caught.value)


def at_reset(write):
    return lambda out, where: write(out) if where == "reset" else out["grid"].fill(1)


def at_step(write):
    return lambda out, where: write(out) if where == "step" else out["grid"].fill(1)


@pytest.mark.parametrize("spec", SPECS)
def test_a_sound_environment_passes(spec):
    check_written_rows(Grid(spec))
    check_written_rows(TransformedEnv(Grid(spec), StepCounter()))


@pytest.mark.parametrize("kind", ACTION_KINDS)
def test_sound_environments_of_every_action_pass(kind):
    check_written_rows(
        ArrayCountingEnv(2, action=kind, actions=True, nested=True, info=True, pixels=(32, 32), noise=True)
    )


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("when", [at_reset, at_step])
def test_an_entry_that_is_never_written_is_named(spec, when):
    method = {at_reset: "reset_into", at_step: "step_into"}[when]
    text = text_of(Grid(spec, when(lambda out: None)))

    assert f"'grid' is not written by {method}: write out['grid'][...] = value each time" in text
    assert "bounds" not in text
    assert "1 place" in text


@pytest.mark.parametrize("spec", SPECS)
def test_a_part_that_is_never_written_is_named(spec):
    def write(out):
        out["grid"][:2] = 1

    text = text_of(Grid(spec, at_step(write)))

    assert "'grid' is not written as a whole by step_into: 1 of 3 values are left out, the first at (2,)" in text


def test_a_reward_that_is_never_written_is_named():
    text = text_of(Grid(reward=lambda out: None))

    assert "'reward' is not written by step_into: write out['reward'][0] = value each time" in text


def test_a_byte_equal_to_the_fill_value_counts_as_written():
    """A written byte that equals the test pattern by chance is not reported as unwritten."""
    check_written_rows(ArrayCountingEnv(300, pixels=(84, 84)), steps=1)


@pytest.mark.filterwarnings("ignore:.*in cast")
@pytest.mark.parametrize(
    ("spec", "value", "found"),
    [
        ("int", [0.5, 1, 1], "must have dtype torch.int64, found float64 with the value 0.5, of which the row keeps 0"),
        ("flag", [0, 2, 0], "must have dtype torch.bool, found int64 with the value 2, of which the row keeps True"),
        ("flag", [0.5, 0, 0], "found float64 with the value 0.5, of which the row keeps True"),
        ("byte", [0, 300, 0], "must have dtype torch.uint8, found int64 with the value 300, of which the row keeps 44"),
        ("byte", [0, -1, 0], "found int64 with the value -1, of which the row keeps 255"),
        ("byte", [0, 0.25, 0], "found float64 with the value 0.25, of which the row keeps 0"),
        ("float", [1e300, 0, 0], "found float64 with the value 1e+300, of which the row keeps inf"),
        ("float", [None, None, None], "with the value None, of which the row keeps nan: write a number, float('nan')"),
    ],
)
def test_a_cast_that_loses_something_is_named(spec, value, found):
    def all_of_it(out, where):
        out["grid"][...] = np.array(value)

    def one_by_one(out, where):
        for i, number in enumerate(np.array(value)):
            out["grid"][i] = number

    def through_a_view(out, where):
        out["grid"][:2][...] = np.array(value)[:2]
        out["grid"][2:] = np.array(value)[2:]

    def copied(out, where):
        np.copyto(out["grid"], np.array(value), casting="unsafe")

    for write in (all_of_it, one_by_one, through_a_view, copied):
        text = text_of(Grid(spec, write))
        assert "'grid'" in text
        assert found in text
        assert "widen the bounds" not in text


@pytest.mark.parametrize(
    ("spec", "value", "found"),
    [
        ("int", float("nan"), "'grid', of shape (3,) and dtype torch.int64, does not take .*NaN to integer"),
        ("byte", 300, "'grid', of shape (3,) and dtype torch.uint8, does not take .*300 out of bounds"),
        ("float", np.ones(4), "'grid', of shape (3,) and dtype torch.float32, does not take .*shape (4,)"),
        ("float", "much", "'grid', of shape (3,) .*does not take .*'much'"),
    ],
)
def test_a_value_that_numpy_refuses_is_named(spec, value, found):
    def write(out, where):
        out["grid"][...] = value

    with pytest.raises(SpecError, match=found.replace("(", r"\(").replace(")", r"\)")):
        check_written_rows(Grid(spec, write))


def test_a_cast_says_what_to_write():
    def write(out, where):
        out["grid"][...] = np.full(3, 0.5)

    assert "round it, or give the spec dtype=torch.float64." in text_of(Grid("int", write))


@pytest.mark.parametrize(
    ("spec", "value"),
    [
        ("float", np.array([0.1, 1e-300, 3.0])),
        ("float", np.array([np.inf, -np.inf, np.nan])),
        ("float", np.array([2**40, 1, 0])),
        ("int", np.array([1.0, 2.0, -3.0])),
        ("byte", np.array([0, 255, 7])),
        ("flag", np.array([0, 1, 1.0])),
        ("float", torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)),
        ("int", [1, 2, 3]),
        ("int", 5),
    ],
)
def test_a_cast_that_loses_nothing_but_precision_passes(spec, value):
    def write(out, where):
        out["grid"][...] = value

    check_written_rows(Grid(spec, write))


def test_an_environment_may_write_into_its_own_arrays():
    """The check of rows does not affect copies that an environment writes to."""

    def write(out, where):
        mine = out["grid"].copy()
        mine[...] = 0.5
        out["grid"][...] = np.ones(3)

    check_written_rows(Grid("int", write))


def test_a_value_that_is_repeated_to_fill_the_row_is_named():
    def write(out, where):
        out["grid"][...] = np.ones(1)

    text = text_of(Grid("float", write))
    assert "'grid' must have shape (3,), found (1,), which is repeated until it fills the row" in text
    assert "write_row(out, 'grid', value) refuses others" in text


def test_all_that_is_wrong_is_listed_at_once():
    def write(out, where):
        if where == "step":
            out["grid"][...] = np.full(3, 0.5)

    text = text_of(Grid("int", write, reward=lambda out: None))

    assert "in 3 places" in text
    assert "'grid' is not written by reset_into" in text
    assert "'grid' must have dtype torch.int64, found float64" in text
    assert "'reward' is not written by step_into" in text


def test_writes_below_transforms_are_checked():
    text = text_of(TransformedEnv(Grid(reward=lambda out: None), StepCounter()))

    assert "'reward' is not written by step_into" in text


def test_the_check_leaves_the_environment_usable():
    env = ArrayCountingEnv(3)
    check_written_rows(env)

    assert env.rollout(10)["next", "observation"].flatten().tolist() == [1, 2, 3]
    assert type(env.reset()["observation"]) is torch.Tensor


def test_legal_actions_are_asked_of_the_environment():
    class Picky(Grid):
        def rand_action(self, tensordict=None):
            return super().rand_action(tensordict).set("action", torch.tensor([False, True]))

        def step_into(self, action, out):
            assert action == 1
            return super().step_into(action, out)

    check_written_rows(Picky(), steps=10)


def test_write_row_passes_the_check():
    check_written_rows(Grid(write=lambda out, where: write_row(out, "grid", np.ones(3))))
