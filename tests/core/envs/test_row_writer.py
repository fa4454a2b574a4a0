"""Rows of array environments: wrong keys, wrong flags and wrong arguments, and what the errors say."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from steppe import ParallelEnv, SerialEnv, check_env_specs, write_row
from steppe.envs import ArrayEnv
from steppe.errors import SpecError, WorkerError
from steppe.specs import Bounded, Composite, OneHot, Unbounded


class Grid(ArrayEnv):
    """Observes ``grid`` of three values, which ``write(out, where)`` writes."""

    def __init__(self, write=None, reward=lambda out: out["reward"].fill(1.0), flags=(False, False)):
        super().__init__()
        self.observation_spec = Composite(grid=Unbounded((3,)))
        self.action_spec = OneHot(2)
        self.reward_spec = Unbounded((1,))
        self.write, self.reward, self.flags = write or (lambda out, where: out["grid"].fill(1)), reward, flags

    def reset_into(self, out, seed, env_info):
        self.write(out, "reset")

    def step_into(self, action, out):
        self.write(out, "step")
        self.reward(out)
        return self.flags


def put(out, where):
    out["grid"] = np.ones(3)


def test_a_worker_raises_the_same_error():
    env = ParallelEnv(2, lambda: Grid(write=put))
    with pytest.raises(WorkerError, match=r"out\['grid'\] = value replaces the row"):
        env.reset()
    env.close(raise_if_closed=False)


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (True, "cannot unpack non-iterable bool object"),
        (np.bool_(True), "cannot unpack non-iterable numpy.bool"),
        (None, "cannot unpack non-iterable NoneType object"),
        ((False,), "not enough values"),
        ((1.0, False, {}), "too many values"),
        (np.array(True), "iteration over a 0-d array"),
        ((np.zeros(2, bool), np.zeros(2, bool)), "'terminated' must be True or False; found array"),
        ((False, {"lives": 3}), "'truncated' must be True or False; found {'lives': 3}"),
    ],
)
def test_step_into_must_return_two_bools(flags, text):
    text = rf"Grid.step_into must return two bools, terminated and truncated: {text}.*Write: return terminated, False"
    for use in (check_env_specs, lambda env: env.rollout(2), lambda env: env.rand_step(env.reset())):
        with pytest.raises(SpecError, match=text):
            use(Grid(flags=flags))
    with pytest.raises(SpecError, match=text):
        SerialEnv(2, lambda: Grid(flags=flags)).rollout(2)


class Later(Grid):
    """Returns its flags in its third step."""

    def reset_into(self, out, seed, env_info):
        super().reset_into(out, seed, env_info)
        self.steps = 0

    def step_into(self, action, out):
        self.steps += 1
        flags = super().step_into(action, out)
        return flags if self.steps == 3 else (False, False)


@pytest.mark.parametrize("flags", [(None, False), (False, None), ("no", True), (False, [True, False])])
@pytest.mark.parametrize("batch", [False, True])
def test_invalid_flags_are_an_error(flags, batch):
    env = SerialEnv(2, [Later, lambda: Later(flags=flags)]) if batch else Later(flags=flags)

    text = r"Later\(.*\).step: Later.step_into must return two bools, terminated and truncated: 't.*' must be True or"
    with pytest.raises(SpecError, match=text):
        env.rollout(5)


@pytest.mark.parametrize("flags", [(np.True_, False), (False, 1), (np.ones(1), np.False_)])
def test_flags_may_be_numpy_bools(flags):
    assert Later(flags=flags).rollout(5)["next", "done"].flatten().tolist() == [False, False, True]


def test_values_of_a_later_step_name_environment_and_step():
    rewards, sizes = iter([1.0, 1.0, None]), iter([3, 3, 1])

    with pytest.raises(SpecError, match=r"^Grid\(.*\).step: 'reward' must be a number.*found \[None\]"):
        Grid(reward=lambda out: write_row(out, "reward", [next(rewards)])).rollout(4)
    with pytest.raises(SpecError, match=r"^Grid\(.*\).step: 'grid' must have shape \(3,\).*found \(1,\)"):
        Grid(write=lambda out, where: write_row(out, "grid", np.zeros(next(sizes)))).rollout(4)


def test_a_typeerror_inside_step_into_arrives_unchanged():
    def reward(out):
        _, _ = True

    with pytest.raises(TypeError, match="cannot unpack non-iterable bool"):
        Grid(reward=reward).rollout(2)


class Smooth(ArrayEnv):
    """Observes how the action has changed, keeps the action, and writes into the one before."""

    def __init__(self, size):
        super().__init__()
        self.observation_spec = Composite(change=Unbounded((size,)))
        self.action_spec = Bounded(-1, 1, (size,))
        self.reward_spec = Unbounded((1,))

    def reset_into(self, out, seed, env_info):
        self.last = np.zeros(out["change"].shape, np.float32)
        out["change"][...] = 0

    def step_into(self, action, out):
        out["change"][...] = action - self.last
        out["reward"][0] = 0
        self.last.fill(np.nan)
        self.last = action
        return False, False


@pytest.mark.parametrize("size", [2, 40])
@pytest.mark.parametrize("batch", [None, SerialEnv, ParallelEnv])
def test_an_environment_may_keep_its_actions_and_write_into_them(batch, size):
    env = Smooth(size) if batch is None else batch(2, lambda: Smooth(size))
    steps, root = [], env.reset()
    for _ in range(4):
        steps.append(env.rand_action(root))
        _, root = env.step_and_maybe_reset(steps[-1])
    for data in (env.rollout(4), torch.stack(steps, -1)):
        before = data["action"].roll(1, -2)
        before[..., 0, :] = 0
        assert torch.equal(data["next", "change"], data["action"] - before)
    env.close()


def test_wrong_signatures_of_methods_are_named():
    class NoSeed(Grid):
        def reset_into(self, out):
            """Takes too little."""

    class NoOut(Grid):
        def step_into(self, action):
            """Takes too little."""

    for use in (check_env_specs, lambda env: env.rollout(1)):
        with pytest.raises(SpecError, match=r"NoSeed must take reset_into\(out, seed, env_info\): .*4 were given"):
            use(NoSeed())
        with pytest.raises(SpecError, match=r"NoOut must take step_into\(action, out\): .*3 were given"):
            use(NoOut())


def test_a_typeerror_inside_a_method_is_raised_unchanged():
    """A TypeError about arguments that a method raises itself is not reworded."""

    def write(out, where):
        len()

    with pytest.raises(TypeError, match="exactly one argument"):
        Grid(write=write).reset()
