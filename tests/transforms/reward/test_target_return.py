"""The return that is still to be reached."""

from __future__ import annotations

import pytest
import torch

from steppe import ParallelEnv, SerialEnv, TransformedEnv, Unbounded, check_env_specs
from steppe.errors import SpecError
from steppe.specs import Composite
from steppe_reward import TargetReturn
from steppe_testing import ArrayCountingEnv, ArrayDataEnv, CountingEnv, DataEnv, MultiAgentCountingEnv

OBSERVATION = {"observation": Unbounded((2,))}
BASES = [ArrayDataEnv, DataEnv]


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rewards_reduce_the_target_until_a_reset(base, dtype):
    env = TransformedEnv(base(OBSERVATION, reward=Unbounded((2,), dtype=dtype)), TargetReturn(10.0))
    check_env_specs(env)

    data = env.rollout(12, break_when_any_done=False)

    expected = torch.full((2,), 10.0, dtype=dtype)
    for t in range(12):
        assert torch.equal(data["target_return"][t], expected)
        expected = expected - data["next", "reward"][t]
        assert torch.equal(data["next", "target_return"][t], expected)
        if data["next", "done"][t]:
            expected = torch.full((2,), 10.0, dtype=dtype)
    assert data["next", "done"].sum() == 2


@pytest.mark.parametrize("base", BASES)
def test_a_constant_target_never_changes(base):
    env = TransformedEnv(base(OBSERVATION), TargetReturn(3.0, mode="constant"))

    data = env.rollout(8, break_when_any_done=False)

    assert (data["target_return"] == 3).all()
    assert (data["next", "target_return"] == 3).all()


@pytest.mark.parametrize("batch", [SerialEnv, ParallelEnv])
@pytest.mark.parametrize("inside", [True, False])
def test_in_a_batch_each_row_has_its_own_target(batch, inside):
    def rows():
        return [lambda n=n: ArrayCountingEnv(n) for n in (3, 5)]

    if inside:
        env = batch(2, [lambda make=make: TransformedEnv(make(), TargetReturn(10.0)) for make in rows()])
    else:
        env = TransformedEnv(batch(2, rows()), TargetReturn(10.0))

    data = env.rollout(7, break_when_any_done=False)
    env.close()

    for row, length in enumerate((3, 5)):
        expected = 10.0
        for t in range(7):
            expected = 10.0 if t % length == 0 else expected
            assert data["target_return"][row, t].item() == expected
            expected -= data["next", "reward"][row, t].item()
            assert data["next", "target_return"][row, t].item() == expected


def test_agents_of_a_group_have_a_target_each():
    env = TransformedEnv(MultiAgentCountingEnv(2, action="continuous"), TargetReturn(4.0))
    check_env_specs(env)

    data = env.rollout(2)

    first = data[0]
    assert env.transform.out_keys == [("agents", "target_return")]
    assert first["agents", "target_return"].flatten().tolist() == [4.0] * 3
    assert torch.equal(first["next", "agents", "target_return"], 4.0 - first["next", "agents", "reward"])


def test_a_mask_can_be_named_that_decides_for_all_targets():
    env = TransformedEnv(
        MultiAgentCountingEnv(2, action="continuous"), TargetReturn(4.0, reset_key=("agents", "_reset"))
    )
    td = env.reset()
    td["agents", "target_return"] = torch.tensor([[1.0], [2.0], [3.0]])

    td["agents", "_reset"] = torch.tensor([[True], [False], [False]])

    assert env.reset(td)["agents", "target_return"].flatten().tolist() == [4.0, 2.0, 3.0]


def test_two_rewards_at_one_level_need_names_for_their_targets():
    rewards = Composite({"reward": Unbounded((1,)), "bonus": Unbounded((1,))})

    with pytest.raises(SpecError, match=r"would share a key.*Give out_keys"):
        TransformedEnv(DataEnv(OBSERVATION, reward=rewards), TargetReturn(1.0)).reset()
    env = TransformedEnv(DataEnv(OBSERVATION, reward=rewards), TargetReturn(1.0, out_keys=["a", "b"]))
    check_env_specs(env)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"target_return": 1.0, "mode": "grow"}, "mode must be 'reduce' or 'constant', found 'grow'"),
        ({"target_return": "much"}, "target_return must be a number, found 'much'"),
    ],
)
def test_invalid_arguments_are_refused(arguments, said):
    with pytest.raises(SpecError, match=said):
        TargetReturn(**arguments)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"in_keys": ["observation"]}, r"no reward 'observation'.*\['reward'\]"),
        ({"reset_key": "_begin"}, r"no reset mask '_begin'.*\['_reset'\]"),
    ],
)
def test_keys_of_another_environment_are_refused(arguments, said):
    with pytest.raises(SpecError, match=said):
        TransformedEnv(DataEnv(OBSERVATION), TargetReturn(1.0, **arguments)).reset()


def test_a_root_without_the_target_says_what_to_step():
    env = TransformedEnv(CountingEnv(), TargetReturn(1.0))
    td = env.rand_action(env.reset())

    with pytest.raises(KeyError, match=r"target_return.*Step what reset"):
        env.step(td.exclude("target_return"))


def test_a_target_return_needs_steps():
    with pytest.raises(SpecError, match=r"keeps values from step to step.*append it to the environment"):
        TargetReturn(1.0)(DataEnv(OBSERVATION).reset())
