"""Hints for authors say what the action spec allows."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from steppe import Binary, Categorical, Composite, EnvBase, OneHot, Unbounded
from steppe_testing import EnvConformance
from steppe_testing.author_hints import action_hint


def test_the_hint_describes_the_action_of_each_key():
    class Cranes(EnvBase):
        def __init__(self):
            super().__init__()
            self.observation_spec = Unbounded((1,))
            self.full_action_spec = Composite(hook=OneHot(3), arms=Composite(turn=Categorical(5)))

    text = action_hint(Cranes())

    assert "'hook' is" in text
    assert "('arms', 'turn') is a whole number from 0 to 4" in text


@pytest.mark.parametrize("error", [IndexError, ValueError, AssertionError])
def test_check_says_which_actions_a_simulator_was_given(capsys, error):
    from functools import partial

    from steppe_testing.commands.check_command import _report

    class Narrow(EnvBase):
        def __init__(self):
            super().__init__()
            self.observation_spec = Unbounded((1,))
            self.action_spec = Categorical(7)

        def _reset(self, tensordict=None, **kwargs):
            return self.observation_spec.zero()

        def _step(self, tensordict):
            raise error("no such direction")

        def _set_seed(self, seed):
            pass

    env = Narrow()

    assert not _report("steps", partial(env.rollout, 3), env)

    out = capsys.readouterr().out
    assert error.__name__ in out
    assert "'action' is a whole number from 0 to 6" in out
    assert torch.is_tensor(env.reset()["observation"])


class Doors(EnvBase):
    """One of five doors is open, another one in each step; the seed draws the first. Other doors are an error."""

    def __init__(self):
        super().__init__()
        self.observation_spec = Composite(doors=Binary(5, dtype=torch.bool))
        self.action_spec = Categorical(5)
        self.reward_spec = Unbounded((1,))
        self.action_masks = {"action": "doors"}
        self.open, self.random = 0, torch.Generator()

    def _reset(self, tensordict=None, **kwargs):
        self.open = int(torch.randint(5, (), generator=self.random))
        return TensorDict(doors=torch.arange(5) == self.open)

    def _step(self, tensordict):
        if int(tensordict["action"]) != self.open:
            raise ValueError("this door is closed")
        self.open = (self.open + 1) % 5
        return TensorDict(doors=torch.arange(5) == self.open, reward=torch.ones(1), terminated=torch.tensor([False]))

    def _set_seed(self, seed):
        self.random.manual_seed(seed or 0)


@pytest.mark.parametrize("name", ["test_one_seed_gives_one_data_set", "test_two_seeds_give_two_data_sets"])
def test_the_kit_explains_errors_of_forbidden_actions(name):
    class Kit(EnvConformance):
        def make_env(self, **kwargs):
            return Doors(**kwargs)

    with pytest.raises(AssertionError, match=r"(?s)ValueError: this door is closed.*masks \['doors'\] may forbid them"):
        getattr(Kit(), name)(Doors())
