"""What guides of the interface show, as they show it: attributes, partial resets and steps, transforms and parents."""

from __future__ import annotations

from contextlib import closing

import pytest
import torch
from tensordict import LazyStackedTensorDict, TensorDict
from tensordict.nn import TensorDictModule

from steppe.batched import ParallelEnv, SerialEnv
from steppe.envs import EnvBase, check_env_specs, step_mdp
from steppe.errors import SpecError, StateError
from steppe.specs import Binary, Composite, Spec, Unbounded
from steppe.transforms import Compose, ConditionalSkip, DoubleToFloat, InitTracker, StepCounter, TransformedEnv
from steppe_testing import CountingEnv, DynamicSpecEnv, NestedCountingEnv, StatelessCountingEnv

KINDS = pytest.mark.parametrize("kind", [SerialEnv, ParallelEnv])


class PulledEnv(CountingEnv):
    """Has an attribute that a batch can be asked for."""

    g = 9.81


# -- an environment -------------------------------------------------------------------------------------------------


def test_specs_are_composites_of_inputs_and_outputs_that_contain_the_batch_size():
    env = CountingEnv(batch_size=(4,))

    assert env.batch_size == torch.Size([4])
    assert sorted(env.input_spec.keys()) == ["full_action_spec", "full_state_spec"]
    assert sorted(env.output_spec.keys()) == ["full_done_spec", "full_observation_spec", "full_reward_spec"]
    for spec in (env.input_spec, env.output_spec, env.observation_spec):
        assert isinstance(spec, Composite)
    assert isinstance(env.action_spec, Spec)
    assert env.action_spec.shape[:1] == (4,)
    assert env.action_spec is env.input_spec["full_action_spec", "action"]
    assert env.reward_spec is env.output_spec["full_reward_spec", "reward"]
    assert env.observation_spec == env.output_spec["full_observation_spec"]
    assert env.done_spec == env.output_spec["full_done_spec"]


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


def test_one_seed_leads_to_those_of_a_whole_batch():
    env = CountingEnv()
    chain = [0]
    for _ in range(3):
        chain.append(env.set_seed(chain[-1]))

    assert len(set(chain)) == 4
    assert env.set_seed(0) == chain[1]


def test_a_step_counter_writes_truncated_or_the_entry_it_is_told_to():
    usual = CountingEnv(1000).append_transform(StepCounter(max_steps=100)).rollout(1000)
    told = CountingEnv(1000).append_transform(StepCounter(max_steps=100, truncated_key="done")).rollout(1000)

    assert usual.shape == told.shape == (100,)
    assert usual["next", "truncated"][-1].item()
    assert not usual["next", "terminated"].any()
    assert told["next", "done"][-1].item()
    assert not told["next", "terminated"].any()


def test_the_first_step_of_a_trajectory_can_be_marked():
    data = CountingEnv(3).append_transform(InitTracker()).rollout(6, break_when_any_done=False)

    assert data["is_init"].squeeze(-1).tolist() == [True, False, False] * 2


# -- batches --------------------------------------------------------------------------------------------------------


@KINDS
def test_a_batch_has_the_size_of_its_count_and_the_attributes_of_its_environments(kind):
    check_env_specs(PulledEnv())
    with closing(kind(4, PulledEnv)) as env:
        assert env.batch_size == torch.Size([4])
        a, b, c, d = env.g

        assert [a, b, c, d] == [9.81] * 4


@KINDS
def test_some_environments_of_a_batch_are_reset(kind):
    with closing(kind(4, PulledEnv)) as env:
        td = env.rollout(2, break_when_any_done=False)[:, -1]["next"].exclude("reward")
        td["_reset"] = torch.tensor([[True], [False], [True], [True]])

        td = env.reset(td)

        assert "_reset" not in td.keys()
        assert td["observation"].squeeze(-1).tolist() == [0, 2, 0, 0]
        assert td["done"].shape == td["terminated"].shape == (4, 1)


@KINDS
def test_a_mask_alone_is_enough_to_reset_some(kind):
    with closing(kind(4, PulledEnv)) as env:
        env.reset()
        td = env.reset(TensorDict({"_reset": torch.tensor([[True], [False], [True], [True]])}, [4]))

        assert set(td.keys()) == {"observation", "done", "terminated", "truncated"}
        assert td.batch_size == (4,)


@KINDS
def test_only_the_chosen_environments_of_a_batch_are_stepped(kind):
    with closing(kind(3, PulledEnv)) as env:
        td = env.rand_action(env.reset())
        td["_step"] = torch.tensor([True, False, True])
        td = env.step_mdp(env.step(td))
        assert td["observation"].squeeze(-1).tolist() == [1, 0, 1]

        # The one that was left out has not moved, whatever its data says.
        assert env.step_mdp(env.rand_step(td))["observation"].squeeze(-1).tolist() == [2, 1, 2]


# -- partial steps and resets ---------------------------------------------------------------------------------------


def test_batch_locked_environments_take_their_own_size_and_others_any():
    with pytest.raises(SpecError, match="batch size"):
        CountingEnv(batch_size=(2,)).reset(TensorDict({}, [3]))
    assert CountingEnv().batch_locked
    assert not StatelessCountingEnv().batch_locked
    for size in ((), (3,), (2, 5)):
        assert StatelessCountingEnv().reset(TensorDict({}, size)).batch_size == size


def test_rows_left_out_of_a_step_keep_what_is_known_and_are_zero_otherwise():
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
    assert env.step(unknown)["next", "done"].squeeze(-1).tolist() == [False, True, False]


def test_a_step_that_a_transform_skips_runs_neither_the_environment_nor_other_transforms():
    env = TransformedEnv(CountingEnv(10), Compose(StepCounter(), ConditionalSkip(lambda td: td["step_count"] >= 2)))

    data = env.rollout(4)

    assert data["next", "observation"].squeeze(-1).tolist() == [1, 2, 2, 2]
    assert data["next", "step_count"].squeeze(-1).tolist() == [1, 2, 2, 2]


def test_rows_that_have_ended_are_left_out_until_all_have():
    class Staggered(CountingEnv):
        def __init__(self):
            super().__init__(batch_size=(3,))

        def _step(self, tensordict):
            data = super()._step(tensordict)
            return data.set("terminated", data["observation"] >= torch.tensor([[2], [4], [3]])).exclude("done")

    data = Staggered().rollout(10, break_when_all_done=True)

    assert data.shape == (3, 4)
    assert data["next", "observation"].squeeze(-1).tolist() == [[1, 2, 2, 2], [1, 2, 3, 4], [1, 2, 3, 3]]


def test_a_mask_at_a_level_that_has_no_done_entry_is_not_allowed():
    env = CountingEnv()
    td = env.reset()
    td["nested"] = TensorDict({"_reset": torch.tensor([True])}, [])

    with pytest.raises(SpecError, match="'nested', '_reset'"):
        env.reset(td)
    grouped = NestedCountingEnv()
    with pytest.raises(SpecError, match="takes masks at"):
        grouped.reset(TensorDict({"other": TensorDict({"_reset": torch.tensor([True])}, [])}, grouped.batch_size))


def test_what_a_reset_changes_beside_its_rows_is_lost():
    class Padding(CountingEnv):
        def _reset(self, tensordict=None, **kwargs):
            return super()._reset(tensordict, **kwargs).apply_(lambda value: value.fill_(0))

    env = Padding(batch_size=(2,))
    td = env.step_mdp(env.rand_step(env.reset()))
    td["_reset"] = torch.tensor([[True], [False]])

    assert env.reset(td)["observation"].squeeze(-1).tolist() == [0, 1]


# -- transforms -----------------------------------------------------------------------------------------------------


def test_the_parent_of_the_last_transform_is_the_environment_with_the_others():
    base_env = CountingEnv(dtype=torch.float64)
    env = TransformedEnv(base_env, Compose(StepCounter(), DoubleToFloat()))

    parent = env.transform[-1].parent

    assert parent.base_env is base_env
    assert [type(part) for part in parent.transform] == [StepCounter]
    assert parent.specs == TransformedEnv(base_env, env.transform[:-1]).specs


def test_a_transformed_environment_is_where_its_base_is():
    env = TransformedEnv(CountingEnv(device="cpu"), StepCounter())

    assert env.device == torch.device("cpu")
    assert env.rollout(2).device == torch.device("cpu")


def test_an_inverse_changes_the_action_on_its_way_in():
    class Doubles(CountingEnv):
        seen = None

        def __init__(self):
            super().__init__()
            self.action_spec = Unbounded((1,), dtype=torch.float64)

        def _step(self, tensordict):
            self.__dict__["seen"] = tensordict["action"].dtype
            return super()._step(tensordict)

    base = Doubles()
    env = TransformedEnv(base, Compose())
    env.append_transform(DoubleToFloat(in_keys_inv=["action"]))

    assert env.action_spec.dtype is torch.float32
    env.rand_step(env.reset())
    assert base.seen is torch.float64


def test_a_transform_of_one_environment_is_cloned_for_another():
    base_env = CountingEnv()
    env = TransformedEnv(base_env, Compose(StepCounter(), InitTracker(), DoubleToFloat()))

    third_transform = env.transform[2]

    assert third_transform.parent is not None
    with pytest.raises(StateError):
        TransformedEnv(base_env, third_transform)
    assert third_transform.clone().parent is None
    TransformedEnv(base_env, third_transform.clone())


def test_a_slice_of_a_chain_is_a_chain_of_clones_without_a_parent():
    transform1, transform2, transform3 = StepCounter(), InitTracker(), DoubleToFloat()
    env = TransformedEnv(CountingEnv(), Compose(transform1, transform2, transform3))

    last_two = env.transform[-2:]

    assert isinstance(last_two, Compose)
    assert last_two.parent is None
    assert last_two[0] is not transform2
    assert isinstance(last_two[0], type(transform2))
    assert last_two[1] is not transform3
    assert isinstance(last_two[1], type(transform3))


# -- sizes that vary ------------------------------------------------------------------------------------------------


def test_a_rollout_of_sizes_that_vary_is_a_lazy_stack():
    env = DynamicSpecEnv()
    data = env.rollout(5, return_contiguous=False)

    assert isinstance(data, LazyStackedTensorDict)
    assert data.stack_dim == 0
    assert isinstance(data["next"], LazyStackedTensorDict)
    assert -1 in env.observation_spec["observation"].shape


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
