"""Transforms of single entries of any kind."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from steppe import Bounded, Composite, SerialEnv, TransformedEnv, Unbounded, check_env_specs
from steppe.errors import SpecError
from steppe.specs import mapped_bounds
from steppe.transforms import Compose, EntryTransform
from steppe_testing import ArrayDataEnv, DataEnv, MultiAgentCountingEnv, assert_equal_data

OBSERVATION = {"observation": Bounded(-1.0, 1.0, (2,))}


class Doubled(EntryTransform):
    def _apply_transform(self, value: Any) -> Any:
        return value * 2

    def _inv_apply_transform(self, value: Any) -> Any:
        return value / 2

    def transform_leaf(self, leaf: Any, batch_dims: int) -> Any:
        return mapped_bounds(leaf, self._apply_transform)

    def shared_key(self) -> Any:
        return (type(self), self.given_keys())


class DoubledRewards(Doubled):
    of_rewards = True


@pytest.mark.parametrize("base", [ArrayDataEnv, DataEnv])
def test_entries_are_mapped_together_with_their_specs(base):
    """Observations, rewards, and actions are mapped, and so are their specs."""
    transform = Doubled(["observation", "reward"], ["twice", "reward"], ["action"], ["big_action"])
    env = TransformedEnv(base(OBSERVATION, reward=Bounded(0.0, 1.0, (1,))), transform)
    check_env_specs(env)
    env.set_seed(0)

    data = env.rollout(4)

    assert torch.equal(data["twice"], 2 * data["observation"])
    assert torch.equal(data["next", "twice"], 2 * data["next", "observation"])
    assert data["big_action"].abs().max() > 1
    assert env.observation_spec["twice"] == Bounded(-2.0, 2.0, (2,))
    assert env.reward_spec == Bounded(0.0, 2.0, (1,))
    assert env.full_action_spec["big_action"] == Bounded(-2.0, 2.0, (2,))
    assert "action" not in env.full_action_spec.keys()


def test_default_rewards_are_found_for_each_environment():
    transform = DoubledRewards()
    assert transform(TensorDict({"reward": torch.ones(1)}))["reward"].item() == 2

    grouped = TransformedEnv(MultiAgentCountingEnv(action="continuous"), transform)
    check_env_specs(grouped)
    assert transform.in_keys == transform.out_keys == [("agents", "reward")]

    two = Composite({"gain": Unbounded((1,)), "cost": Unbounded((1,))})
    other = TransformedEnv(DataEnv(OBSERVATION, reward=two), transform.clone())
    check_env_specs(other)
    assert sorted(other.transform.in_keys) == ["cost", "gain"]


def test_a_transform_before_it_may_have_made_the_reward():
    env = TransformedEnv(DataEnv(OBSERVATION), Compose(Doubled(["reward"], ["bonus"]), DoubledRewards()))
    check_env_specs(env)

    data = env.rollout(3)["next"]

    assert torch.equal(data["bonus"], 2 * data["reward"])


def test_a_missing_entry_is_an_error_with_the_existing_keys():
    with pytest.raises(SpecError, match=r"Doubled: the environment has no entry 'pixels'. It has \['observation'"):
        TransformedEnv(DataEnv(OBSERVATION), Doubled(["pixels"])).reset()
    with pytest.raises(SpecError, match=r"has no entry 'motion'. It has \['action'"):
        TransformedEnv(DataEnv(OBSERVATION), Doubled(in_keys_inv=["motion"])).reset()
    with pytest.raises(SpecError, match=r"'agents' is a group of entries\. .*\('agents', 'observation'\)"):
        TransformedEnv(MultiAgentCountingEnv(), Doubled(["agents"])).reset()


def test_missing_entries_can_be_passed_over():
    transform = Doubled(["pixels"])
    transform.set_missing_tolerance(True)

    check_env_specs(TransformedEnv(DataEnv(OBSERVATION), transform))


def test_a_transform_that_writes_done_may_end_an_episode():
    assert Doubled(["done"]).writes_done
    assert Doubled(["observation"], ["truncated"]).writes_done
    assert not Doubled(["done"], ["has_ended"]).writes_done
    assert not DoubledRewards().writes_done


class Thirds(Doubled):
    """With a kernel, of an entry that keeps its memory."""

    def _apply_transform(self, value: Any) -> Any:
        return value / 3

    def row_kernel(self, source: Any, target: Any) -> Any:
        return partial(np.divide, source, 3, out=target)


@pytest.mark.parametrize("keys", [(["observation"], None), (["observation", "reward"], ["third", "reward"])])
def test_a_kernel_does_the_same_on_rows(keys):
    def rollout(base, batch, around=False):
        def inside():
            env = base(OBSERVATION)
            return env if around else TransformedEnv(env, Thirds(*keys))

        env = SerialEnv(batch, inside) if batch else inside()
        env = TransformedEnv(env, Thirds(*keys)) if around else env
        env.set_seed(0)
        data = env.rollout(12, break_when_any_done=False)
        td = env.reset()
        if batch:
            td["_step"] = torch.tensor([True, False])
        return data, env.step(env.rand_action(td))

    for batch, around in ((0, False), (2, False), (2, True)):
        for found, expected in zip(rollout(ArrayDataEnv, batch, around), rollout(DataEnv, batch, around), strict=True):
            assert_equal_data(found, expected)


def test_an_overridden_apply_transform_replaces_the_kernel():
    """If a subclass overrides _apply_transform, its parent's kernel is not used."""

    class Halves(Thirds):
        def _apply_transform(self, value: Any) -> Any:
            return value / 2

    rows, tensordicts = (
        TransformedEnv(base(OBSERVATION), Halves(["observation"], ["half"])) for base in (ArrayDataEnv, DataEnv)
    )
    for env in (rows, tensordicts):
        env.set_seed(0)

    assert rows.no_row_writer_reason is None
    assert torch.equal(rows.rollout(3)["half"], tensordicts.rollout(3)["half"])


def test_without_a_kernel_for_an_array_torch_does_it_on_rows():
    class ForDoubles(Thirds):
        def row_kernel(self, source: Any, target: Any) -> Any:
            return None

    env = TransformedEnv(ArrayDataEnv(OBSERVATION), ForDoubles(["observation"], ["third"]))

    data = env.rollout(7, break_when_any_done=False)

    assert env.no_row_writer_reason is None
    assert torch.equal(data["third"], data["observation"] / 3)


class WithoutKernel(Doubled):
    """Without a ``shared_key``, the entry of one environment has no leading rows."""

    keeps_nothing = True

    def shared_key(self) -> Any:
        return None

    def row_kernel(self, source: Any, target: Any) -> Any:
        return None


@pytest.mark.parametrize("shape", [(), (2,)], ids=str)
def test_an_entry_may_be_a_single_number(shape):
    spec = {"observation": Bounded(-1.0, 1.0, shape)}
    on_rows, on_tensordicts = (
        TransformedEnv(base(spec), WithoutKernel(["observation"])) for base in (ArrayDataEnv, DataEnv)
    )
    actions = on_rows.full_action_spec.rand((3,))
    found = on_rows.rollout(3, actions=actions)

    assert found["observation"].shape == (3, *shape)
    assert_equal_data(found, on_tensordicts.rollout(3, actions=actions))
