"""Examples of guides: rollouts, partial resets and steps, done entries."""

from __future__ import annotations

from contextlib import closing

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule

from steppe.batched import ParallelEnv, SerialEnv
from steppe.envs import EnvBase, check_env_specs, step_mdp
from steppe.errors import SpecError
from steppe.specs import Binary, Composite, Unbounded
from steppe_testing import CountingEnv, NestedCountingEnv, StatelessCountingEnv

KINDS = pytest.mark.parametrize("kind", [SerialEnv, ParallelEnv])


def test_a_rollout_is_reset_policy_step_and_step_mdp():
    env = CountingEnv(10)
    first = env.action_spec.encode(0)
    policy = TensorDictModule(lambda observation: first, in_keys=["observation"], out_keys=["action"])
    env.set_seed(0)
    expected = env.rollout(3, policy)

    td = env.reset()
    assert "done" in td
    assert "reward" not in td
    for t in range(3):
        td = policy(td)
        assert env.step(td) is td
        assert (td == expected[t]).all()
        td = step_mdp(td)

    assert "next" not in td
    assert "reward" not in td


@KINDS
def test_some_environments_of_a_batch_are_reset(kind):
    with closing(kind(4, CountingEnv)) as env:
        td = env.rollout(2, break_when_any_done=False)[:, -1]["next"].exclude("reward")
        td["_reset"] = torch.tensor([[True], [False], [True], [True]])

        td = env.reset(td)

        assert "_reset" not in td.keys()
        assert td["observation"].squeeze(-1).tolist() == [0, 2, 0, 0]
        assert td["done"].shape == td["terminated"].shape == (4, 1)


@KINDS
def test_a_mask_alone_is_enough_to_reset_some(kind):
    with closing(kind(4, CountingEnv)) as env:
        env.reset()
        td = env.reset(TensorDict({"_reset": torch.tensor([[True], [False], [True], [True]])}, [4]))

        assert set(td.keys()) == {"observation", "done", "terminated", "truncated"}
        assert td.batch_size == (4,)


@KINDS
def test_only_the_chosen_environments_of_a_batch_are_stepped(kind):
    with closing(kind(3, CountingEnv)) as env:
        td = env.rand_action(env.reset())
        td["_step"] = torch.tensor([True, False, True])
        td = env.step_mdp(env.step(td))
        assert td["observation"].squeeze(-1).tolist() == [1, 0, 1]

        # The one that was left out has not moved, whatever its data says.
        assert env.step_mdp(env.rand_step(td))["observation"].squeeze(-1).tolist() == [2, 1, 2]


def test_skipped_rows_keep_their_values_and_get_no_reward():
    env = StatelessCountingEnv()
    td = env.rand_action(env.reset(TensorDict({}, [3])))
    td["count"] = torch.full_like(td["count"], 5)
    td["done"] = torch.tensor([[True], [False], [False]])
    td["_step"] = torch.tensor([False, True, False])
    unknown = td.exclude("done", "terminated", "truncated")

    known = env.step(td)["next"]

    assert known["count"].squeeze(-1).tolist() == [5, 6, 5]
    assert known["done"].squeeze(-1).tolist() == [True, True, False]
    assert known["reward"].squeeze(-1)[[0, 2]].tolist() == [0, 0]
    assert StatelessCountingEnv().step(unknown)["next", "done"].squeeze(-1).tolist() == [False, True, False]


def test_a_mask_at_a_level_that_has_no_done_entry_is_not_allowed():
    env = CountingEnv()
    td = env.reset()
    td["nested"] = TensorDict({"_reset": torch.tensor([True])}, [])

    with pytest.raises(SpecError, match="'nested', '_reset'"):
        env.reset(td)
    grouped = NestedCountingEnv()
    with pytest.raises(SpecError, match="takes masks at"):
        grouped.reset(TensorDict({"other": TensorDict({"_reset": torch.tensor([True])}, [])}, grouped.batch_size))


def test_a_partial_reset_changes_only_its_rows():
    class Padding(CountingEnv):
        def _reset(self, tensordict=None, **kwargs):
            return super()._reset(tensordict, **kwargs).apply_(lambda value: value.fill_(0))

    env = Padding(batch_size=(2,))
    td = env.step_mdp(env.rand_step(env.reset()))
    td["_reset"] = torch.tensor([[True], [False]])

    assert env.reset(td)["observation"].squeeze(-1).tolist() == [0, 1]


def test_an_environment_may_give_its_done_entries_as_binary():
    class Ends(EnvBase):
        def __init__(self):
            super().__init__(batch_size=())
            self.observation_spec = Composite(observation=Unbounded((1,)))
            self.action_spec = Unbounded((1,))
            self.full_done_spec = Composite(
                done=Binary(1, shape=(1,), dtype=torch.bool), truncated=Binary(1, shape=(1,), dtype=torch.bool)
            )

        def _reset(self, tensordict=None):
            return self.observation_spec.zero()

        def _step(self, tensordict):
            return self.observation_spec.zero().update(self.full_reward_spec.zero())

        def _set_seed(self, seed):
            pass

    env = Ends()

    assert set(env.done_keys) == {"done", "terminated", "truncated"}
    check_env_specs(env)
