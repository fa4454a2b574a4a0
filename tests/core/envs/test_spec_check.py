"""check_env_specs: detected differences and error texts."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from steppe.envs import check_env_specs
from steppe.errors import SpecError
from steppe_testing import (
    ArrayCountingEnv,
    AutoResettingCountingEnv,
    CountingEnv,
    DoNothingEnv,
    DynamicSpecEnv,
    HeterogeneousCountingEnv,
    MetadataEnv,
    MultiAgentCountingEnv,
    MultiKeyCountingEnv,
    NestedCountingEnv,
    NestedResetEnv,
    ScalarActionEnv,
    StatelessCountingEnv,
    TextCountingEnv,
)

SOUND = [
    ArrayCountingEnv,
    AutoResettingCountingEnv,
    CountingEnv,
    DoNothingEnv,
    DynamicSpecEnv,
    HeterogeneousCountingEnv,
    MetadataEnv,
    MultiAgentCountingEnv,
    MultiKeyCountingEnv,
    NestedCountingEnv,
    NestedResetEnv,
    ScalarActionEnv,
    StatelessCountingEnv,
    TextCountingEnv,
]


class Wrong(CountingEnv):
    """Passes its data through a function."""

    def __init__(self, change, **kwargs):
        super().__init__(noise=True, **kwargs)
        self.change = change

    def _step(self, tensordict):
        return self.change(super()._step(tensordict))

    def _reset(self, tensordict=None, **kwargs):
        data = self.change(super()._reset(tensordict))
        return data.exclude("reward")


def text_of(env, **kwargs):
    with pytest.raises(SpecError) as caught:
        check_env_specs(env, **kwargs)
    return str(caught.value)


@pytest.mark.parametrize("make", SOUND)
@pytest.mark.parametrize("mode", [None, True, "both"])
def test_sound_environments_pass(make, mode):
    check_env_specs(make(), break_when_any_done=mode, steps=7)


@pytest.mark.parametrize("make", [one for one in SOUND if one not in (ArrayCountingEnv, DynamicSpecEnv)])
def test_sound_batches_pass(make):
    check_env_specs(make(batch_size=(2,)))


def test_an_action_that_does_not_fit_its_spec_is_named():
    class Wrong(CountingEnv):
        def rand_action(self, tensordict=None):
            return super().rand_action(tensordict).update({"action": torch.zeros(3)})

    assert "'action' must have dtype torch.bool" in text_of(Wrong())


def test_dtypes_can_be_left_out():
    env = Wrong(lambda td: td.set("observation", td["observation"].double()))

    check_env_specs(env, check_dtype=False)


def test_resets_after_an_end_are_checked():
    class Second(CountingEnv):
        resets = 0

        def _reset(self, tensordict=None, **kwargs):
            self.resets += 1
            data = super()._reset(tensordict)
            return data if self.resets == 1 else data.set("more", torch.zeros(1))

    check_env_specs(Second(2), break_when_any_done=True)
    assert "'more' is in the data but in no spec" in text_of(Second(2))


def test_random_states_stay_as_they_were():
    env = CountingEnv(noise=True)
    env.set_seed(3)
    expected = env.rand_action()["action"]
    env.set_seed(3)
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    check_env_specs(env, seed=7)
    after = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    generator = env.action_generator()

    assert torch.equal(states[0], after[0])
    assert states[1:] == after[1:]
    assert generator.initial_seed() == 3
    assert torch.equal(env.rand_action()["action"], expected)


def test_the_first_real_step_is_still_checked_afterwards():
    env = Wrong(lambda td: td)
    check_env_specs(env)
    env.change = lambda td: td.set("observation", td["observation"].to(torch.complex64))

    with pytest.raises(SpecError, match="complex64"):
        env.reset()


def test_the_check_reports_the_returned_dtypes():
    """The check names the environment's dtype, although steps convert the data."""
    env = Wrong(lambda td: td.set("observation", td["observation"].double()))
    assert env.rollout(2)["observation"].dtype is torch.float32

    for _ in range(2):
        with pytest.raises(SpecError, match=r"'observation' must have dtype torch.float32, found torch.float64"):
            check_env_specs(env)
    assert env.rollout(2)["observation"].dtype is torch.float32


def test_a_state_to_start_from_can_be_given():
    td = TensorDict({"count": torch.ones(3, 1, dtype=torch.int64)}, [3])
    check_env_specs(StatelessCountingEnv(), tensordict=td)

    assert td["count"].sum() == 3


def test_an_environment_that_raises_is_not_hidden():
    class Raises(CountingEnv):
        def _step(self, tensordict):
            raise ZeroDivisionError("in the simulator")

    with pytest.raises(ZeroDivisionError, match="in the simulator"):
        check_env_specs(Raises())


def test_the_method_is_the_function():
    CountingEnv().check_env_specs(steps=1)
    with pytest.raises(SpecError):
        Wrong(lambda td: td.exclude("noise")).check_env_specs()


@pytest.mark.parametrize("make", [CountingEnv, lambda **kwargs: CountingEnv(batch_size=(2,), **kwargs)])
def test_a_buffer_that_is_returned_and_written_again_is_named(make):
    env = make()
    fresh, buffer = env._data, torch.zeros(*env.batch_size, 1)

    def kept():
        data = fresh()
        return data.set("observation", buffer.copy_(data["observation"]))

    env._data = kept

    text = text_of(env)
    assert "'observation' was changed after it had been returned" in text
    assert "Return a copy of a buffer that is kept: tensor.clone(), or array.copy()." in text
