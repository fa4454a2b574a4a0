"""Environments that reset themselves, and the flag that says so."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict
from torch import nn

from steppe import AutoResetEnv, AutoResetTransform, SerialEnv
from steppe_testing import ArrayCountingEnv, AutoResettingCountingEnv, CountingEnv
from tests.core.envs.counting import counts


def test_the_environment_gets_the_transform_of_such_environments():
    """As in TorchRL, the result of the constructor is an AutoResetEnv."""
    env = AutoResettingCountingEnv(3, policy=nn.Identity())

    assert type(env) is AutoResetEnv
    assert type(env.base_env) is AutoResettingCountingEnv
    assert type(env.transform[0]) is AutoResetTransform


def test_the_first_observation_of_an_episode_moves_to_its_root():
    env = AutoResettingCountingEnv(3, start=10)
    data = env.rollout(7, break_when_any_done=False)

    assert counts(data) == [10, 11, 12, 10, 11, 12, 10]
    assert counts(data, ("next", "done")) == [False, False, True, False, False, True, False]
    assert env.resets == 1  # the environment is not asked to reset


def test_the_last_observation_of_an_episode_is_unknown():
    data = AutoResettingCountingEnv(3).rollout(4, break_when_any_done=False)

    assert counts(data, ("next", "observation"))[:2] == [1, 2]
    assert data["next", "observation"][2].isnan().all()
    assert counts(data, ("next", "observation"))[3] == 1


@pytest.mark.parametrize(("dtype", "expected"), [(torch.int64, -1), (torch.uint8, 255), (torch.bool, False)])
def test_the_fill_value_depends_on_the_dtype(dtype, expected):
    data = AutoResettingCountingEnv(3, dtype=dtype).rollout(3)

    assert data["next", "observation"][2].item() == expected


def test_without_replacing_next_holds_the_first_observation():
    """Without auto_reset_replace, next shows the new episode's first observation."""
    data = AutoResettingCountingEnv(3, start=10, auto_reset_replace=False).rollout(4, break_when_any_done=False)

    assert counts(data, ("next", "observation")) == [11, 12, 10, 11]
    assert counts(data) == [10, 11, 12, 10]


def test_an_explicit_reset_still_resets():
    env = AutoResettingCountingEnv(3)
    env.rollout(2)

    assert counts(env.rollout(2)) == [0, 1]
    assert env.resets == 2


def test_rows_of_a_batch_end_by_themselves():
    env = AutoResettingCountingEnv(3, batch_size=(2,))
    env.base_env.max_steps = torch.tensor([[2], [3]])
    data = env.rollout(5, break_when_any_done=False)

    assert counts(data) == [[0, 1, 0, 1, 0], [0, 1, 2, 0, 1]]
    assert data["next", "observation"].isnan().squeeze(-1).tolist() == [[0, 1, 0, 1, 0], [0, 0, 1, 0, 0]]


def test_a_truncated_episode_resets_too():
    data = AutoResettingCountingEnv(3, truncate=True).rollout(5, break_when_any_done=False)

    assert counts(data) == [0, 1, 2, 0, 1]


def test_auto_reset_takes_an_array_env_off_the_row_path():
    """An array environment that resets itself is stepped on TensorDicts."""

    class SelfResetting(ArrayCountingEnv):
        def step_into(self, action, out):
            ended = super().step_into(action, out)
            if any(ended):
                self.count = 0
                self._write(out)
            return ended

    env = SelfResetting(3, auto_reset=True)
    data = env.rollout(5, break_when_any_done=False)

    assert env.row_writer is None
    assert counts(data) == [0, 1, 2, 0, 1]
    assert data["next", "observation"][2].isnan().all()


def test_overriding_step_and_reset_as_the_guide_shows_it():
    class AutoResetting(CountingEnv):
        def _step(self, tensordict):
            tensordict = super()._step(tensordict)
            if tensordict["terminated"].any():
                reset = super().reset()
                tensordict.update(reset.exclude(*self.done_keys))
            return tensordict

        def _reset(self, tensordict=None):
            if tensordict is not None and "_reset" in tensordict:
                return tensordict.copy()
            return super()._reset(tensordict)

    data = AutoResetting(3, start=4, auto_reset=True).rollout(7, break_when_any_done=False)

    assert counts(data) == [4, 5, 6, 4, 5, 6, 4]
    assert data["next", "observation"][2].isnan().all()
    data = AutoResetting(2, auto_reset=True, auto_reset_replace=False).rollout(2)
    assert counts(data, ("next", "observation")) == [1, 0]


def test_a_batch_says_that_its_environments_are_to_be_told():
    with pytest.raises(TypeError, match="give auto_reset=True to those that reset themselves"):
        SerialEnv(2, AutoResettingCountingEnv, auto_reset=True)


def test_a_reset_of_other_data_ignores_kept_observations():
    env = AutoResettingCountingEnv(3)
    env.rollout(3)  # stops at the end: the first observation of the next episode is kept, and never asked for
    td = env.reset(TensorDict({}, []))

    assert td["observation"].item() == 0
    assert env.resets == 2
