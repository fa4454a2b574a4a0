"""UnaryTransform: functions of entries."""

from __future__ import annotations

import pytest
import torch

from steppe.errors import SpecError
from steppe.specs import Binary, Composite, NonTensor, Unbounded
from steppe.transforms import Compose, TransformedEnv, UnaryTransform
from steppe_testing import ArrayCountingEnv, CountingEnv, NestedCountingEnv, TextCountingEnv

BASES = pytest.mark.parametrize("make", [CountingEnv, ArrayCountingEnv])


@BASES
def test_the_spec_is_found_by_running_the_function(make):
    env = TransformedEnv(
        make(3), UnaryTransform(["observation"], ["wide"], fn=lambda x: torch.cat([x, -x], -1).double())
    )

    leaf = env.observation_spec["wide"]
    assert isinstance(leaf, Unbounded)
    assert (leaf.shape, leaf.dtype) == ((2,), torch.float64)
    env.check_env_specs()
    assert env.rollout(3)["wide"].tolist() == [[0, -0.0], [1, -1], [2, -2]]


def test_a_batch_is_given_whole():
    env = TransformedEnv(
        CountingEnv(3, batch_size=(4,)), UnaryTransform(["observation"], fn=lambda x: x.expand(4, 2).clone())
    )

    assert env.observation_spec["observation"].shape == (4, 2)
    env.check_env_specs()


def test_truth_values_are_binary():
    env = TransformedEnv(CountingEnv(3), UnaryTransform(["observation"], ["late"], fn=lambda x: x > 1))

    assert isinstance(env.observation_spec["late"], Binary)
    assert env.rollout(3)["next", "late"].squeeze(-1).tolist() == [False, True, True]


def test_rewards_stay_rewards():
    env = TransformedEnv(
        NestedCountingEnv(3, root_done="any"), UnaryTransform([("agents", "reward")], fn=lambda x: x - 1)
    )

    assert env.reward_keys == [("agents", "reward")]
    env.check_env_specs()
    assert "reward" not in env.reset()["agents"].keys()


def test_text_converts_to_tensors_and_back():
    env = TransformedEnv(
        TextCountingEnv(3),
        Compose(
            UnaryTransform(["text"], ["number"], fn=lambda text: torch.tensor([float(text)])),
            UnaryTransform(["observation"], ["said"], fn=lambda x: f"{x.item():.0f}!"),
        ),
    )

    assert isinstance(env.observation_spec["said"], NonTensor)
    data = env.rollout(3)
    assert data["number"].squeeze(-1).tolist() == [0, 1, 2]
    assert [data[i]["next", "said"] for i in range(3)] == ["1!", "2!", "3!"]


def test_the_inverse_runs_on_what_the_caller_gives():
    env = TransformedEnv(
        CountingEnv(3, action="continuous"),
        UnaryTransform([], in_keys_inv=["action"], out_keys_inv=["angle"], fn=torch.atan, inv_fn=torch.tan),
    )

    assert env.action_keys == ["angle"]
    td = env.reset().set("angle", torch.tensor([0.5, 0.0]))
    assert torch.allclose(env.step(td)["next", "reward"], torch.tan(torch.tensor(0.5)))
    env.check_env_specs()


def test_a_done_entry_of_a_function_ends_episodes():
    env = TransformedEnv(
        CountingEnv(9),
        Compose(
            UnaryTransform(["observation"], ["late"], fn=lambda x: x >= 2),
            lambda td: td.set("terminated", td["late"]).set("done", td["late"]),
        ),
    )

    assert env.rollout(5)["observation"].squeeze(-1).tolist() == [0, 1]


def test_keys_need_their_function():
    with pytest.raises(SpecError, match="in_keys need fn, and in_keys_inv need inv_fn"):
        UnaryTransform(["observation"])
    with pytest.raises(KeyError, match="has no entry 'observatoin'"):
        TransformedEnv(CountingEnv(), UnaryTransform(["observatoin"], fn=abs)).reset()


@pytest.mark.parametrize("batch_size", [(), (3,)])
def test_the_spec_is_found_without_an_environment(batch_size):
    transform = UnaryTransform(["observation"], ["twice"], fn=lambda x: 2 * x)

    spec = transform.transform_observation_spec(Composite(observation=Unbounded((*batch_size, 2)), shape=batch_size))

    assert spec["twice"].shape == (*batch_size, 2)
