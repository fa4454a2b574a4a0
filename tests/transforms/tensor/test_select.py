"""ExcludeTransform, SelectTransform, RenameTransform, RemoveEmptySpecs."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from steppe import SerialEnv
from steppe.errors import SpecError
from steppe.specs import Binary, Bounded, Categorical, Composite, Unbounded
from steppe.transforms import (
    Compose,
    ExcludeTransform,
    InitTracker,
    RemoveEmptySpecs,
    RenameTransform,
    RewardSum,
    SelectTransform,
    StepCounter,
    TransformedEnv,
)
from steppe_testing import (
    ArrayCountingEnv,
    ArrayDataEnv,
    CountingEnv,
    DataEnv,
    NestedCountingEnv,
    StatelessCountingEnv,
)

DONE = ["done", "terminated", "truncated"]


def keys(data):
    return sorted(data.keys(True, True), key=str)


@pytest.mark.parametrize("make", [lambda: ArrayCountingEnv(3, info=True), lambda: CountingEnv(3, noise=True)])
def test_entries_are_left_out(make):
    env = TransformedEnv(make(), ExcludeTransform("observation"))
    assert "observation" not in env.observation_keys

    env.check_env_specs()
    data = env.rollout(4, break_when_any_done=False)
    assert "observation" not in data.keys()
    assert "observation" not in data["next"].keys()


def test_nested_entries_are_left_out():
    env = TransformedEnv(
        NestedCountingEnv(3, root_done="any", group_done=False), ExcludeTransform(("agents", "observation"))
    )

    env.check_env_specs()
    data = env.rollout(3)
    assert ("agents", "observation") not in data.keys(True)
    assert ("next", "agents", "reward") in data.keys(True)


def test_excluding_an_entry_that_a_step_reads_is_refused():
    with pytest.raises(SpecError, match="'step_count' is a state, which each step reads from the data"):
        TransformedEnv(CountingEnv(), Compose(StepCounter(), ExcludeTransform("step_count"))).reset()
    with pytest.raises(SpecError, match=r"ExcludeTransform\(\*\['a', 'b'\]\)"):
        ExcludeTransform(["a", "b"])


def test_without_keys_nothing_is_left_out():
    env = TransformedEnv(CountingEnv(3), ExcludeTransform())

    assert set(env.reset().keys()) == set(CountingEnv(3).reset().keys())
    env.check_env_specs()


def test_excluded_entries_do_not_reach_the_environment():
    given = []

    class Nosy(CountingEnv):
        def _step(self, tensordict):
            given.append(sorted(tensordict.keys()))
            return super()._step(tensordict)

    env = TransformedEnv(Nosy(3), ExcludeTransform("secret", inverse=True))
    env.step(env.rand_action(env.reset()).set("secret", torch.ones(1)))

    assert "secret" not in given[0]


@pytest.mark.parametrize("make", [lambda: ArrayCountingEnv(3, info=True), lambda: CountingEnv(3, noise=True)])
def test_entries_are_kept(make):
    env = TransformedEnv(make(), Compose(StepCounter(2), InitTracker(), SelectTransform("observation")))

    env.check_env_specs()
    data = env.rollout(4, break_when_any_done=False)
    assert sorted(data["next"].keys()) == sorted([*DONE, "observation", "reward", "step_count"])
    assert data["step_count"].squeeze(-1).tolist() == [0, 1, 0, 1]


def test_rewards_can_be_excluded():
    env = TransformedEnv(CountingEnv(3), SelectTransform(keep_rewards=False))

    assert env.reward_keys == []
    assert sorted(env.rollout(3)["next"].keys()) == DONE


def test_stored_data_is_selected():
    data = TensorDict(a=torch.ones(1), b=torch.ones(1), reward=torch.ones(1))

    assert keys(SelectTransform("a")(data)) == ["a", "reward"]
    assert keys(ExcludeTransform("a")(data)) == ["b", "reward"]
    assert keys(RenameTransform(["a", "b"], ["b", "a"])(data)) == ["a", "b", "reward"]


@pytest.mark.parametrize("make", [ArrayCountingEnv, CountingEnv])
def test_entries_are_renamed(make):
    env = TransformedEnv(make(3), RenameTransform(["observation", "reward"], ["count", ("extra", "gain")]))

    assert env.observation_keys == ["count"]
    assert env.reward_keys == [("extra", "gain")]
    env.check_env_specs()
    assert env.rollout(3)["count"].squeeze(-1).tolist() == [0, 1, 2]


def test_actions_are_renamed_for_the_caller():
    env = TransformedEnv(CountingEnv(3), RenameTransform([], [], ["action"], [("hand", "push")]))

    assert env.action_keys == [("hand", "push")]
    env.check_env_specs()
    assert "action" not in env.rollout(3).keys()


def test_a_copy_keeps_the_old_name():
    env = TransformedEnv(CountingEnv(3), RenameTransform(["observation"], ["count"], create_copy=True))

    assert env.observation_keys == ["count", "observation"]
    env.check_env_specs()


@pytest.mark.parametrize("base", [StatelessCountingEnv, CountingEnv])
def test_renamed_states_reach_the_step_by_their_old_name(base):
    key = "count" if base is StatelessCountingEnv else "observation"
    env = TransformedEnv(
        base(3, batch_size=(2,)), Compose(StepCounter(), RenameTransform([key, "step_count"], ["n", "t"]))
    )

    env.check_env_specs()
    data = env.rollout(5, break_when_any_done=False)
    assert data["t"][0].squeeze(-1).tolist() == data["n"][0].squeeze(-1).tolist() == [0, 1, 2, 0, 1]
    td = env.step_mdp(env.rand_step(env.reset()))
    td["_reset"] = torch.tensor([[False], [True]])
    assert env.reset(td)["t"].squeeze(-1).tolist() == [1, 0]
    env.rand_action(td)["_step"] = torch.tensor([False, True])
    assert env.step(td)["next", "t"].squeeze(-1).tolist() == [1, 1]


def test_two_entries_can_change_places():
    env = TransformedEnv(
        ArrayCountingEnv(3, noise=True), RenameTransform(["observation", "noise"], ["noise", "observation"])
    )

    assert env.rollout(3)["noise"].squeeze(-1).tolist() == [0, 1, 2]


def test_renaming_a_missing_entry_is_an_error():
    with pytest.raises(KeyError, match="no entry 'observatoin' to rename"):
        TransformedEnv(CountingEnv(), RenameTransform(["observatoin"], ["a"])).reset()


def test_a_sum_may_be_renamed():
    env = TransformedEnv(CountingEnv(2), Compose(RewardSum(), RenameTransform(["episode_reward"], ["score"])))

    data = env.rollout(4, break_when_any_done=False)
    assert torch.equal(data["next", "score"][1], data["next", "reward"][:2].sum(0))


def nested_data():
    return TensorDict({"a": torch.ones(2, 1), "group": {"b": torch.zeros(2, 3)}, "next": {"a": torch.ones(2, 1)}}, [2])


def test_stored_data_is_renamed_in_place():
    data = nested_data()
    first = data["a"]

    out = RenameTransform(["a", ("next", "a"), ("group", "b")], ["x", ("next", "x"), "y"])(data)

    assert out is data
    assert data["x"] is first
    assert keys(data) == [("next", "x"), "x", "y"]
    assert data["y"].shape == (2, 3)


def test_a_copy_in_stored_data_shares_its_tensor():
    data = nested_data()

    RenameTransform(["a"], [("group", "a")], create_copy=True)(data)

    assert data["group", "a"] is data["a"]


def test_stored_data_gets_its_names_back():
    rename = RenameTransform(["observation"], ["seen"], ["action"], [("hand", "push")])
    data = TensorDict({"hand": {"push": torch.ones(2, 1)}, "seen": torch.zeros(2, 1)}, [2])

    assert "action" in rename.inv(data).keys()
    assert "seen" in rename.inv(data).keys()


def test_a_missing_key_is_named_unless_it_may_be_missing():
    """The error names the key that stored data lacks."""
    rename = RenameTransform(["b"], ["c"])
    with pytest.raises(KeyError, match=r"no entry 'b'. It has \['a'"):
        rename(TensorDict(a=torch.ones(1)))

    rename.set_missing_tolerance(True)
    assert keys(rename(TensorDict(a=torch.ones(1)))) == ["a"]


class Roomy(CountingEnv):
    """An environment with empty groups in its outputs and inputs."""

    def __init__(self):
        super().__init__(3)
        self.observation_spec = Composite(
            observation=self.observation_spec["observation"], room=Composite(inner=Composite())
        )
        self.state_spec = Composite(memory=Composite(), shape=())
        self.given = []

    def _with_room(self, data):
        return data.set("room", TensorDict(inner=TensorDict()))

    def _reset(self, tensordict, **kwargs):
        return self._with_room(super()._reset(tensordict, **kwargs))

    def _step(self, tensordict):
        self.given.append("memory" in tensordict.keys())
        return self._with_room(super()._step(tensordict))


def test_empty_groups_are_hidden_but_passed_to_the_environment():
    env = TransformedEnv(Roomy(), RemoveEmptySpecs())

    assert "room" not in env.observation_spec.keys()
    assert "memory" not in env.state_spec.keys()
    env.check_env_specs()
    data = env.rollout(3)
    assert not {"room", "memory"} & {*data.keys(), *data["next"].keys()}
    assert all(env.base_env.given)


def test_empty_groups_leave_stored_data_in_place():
    data = TensorDict(a=torch.ones(1), room=TensorDict(inner=TensorDict()), text="here")

    assert RemoveEmptySpecs()(data) is data
    assert sorted(data.keys()) == ["a", "text"]


@pytest.mark.parametrize("base", [ArrayDataEnv, DataEnv])
@pytest.mark.parametrize(
    "make",
    [
        lambda: ExcludeTransform(("group", "below", "number")),
        lambda: RenameTransform([("group", "below", "number")], ["number"]),
    ],
    ids=["exclude", "rename"],
)
def test_a_group_that_becomes_empty_is_gone_from_the_data(base, make):
    """A group without entries is in neither the data nor the specs."""
    number = Bounded(0.0, 1.0, (2,))
    env = TransformedEnv(base({"observation": number.clone(), ("group", "below", "number"): number}), make())
    data = env.rollout(12, break_when_any_done=False)

    assert isinstance(data, TensorDict)
    assert "group" not in env.observation_spec.keys()
    for found in (env.reset(), data, data["next"]):
        assert "group" not in found.keys()


def test_stored_data_loses_groups_that_become_empty():
    def stored():
        return TensorDict({"group": {"a": torch.ones(2), "deep": {"b": torch.ones(2)}}}, [2])

    assert set(ExcludeTransform(("group", "deep", "b"))(stored())["group"].keys()) == {"a"}
    renamed = RenameTransform([("group", "a"), ("group", "deep", "b")], ["a", "b"])(stored())
    assert set(renamed.keys()) == {"a", "b"}


@pytest.mark.parametrize(
    ("transform", "expected"),
    [
        (RenameTransform(["observation"], ["seen"]), ["seen"]),
        (ExcludeTransform("observation"), []),
        (SelectTransform(), []),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("batch_size", [(), (3,)])
def test_specs_are_selected_without_an_environment(transform, expected, batch_size):
    given = Composite(observation=Unbounded((*batch_size, 2)), shape=batch_size)

    spec = transform.transform_observation_spec(given.clone())

    assert keys(spec) == expected
    assert spec.shape == batch_size


# -- masks of actions ------------------------------------------------------------------------------------------------


class Legal(DataEnv):
    """Allows two neighbours of five actions, others in each step, and refuses the rest."""

    def __init__(self):
        super().__init__({"allowed": Binary(5, dtype=torch.bool)}, action=Categorical(5))
        self.action_masks = {"action": "allowed"}
        self.steps = 0

    def _allowed(self, data):
        return data.set("allowed", (torch.arange(5) - self.steps) % 5 < 2)

    def _reset(self, *args, **kwargs):
        self.steps = 0
        return self._allowed(super()._reset(*args, **kwargs))

    def _step(self, tensordict):
        assert bool(((torch.arange(5) - self.steps) % 5 < 2)[tensordict["action"]]), "not allowed"
        self.steps += 1
        return self._allowed(super()._step(tensordict))


@pytest.mark.parametrize(
    ("rename", "masks"),
    [
        (RenameTransform("allowed", "mask"), {"action": "mask"}),
        (RenameTransform([], [], "action", "move"), {"move": "allowed"}),
        (RenameTransform("allowed", ("legal", "mask"), "action", "move"), {"move": ("legal", "mask")}),
        (RenameTransform("allowed", "mask", create_copy=True), {"action": "allowed"}),
    ],
)
def test_random_actions_follow_a_mask_under_its_new_name(rename, masks):
    env = TransformedEnv(Legal(), Compose(StepCounter(), rename))
    assert env.action_masks == masks

    env.set_seed(0)
    env.rollout(50, break_when_any_done=False)
    batch = SerialEnv(2, lambda: TransformedEnv(Legal(), rename.clone()))
    assert batch.action_masks == masks
    batch.rollout(20, break_when_any_done=False)
