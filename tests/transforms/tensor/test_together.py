"""Entries that are put one behind the other, stacked, or repeated."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from steppe import Bounded, SerialEnv, TransformedEnv, Unbounded, check_env_specs
from steppe.envs import EnvBase
from steppe.errors import SpecError
from steppe.specs import Binary, Categorical, Composite
from steppe.transforms import Compose, RewardSum, StepCounter
from steppe_tensor import CatTensors, ExpandAs, Stack
from steppe_testing import ArrayDataEnv, DataEnv, MultiAgentCountingEnv

BASES = [ArrayDataEnv, DataEnv]
LEADS = ((), (2,), (2, 3))
VECTORS = {"b": Bounded(-1.0, 1.0, (2,)), "a": Unbounded((3,)), "pixels": Unbounded((2, 2))}


@pytest.mark.parametrize("lead", LEADS)
def test_entries_are_joined_in_alphabetical_order_or_as_given(lead):
    data = TensorDict({"b": torch.randn(*lead, 2), "a": torch.randn(*lead, 3, dtype=torch.float64)}, lead)

    by_name = CatTensors(["b", "a"])(data.clone())
    as_given = CatTensors(["b", "a"], "both", sort=False, del_keys=False)(data.clone())

    assert torch.equal(by_name["observation_vector"], torch.cat([data["a"], data["b"].double()], -1))
    assert torch.equal(as_given["both"], torch.cat([data["b"].double(), data["a"]], -1))
    assert set(by_name.keys()) == {"observation_vector"}
    assert set(as_given.keys()) == {"a", "b", "both"}


@pytest.mark.parametrize("lead", LEADS)
def test_a_dimension_that_is_missing_is_added(lead):
    data = TensorDict({"a": torch.zeros(*lead, 1), "b": torch.ones(*lead, 1)}, lead)

    found = CatTensors(["a", "b"], dim=-2, unsqueeze_if_oor=True)(data)

    assert found["observation_vector"].shape == (*lead, 2, 1)


@pytest.mark.parametrize("base", BASES)
def test_without_keys_all_vectors_but_states_are_joined(base):
    env = TransformedEnv(base(VECTORS), Compose(StepCounter(), CatTensors()))
    check_env_specs(env)
    env.set_seed(0)
    plain = base(VECTORS)
    plain.set_seed(0)

    data, expected = env.rollout(5), plain.rollout(5)

    assert env.transform[1].in_keys == ["a", "b"]
    assert torch.equal(data["observation_vector"], torch.cat([expected["a"], expected["b"]], -1))
    assert sorted(env.observation_spec.keys()) == ["observation_vector", "pixels", "step_count"]
    leaf = env.observation_spec["observation_vector"]
    assert leaf.low.tolist() == [-torch.inf] * 3 + [-1.0] * 2


def test_the_spec_fits_all_dtypes_and_domains():
    def spec(*leaves):
        names = [f"x{i}" for i in range(len(leaves))]
        env = TransformedEnv(DataEnv(dict(zip(names, leaves, strict=True))), CatTensors(names, "all"))
        check_env_specs(env)
        return env.observation_spec["all"]

    assert spec(Unbounded((1,)), Unbounded((2,), dtype=torch.float64)) == Unbounded((3,), dtype=torch.float64)
    assert spec(Binary(shape=(1,)), Binary(shape=(2,))) == Binary(shape=(3,))
    mixed = spec(Categorical(4, shape=(1,)), Bounded(-2, 2, (1,)))
    assert (mixed.low.tolist(), mixed.high.tolist(), mixed.dtype) == ([0, -2], [3, 2], torch.float32)


def test_entries_below_groups_leave_other_entries_alone():
    observed = {("robot", "position"): Unbounded((2,)), ("robot", "name"): Unbounded((1,)), "speed": Unbounded((2,))}
    env = TransformedEnv(DataEnv(observed), CatTensors([("robot", "position"), "speed"], ("robot", "state")))
    check_env_specs(env)

    data = env.rollout(3)

    assert data["robot", "state"].shape == (3, 4)
    assert set(data["robot"].keys()) == {"state", "name"}


def test_states_stay_for_the_next_step():
    env = TransformedEnv(ArrayDataEnv(VECTORS), Compose(RewardSum(), CatTensors(["a", "episode_reward"])))
    check_env_specs(env)

    data = env.rollout(3)

    assert torch.equal(data["observation_vector"][:, 3:], data["episode_reward"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"in_keys": ["a", "pixels"]}, r"shapes \[\(3,\), \(2, 2\)\] cannot be concatenated along dim=-1"),
        ({"in_keys": ["a", "speed"]}, r"no observation 'speed'. It has"),
        ({"in_keys": ["a", "reward"]}, r"no observation 'reward'"),
        ({"in_keys": ["a"], "dim": -2}, "cannot be concatenated along dim=-2"),
    ],
)
def test_entries_that_do_not_fit_are_refused(arguments, said):
    with pytest.raises(SpecError, match=said):
        TransformedEnv(DataEnv(VECTORS), CatTensors(**arguments)).reset()


def test_invalid_arguments_are_refused():
    with pytest.raises(SpecError, match="dim must be -1; found -2"):
        CatTensors(dim=-2)
    with pytest.raises(SpecError, match="out_key must be a name"):
        CatTensors(["a"], out_key=["b"])
    with pytest.raises(SpecError, match="pass in_keys for data"):
        CatTensors()(TensorDict({"a": torch.zeros(1)}))
    with pytest.raises(SpecError, match="no vector to read"):
        TransformedEnv(DataEnv({"pixels": Unbounded((2, 2))}), CatTensors()).reset()


# -- stacks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [-1, -2, -3])
@pytest.mark.parametrize("lead", LEADS)
def test_entries_are_stacked_along_a_new_dimension(lead, dim):
    data = TensorDict({"a": torch.randn(*lead, 2, 3), "b": torch.randn(*lead, 2, 3)}, lead)

    stack = Stack(["a", "b"], "both", "both", ["a", "b"], dim=dim)
    found = stack(data.clone())

    assert torch.equal(found["both"], torch.stack([data["a"], data["b"]], dim))
    assert set(found.keys()) == {"both"}
    back = stack.inv(found)
    assert torch.equal(back["a"], data["a"])
    assert torch.equal(back["b"], data["b"])


@pytest.mark.parametrize("base", BASES)
def test_bounds_and_rewards_are_stacked(base):
    rewards = Composite({"gain": Bounded(0.0, 1.0, (1,)), "cost": Bounded(-1.0, 0.0, (1,))})
    observed = {"a": Bounded(-1.0, 1.0, (2,)), "b": Bounded(0.0, 5.0, (2,))}
    env = TransformedEnv(
        base(observed, reward=rewards), Compose(Stack(["a", "b"], "both", dim=-2), Stack(["gain", "cost"], "reward"))
    )
    check_env_specs(env)

    leaf = env.observation_spec["both"]

    assert leaf.high.tolist() == [[1, 1], [5, 5]]
    assert env.reward_spec.low.tolist() == [[0, -1]]
    assert env.rollout(3)["next", "reward"].shape == (3, 1, 2)


class Apart(EnvBase):
    """Two agents with separate keys that end together."""

    def __init__(self):
        super().__init__()
        self.seen = []
        agents = ("agent_0", "agent_1")
        self.observation_spec = Composite({name: Composite({"observation": Unbounded((3,))}) for name in agents})
        self.action_spec = Composite({name: Composite({"action": Bounded(-1, 1, (2,))}) for name in agents})
        self.reward_spec = Composite({name: Composite({"reward": Unbounded((1,))}) for name in agents})
        self.count = 0

    def _data(self):
        return TensorDict({f"agent_{i}": {"observation": torch.full((3,), self.count + 10.0 * i)} for i in range(2)})

    def _reset(self, tensordict):
        self.count = 0
        return self._data()

    def _step(self, tensordict):
        self.count += 1
        data = self._data()
        for name in ("agent_0", "agent_1"):
            data[name, "reward"] = tensordict[name, "action"].sum(-1, keepdim=True)
        return data.set("terminated", torch.tensor([self.count >= 3]))

    def _set_seed(self, seed):
        pass


def agents():
    return Stack(["agent_0", "agent_1"], "agents", "agents", ["agent_0", "agent_1"])


@pytest.mark.parametrize("batch", [False, True])
def test_agents_with_separate_keys_become_a_group(batch):
    env = TransformedEnv(SerialEnv(2, Apart), agents()) if batch else TransformedEnv(Apart(), agents())
    check_env_specs(env)

    data = env.rollout(3)

    assert env.full_action_spec["agents", "action"].shape == (*env.batch_size, 2, 2)
    assert data["agents", "observation"].shape == (*env.batch_size, 3, 2, 3)
    assert data["agents", "observation"].reshape(-1, 2, 3)[0, :, 0].tolist() == [0.0, 10.0]
    expected = data["agents", "action"].sum(-1, keepdim=True)
    assert torch.allclose(data["next", "agents", "reward"], expected)
    assert env.reward_keys == [("agents", "reward")]
    env.close()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"in_keys": ["a"], "out_key": "a"}, "out_key='a' is one of in_keys"),
        ({"in_keys": ["a"], "out_key": "x", "dim": 0}, "dim=0 is not negative"),
        ({"in_keys": ["a"], "out_key": "x", "in_key_inv": "x"}, "together, found 'x' and None"),
        ({"in_keys": [], "out_key": "x"}, "in_keys is empty"),
    ],
)
def test_invalid_stacks_are_refused(arguments, said):
    with pytest.raises(SpecError, match=said):
        Stack(**arguments)


@pytest.mark.parametrize(
    ("stack", "said"),
    [
        (Stack(["a", "b"], "x"), r"have the shapes \[\(3,\), \(2,\)\]"),
        (Stack(["a", "speed"], "x"), r"lacks 'speed', but has \['a'\]"),
        (Stack(["speed", "time"], "x"), r"the environment has none of \['speed', 'time'\]"),
        (Stack(["a", "a"], "x", dim=-4), "dim=-4 is out of range"),
    ],
)
def test_entries_that_cannot_be_stacked_are_refused(stack, said):
    with pytest.raises(SpecError, match=said):
        TransformedEnv(DataEnv(VECTORS), stack).reset()


# -- repeated entries -------------------------------------------------------------------------------------------------


def test_the_end_of_all_is_repeated_for_each_agent():
    base = MultiAgentCountingEnv(2, group_done=False, action="continuous")
    env = TransformedEnv(base, ExpandAs("done", ("agents", "reward"), ("agents", "over")))
    check_env_specs(env)

    data = env.rollout(3)

    assert data["next", "agents", "over"].shape == (3, 3, 1)
    assert torch.equal(data["next", "agents", "over"], data["next", "done"].unsqueeze(-1).expand(3, 3, 1))
    assert env.observation_spec["agents", "over"].dtype is torch.bool


def test_a_done_entry_keeps_the_shape_of_its_level():
    base = MultiAgentCountingEnv(2, group_done=False, action="continuous")

    with pytest.raises(SpecError, match=r"have the same shape\. .* out_key=\('agents', 'each_done'\)"):
        TransformedEnv(base, ExpandAs("done", ("agents", "reward"))).reset()


@pytest.mark.parametrize("lead", LEADS)
def test_entries_of_data_are_repeated_to_the_right(lead):
    data = TensorDict({"a": torch.randn(*lead, 2), "b": torch.zeros(*lead, 2, 3, 4)}, lead)

    found = ExpandAs("a", "b", "wide")(data)["wide"]

    assert torch.equal(found, data["a"][..., None, None].expand(*lead, 2, 3, 4))
    found[..., 0, 0, 0] = 7
    assert not (found[..., 0, 1, 1] == 7).any()


def test_unreachable_shapes_are_refused():
    env = TransformedEnv(DataEnv({"a": Unbounded((2,)), "b": Unbounded((3, 4))}), ExpandAs("a", "b"))

    with pytest.raises(SpecError, match=r"'a' of shape \(2, 1\) cannot be expanded.*\(3, 4\) of 'b'"):
        env.reset()
    with pytest.raises(SpecError, match="has no entry 'c'"):
        TransformedEnv(DataEnv({"a": Unbounded((2,))}), ExpandAs("a", "c")).reset()
    with pytest.raises(KeyError, match="no entry 'c'"):
        ExpandAs("a", "c")(TensorDict({"a": torch.zeros(1)}))


@pytest.mark.parametrize("base", [ArrayDataEnv, DataEnv])
def test_groups_whose_entries_are_put_together_are_gone(base):
    number = Bounded(0.0, 1.0, (2,))
    specs = {("group", "a"): number, ("group", "b"): number.clone()}
    env = TransformedEnv(base(specs), CatTensors([("group", "a"), ("group", "b")], "vector"))
    data = env.rollout(12, break_when_any_done=False)

    assert isinstance(data, TensorDict)
    for found in (env.observation_spec, env.reset(), data, data["next"]):
        assert "group" not in found.keys()
