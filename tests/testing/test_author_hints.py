"""Hints for authors say what the action spec allows."""

from __future__ import annotations

import pytest
import torch

from steppe import Categorical, Composite, EnvBase, OneHot, Unbounded
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
