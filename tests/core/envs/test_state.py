"""Copies and pickles of environments have separate state."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

from steppe import StepCounter, TransformedEnv
from steppe.specs import Bounded
from steppe_testing import ArrayCountingEnv, CountingEnv

COPIES = [copy.copy, copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))]
NAMES = ["copy", "deepcopy", "pickle"]


def transformed() -> TransformedEnv:
    return TransformedEnv(CountingEnv(), StepCounter())


@pytest.mark.parametrize("duplicate", COPIES, ids=NAMES)
@pytest.mark.parametrize("make", [CountingEnv, ArrayCountingEnv, transformed])
def test_closing_a_copy_leaves_the_original_open(make, duplicate):
    env = make()

    duplicate(env).close()

    assert not env.is_closed
    env.rollout(2)


@pytest.mark.parametrize("duplicate", COPIES, ids=NAMES)
def test_a_spec_assigned_to_a_copy_is_the_copy_s(duplicate):
    env = CountingEnv()

    duplicate(env).reward_spec = Bounded(0, 7, (1,))

    assert env.reward_spec == CountingEnv().reward_spec


@pytest.mark.parametrize("duplicate", COPIES, ids=NAMES)
@pytest.mark.parametrize("make", [CountingEnv, ArrayCountingEnv, transformed])
def test_a_copy_continues_the_random_actions_of_its_original(make, duplicate):
    env = make()
    env.set_seed(3)
    env.rand_action()

    other = duplicate(env)

    expected = [env.rand_action()["action"] for _ in range(3)]
    assert torch.equal(torch.stack([other.rand_action()["action"] for _ in range(3)]), torch.stack(expected))


@pytest.mark.parametrize("duplicate", COPIES, ids=NAMES)
def test_a_copy_validates_its_first_data(duplicate):
    env = CountingEnv()
    other = duplicate(env)

    env.rollout(2)

    assert env.is_validated("step")
    assert not other.is_validated("step")
    other.rollout(2)
    assert other.is_validated("step")


@pytest.mark.parametrize("name", ["run_type_checks", "allow_done_after_reset"])
def test_settings_can_be_changed_on_an_environment(name):
    env = CountingEnv()

    setattr(env, name, True)

    assert getattr(copy.copy(env), name) is True
