"""Checks of actions and of the first step; casts to the specs."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from tensordict import TensorDict

from steppe.envs import EnvBase
from steppe.errors import SpecError
from steppe.specs import Composite, OneHot, Unbounded


class Given(EnvBase):
    """An environment whose ``_step`` returns the argument of its constructor."""

    def __init__(self, outcome, **kwargs):
        super().__init__(**kwargs)
        self.outcome = outcome
        self.observation_spec = Composite(observation=Unbounded((2,)))
        self.action_spec = OneHot(2)
        self.reward_spec = Unbounded((1,))

    def _reset(self, tensordict=None, **kwargs):
        return TensorDict({"observation": torch.zeros(2)})

    def _step(self, tensordict):
        return TensorDict(dict(self.outcome)) if isinstance(self.outcome, dict) else self.outcome

    def _set_seed(self, seed):
        pass


def outcome(**entries):
    whole = {"observation": torch.zeros(2), "reward": torch.zeros(1), **entries}
    return Given({key: value for key, value in whole.items() if value is not None}).rand_step()["next"]


T, F = torch.tensor([True]), torch.tensor([False])


def test_a_reward_is_reshaped_to_its_spec():
    """A reward of as many elements as its spec takes the shape of the spec."""
    assert outcome(reward=torch.tensor(2.0))["reward"].shape == (1,)


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        ({"observation": torch.zeros(3)}, r"'observation' must have shape \(2,\), found \(3,\)"),
        ({"observation": torch.zeros(2, dtype=torch.complex64)}, "'observation' must have dtype torch.float32"),
        ({"reward": torch.zeros(1, dtype=torch.complex64)}, "'reward' must have dtype"),
        ({"terminated": torch.zeros(1)}, "'terminated' must have dtype torch.bool"),
        ({"observation": None}, "'observation' is in the spec but not in the data: return it from _step"),
    ],
)
def test_the_first_step_is_validated_against_the_specs(bad, text):
    with pytest.raises((SpecError, RuntimeError), match=text):
        outcome(**bad)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"done": torch.tensor(True)}, {"done": T, "terminated": T, "truncated": F}),
        ({"done": True}, {"done": T, "terminated": T, "truncated": F}),
        ({"terminated": torch.tensor(False), "truncated": torch.tensor(True)}, {"done": T, "truncated": T}),
        ({"reward": 2.0}, {"reward": torch.tensor([2.0])}),
        ({"reward": torch.tensor([2], dtype=torch.int64)}, {"reward": torch.tensor([2.0])}),
        ({"observation": torch.ones(2, dtype=torch.float64)}, {"observation": torch.ones(2)}),
        ({"observation": torch.ones(2, dtype=torch.bool)}, {"observation": torch.ones(2)}),
    ],
)
def test_the_first_step_is_cast_and_reshaped_to_its_specs(given, expected):
    env = Given({"observation": torch.zeros(2), "reward": torch.zeros(1), **given})
    for following in (env.rand_step(), env.rand_step()):
        for key, value in expected.items():
            assert following["next", key].dtype is value.dtype
            assert following["next", key].tolist() == value.tolist()


def test_whole_numbers_are_cast_only_without_loss():
    """A dtype that could lose values in the cast to the spec is refused."""

    class Counts(Given):
        def __init__(self, dtype):
            super().__init__({"observation": torch.zeros(2, dtype=dtype), "reward": torch.zeros(1)})
            self.observation_spec = Unbounded((2,), dtype=torch.int32)

    assert Counts(torch.int16).rand_step()["next", "observation"].dtype is torch.int32
    for dtype in (torch.int64, torch.float32):
        with pytest.raises(SpecError, match=r"'observation' must have dtype torch\.int32"):
            Counts(dtype).rand_step()


def test_run_type_checks_validates_every_step():
    for checks in (False, True):
        env = Given({"observation": torch.zeros(2), "reward": torch.zeros(1)}, run_type_checks=checks)
        env.rand_step()
        env.outcome["observation"] = torch.zeros(2, dtype=torch.float64)
        if checks:
            with pytest.raises(SpecError, match="float64"):
                env.rand_step()
        else:
            env.rand_step()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))], ids=["copy", "pickle"])
def test_a_copy_of_a_used_environment_casts_and_reshapes(copied):
    env = Given(
        {"observation": torch.zeros(2, dtype=torch.float64), "reward": torch.ones(()), "done": torch.tensor(False)}
    )
    env.rollout(2)
    following = copied(env).rollout(2)["next"]

    assert following["observation"].dtype is torch.float32
    assert following["done"].shape == following["reward"].shape == (2, 1)
