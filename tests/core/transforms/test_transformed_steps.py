"""Steps and resets of a TransformedEnv on TensorDicts."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule

from steppe.batched import SerialEnv
from steppe.envs import EnvBase
from steppe.errors import ActionError, StateError
from steppe.transforms import (
    Compose,
    DoubleToFloat,
    InitTracker,
    RewardSum,
    StepCounter,
    Transform,
    TransformedEnv,
)
from steppe_testing import (
    ArrayCountingEnv,
    CountingEnv,
    NestedCountingEnv,
    NestedResetEnv,
    StatelessCountingEnv,
)


class Tenfold(Transform):
    """Ten times the observation."""

    def __init__(self):
        super().__init__(["observation"])

    def _apply_transform(self, value):
        return 10 * value


def everything(limit=None):
    return Compose(Tenfold(), RewardSum(), StepCounter(limit), InitTracker(), DoubleToFloat())


def squeezed(data, key):
    return data[key].squeeze(-1).tolist()


BASES = {
    "tensordict": lambda: CountingEnv(3),
    "arrays": lambda: ArrayCountingEnv(3),
    "batch": lambda: CountingEnv(3, batch_size=(2,)),
    "deep batch": lambda: CountingEnv(3, batch_size=(2, 3)),
    "serial": lambda: SerialEnv(2, lambda: ArrayCountingEnv(3)),
    "stateless": lambda: StatelessCountingEnv(3, batch_size=(2,)),
    "double": lambda: CountingEnv(3, dtype=torch.float64),
}


EACH = pytest.mark.parametrize("base", BASES.values(), ids=BASES.keys())


def test_a_missing_or_wrong_action_is_an_error():
    for base in (CountingEnv(3), ArrayCountingEnv(3)):
        env = TransformedEnv(base, StepCounter())
        with pytest.raises(ActionError, match="There is no action at 'action'"):
            env.step(env.reset())
        env.rollout(2)
        with pytest.raises(ActionError, match="one-hot"):
            env.step(env.reset().set("action", torch.zeros(3)))


@EACH
def test_a_step_changes_no_tensors_of_the_base_or_the_caller(base):
    kept = []
    env = TransformedEnv(base(), Compose(RewardSum(), StepCounter(4), InitTracker()))
    td = env.reset()
    for _ in range(6):
        env.rand_action(td)
        kept.append((td.clone(), td))
        _, td = env.step_and_maybe_reset(td)
        copied, original = kept[-1]
        assert all(torch.equal(copied[key], original[key]) for key in copied.keys(True, True))
    for copied, original in kept:
        assert all(torch.equal(copied[key], original[key]) for key in copied.keys(True, True))


@EACH
def test_one_round_trip_equals_two(base):
    actions = list(base().full_action_spec.rand((10,))["action"])
    data = []
    for limit in (None, 10**6):
        env = TransformedEnv(base(), Compose(RewardSum(), StepCounter(limit), InitTracker()))
        data.append(env.rollout(10, actions=actions, break_when_any_done=False))

    assert data[0]["next", "done"].any()
    assert (data[0] == data[1]).all()


def test_a_batch_is_reset_in_the_trip_of_its_step(monkeypatch):
    calls, reset = [], EnvBase.reset

    def watched(self, *args, **kwargs):
        calls.append(type(self))
        return reset(self, *args, **kwargs)

    monkeypatch.setattr(EnvBase, "reset", watched)  # an override in a subclass would be called at each end
    env = TransformedEnv(SerialEnv(2, lambda: ArrayCountingEnv(3)), Compose(RewardSum(), StepCounter()))
    data = env.rollout(10, break_when_any_done=False)

    assert calls.count(SerialEnv) <= 1
    assert squeezed(data[0], "step_count") == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]


def test_undeclared_writes_of_done_are_an_error():
    """A class that ends episodes must not set writes_done to False."""

    class Secret(Transform):
        writes_done = False

        def _call(self, next_tensordict):
            return next_tensordict.set("done", next_tensordict["observation"] >= 2)

    env = TransformedEnv(SerialEnv(2, lambda: ArrayCountingEnv(5)), Secret())

    with pytest.raises(StateError, match="writes_done = True"):
        env.rollout(6, break_when_any_done=False)


@pytest.mark.parametrize("base", [BASES["batch"], BASES["serial"], BASES["stateless"]])
def test_rows_that_are_not_stepped_keep_their_values(base):
    env = TransformedEnv(base(), Compose(RewardSum(), StepCounter(), InitTracker()))
    td = env.step_mdp(env.rand_step(env.reset()))
    before = td.clone()

    env.rand_action(td)["_step"] = torch.tensor([True, False])
    env.step(td)

    assert squeezed(td, ("next", "step_count")) == [2, 1]
    key = "observation" if "observation" in td.keys() else "count"
    assert td["next", key][1] == before[key][1]
    assert td["next", "episode_reward"][1] == before["episode_reward"][1]
    assert "_step" not in td.keys()


def test_skipped_rows_are_not_transformed_again():
    env = TransformedEnv(CountingEnv(9, batch_size=(2,)), Tenfold())
    td = env.step_mdp(env.rand_step(env.reset()))

    env.rand_action(td)["_step"] = torch.tensor([True, False])

    assert squeezed(env.step(td), ("next", "observation")) == [20, 10]


@pytest.mark.parametrize("base", [BASES["batch"], BASES["serial"], BASES["stateless"]])
def test_rows_that_are_not_reset_keep_their_values(base):
    env = TransformedEnv(base(), Compose(RewardSum(), StepCounter(), InitTracker()))
    td = env.step_mdp(env.rand_step(env.reset()))
    td["_reset"] = torch.tensor([[True], [False]])

    env.reset(td)

    assert squeezed(td, "step_count") == [0, 1]
    assert squeezed(td, "is_init") == [True, False]
    assert squeezed(td, "observation" if "observation" in td.keys() else "count") == [0, 1]


@pytest.mark.parametrize("base", [BASES["batch"], BASES["serial"]])
def test_some_rows_can_be_stepped_and_reset(base):
    env = TransformedEnv(base(), Compose(Tenfold(), RewardSum(), StepCounter(2), InitTracker()))
    whole = TransformedEnv(base(), Compose(Tenfold(), RewardSum(), StepCounter(2), InitTracker()))
    actions = list(env.full_action_spec.rand((2,))["action"])
    expected = whole.rollout(2, actions=actions)

    rows = torch.tensor([1])
    td = env.reset()[rows]
    for t in range(2):
        td["action"] = actions[t][rows]
        env.step_at(td, rows)
        for key in expected["next"].keys():
            assert torch.equal(td["next", key], expected["next", key][rows, t]), key
        td = env.step_mdp(td)
    fresh = env.reset_at(td, rows)

    assert fresh["step_count"].tolist() == [[0]]
    assert fresh["is_init"].tolist() == [[True]]
    assert env.reset_at(None, rows)["observation"].tolist() == [[0]]


def test_a_step_keeps_entries_that_the_policy_put_under_next():
    env = TransformedEnv(CountingEnv(3), StepCounter())
    td = env.rand_action(env.reset()).set("next", TensorDict(hidden=torch.ones(2)))

    env.step(td)

    assert sorted(td["next"].keys()) == [
        "done", "hidden", "observation", "reward", "step_count", "terminated", "truncated",
    ]  # fmt: skip


def test_rollouts_take_policies_and_callbacks():
    env = TransformedEnv(ArrayCountingEnv(4), everything(3))
    seen = []
    policy = TensorDictModule(lambda count: torch.tensor([False, True, False]), ["step_count"], ["action"])

    data = env.rollout(10, policy, callback=lambda env, td: seen.append(td["step_count"].item()))

    assert seen == [0, 1, 2]
    assert squeezed(data["next"], "episode_reward") == [1, 2, 3]
    again = env.rollout(10, policy)
    assert (again == data).all()


@EACH
def test_rollouts_until_all_have_ended(base):
    env = TransformedEnv(base(), Compose(StepCounter(2)))

    data = env.rollout(10, break_when_all_done=True)

    assert data.shape[-1] == 2
    assert data["next", "truncated"][..., -1, :].all()


@pytest.mark.parametrize("root_done", [None, "any", "all"])
def test_each_level_is_counted(root_done):
    env = TransformedEnv(
        NestedCountingEnv(3, root_done=root_done, batch_size=(2,)), Compose(RewardSum(), StepCounter(), InitTracker())
    )

    env.check_env_specs()
    data = env.rollout(5, break_when_any_done=False)

    assert data["agents", "step_count"][0, :, 0, 0].tolist() == [0, 1, 2, 0, 1]
    assert data["agents", "is_init"][0, :, 1, 0].tolist() == [True, False, False, True, False]
    assert data["agents", "episode_reward"].shape == (2, 5, 2, 1)
    assert (data["agents", "episode_reward"][:, 3] == 0).all()
    assert ("step_count" in data.keys()) == (root_done is not None)


def test_groups_that_end_alone_begin_alone():
    env = TransformedEnv(NestedResetEnv(), Compose(StepCounter()))
    env.check_env_specs()
    td = env.step_mdp(env.rand_step(env.reset()))
    prefixes = [key[:-1] for key in env.reset_keys if isinstance(key, tuple)]
    if not prefixes:
        pytest.skip("the environment has one level")
    first, *others = prefixes
    for prefix in prefixes:
        shape = td[(*prefix, "done")].shape
        td[(*prefix, "_reset")] = torch.full(shape, prefix == first)
    env.reset(td)

    assert (td[(*first, "step_count")] == 0).all()
    assert all((td[(*prefix, "step_count")] == 1).all() for prefix in others)
