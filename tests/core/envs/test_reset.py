"""reset: whole and partial, nested levels, env_info."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from steppe import AsyncEnvPool, Compose, ParallelEnv, SyncDataCollector
from steppe.batched import SerialEnv
from steppe.envs import EnvBase
from steppe.errors import NotSupported, SpecError
from steppe.specs import Binary, Composite, OneHot, Unbounded
from steppe.transforms import RewardSum, StepCounter, TransformedEnv
from steppe_gym import GymEnv
from steppe_gym_like import GymLikeEnv
from steppe_testing import (
    ArrayCountingEnv,
    CountingEnv,
    DynamicSpecEnv,
    MultiKeyCountingEnv,
    NestedCountingEnv,
    NestedResetEnv,
    StatelessCountingEnv,
)


class Zeros(EnvBase):
    """Returns zeros after a reset; ``groups`` hold a value and a done entry each, of shape ``(2,)``."""

    def __init__(self, *groups, root=True):
        super().__init__()
        done = {"done": Binary(shape=(2,), dtype=torch.bool)}
        values = {"val": Unbounded((2,), dtype=torch.int64)}
        self.observation_spec = Composite({g: Composite(dict(values)) for g in groups} or values)
        self.full_done_spec = Composite({**(done if root else {}), **{g: Composite(dict(done)) for g in groups}})
        self.action_spec = OneHot(2)

    def _reset(self, tensordict=None, **kwargs):
        return self.full_observation_spec.zero()

    def _set_seed(self, seed):
        pass


def mask(*rows):
    return torch.tensor(rows)


def test_a_single_reset_mask_at_the_root():
    data = TensorDict({"val": torch.tensor([1, 1]), "_reset": mask(False, True)}, [])
    Zeros().reset(data)

    assert data.get("val").tolist() == [1, 0]
    assert "_reset" not in data


@pytest.mark.parametrize(
    ("root", "masks", "expected"),
    [
        ({}, (mask(False, True), mask(True, False)), ([1, 0], [0, 2])),
        ({"_reset": mask(True, True)}, (mask(False, True), mask(True, False)), ([0, 0], [0, 0])),
        ({}, (mask(False, True), None), ([1, 0], [0, 0])),
    ],
    ids=["each level by its own mask", "the root decides", "no mask is all"],
)
def test_nested_masks_reset_their_own_levels(root, masks, expected):
    data = TensorDict(root)
    for i, rows in enumerate(masks):
        data[f"agent{i}"] = TensorDict({"val": torch.full((2,), i + 1)})
        if rows is not None:
            data[f"agent{i}", "_reset"] = rows
    Zeros("agent0", "agent1", root=bool(root)).reset(data)

    assert (data["agent0", "val"].tolist(), data["agent1", "val"].tolist()) == expected
    assert ("agent0", "_reset") not in data.keys(True)


@pytest.mark.parametrize("rows", [mask([True], [False], [True], [True]), mask(True, False, True, True)])
def test_a_batch_resets_the_rows_of_its_mask(rows):
    env = CountingEnv(batch_size=(4,))
    td = env.step_mdp(env.rand_step(env.reset()))
    td["_reset"] = rows
    result = env.reset(td)

    assert result is td
    assert "_reset" not in td
    assert td["observation"].squeeze(-1).tolist() == [0, 1, 0, 0]
    assert env.count.squeeze(-1).tolist() == [0, 1, 0, 0]


def test_a_mask_that_is_false_everywhere_resets_nothing():
    env = CountingEnv(batch_size=(2,))
    td = env.step_mdp(env.rand_step(env.reset()))
    td["_reset"] = torch.zeros(2, 1, dtype=torch.bool)

    assert env.reset(td)["observation"].sum() == 2
    assert env.count.sum() == 2


def test_a_mask_must_be_bool():
    env = CountingEnv(batch_size=(2,))

    with pytest.raises(SpecError, match=r"'_reset' must be bool"):
        env.reset(env.reset().set("_reset", torch.ones(2, 1)))


def test_rows_that_are_not_reset_keep_undeclared_entries():
    env = CountingEnv(batch_size=(2,))
    td = env.reset().set("mine", torch.ones(2)).set("_reset", mask([True], [False]))

    assert env.reset(td)["mine"].sum() == 2


def test_groups_that_end_alone_are_reset_alone():
    env = MultiKeyCountingEnv({"left": 2, "right": 3}, batch_size=(2,))
    td = env.rollout(2)[:, -1]
    root = env.maybe_reset(env.step_mdp(td))

    assert root["left", "observation"].squeeze(-1).tolist() == [0, 0]
    assert root["right", "observation"].squeeze(-1).tolist() == [2, 2]
    assert not root["left", "done"].any()


def test_agents_of_a_group_are_reset_alone():
    env = NestedCountingEnv(2, n_agents=2, spread=1)
    root = env.maybe_reset(env.step_mdp(env.rollout(2)[-1]))

    assert root["agents", "observation"].squeeze(-1).tolist() == [0, 2]


def test_the_root_done_prevails():
    env = NestedResetEnv(1, n_agents=2, spread=2)  # the agents end after 1 and 3 steps, the root with the last
    td = env.reset()
    for step in range(3):
        td, root = env.step_and_maybe_reset(env.rand_action(td))
        assert root["agents", "observation"].squeeze(-1).tolist() == ([0, 0] if step == 2 else [step + 1] * 2)
        td = root


def test_a_done_group_below_the_root_needs_no_reset():
    """any_done is false while only a group below the root has ended."""
    env = NestedResetEnv(1, spread=2)
    td = env.step_mdp(env.rand_step(env.reset()))

    assert td["agents", "done"].any()
    assert not env.any_done(td)


def test_any_done_writes_the_reset_masks():
    env = CountingEnv(1, batch_size=(2,))
    td = env.step_mdp(env.rand_step(env.reset()))

    assert env.any_done(td)
    assert td["_reset"].all()
    assert td["_reset"] is not td["done"]


def test_an_episode_that_has_ended_when_it_begins_is_refused():
    class Ended(CountingEnv):
        def _reset(self, tensordict=None, **kwargs):
            return super()._reset(tensordict).set("terminated", torch.ones(1, dtype=torch.bool))

    with pytest.raises(SpecError, match="allow_done_after_reset=True"):
        Ended().reset()
    assert Ended(allow_done_after_reset=True).reset()["done"].all()


def test_reset_must_return_a_new_tensordict():
    env = CountingEnv()
    env._reset = lambda tensordict=None: tensordict
    with pytest.raises(SpecError, match="not the one it was given"):
        env.reset(TensorDict())
    with pytest.raises(SpecError, match="must return a TensorDict, found NoneType"):
        env.reset()


def test_a_reward_returned_by_reset_is_refused():
    class Early(CountingEnv):
        def _reset(self, tensordict=None, **kwargs):
            return super()._reset(tensordict).set("reward", torch.zeros(1))

    with pytest.raises(SpecError, match="'reward' is a reward, and a reset has none"):
        Early().reset()


@pytest.mark.parametrize("make", [CountingEnv, ArrayCountingEnv])
def test_a_reset_completes_the_done_entries(make):
    td = make().reset()

    assert not any(td[name].any() for name in ("done", "terminated", "truncated"))
    assert td["done"].shape == (1,)


def test_reset_hands_its_other_arguments_on():
    seen = {}
    env = CountingEnv()
    reset = env._reset
    env._reset = lambda tensordict=None, **kwargs: seen.update(kwargs) or reset(tensordict)
    env.reset(level=3)

    assert seen == {"level": 3}


def counts(*values):
    return TensorDict({"count": torch.tensor(values).unsqueeze(-1)}, [len(values)])


def test_a_reset_begins_at_the_state_it_is_asked_to():
    env = StatelessCountingEnv()

    assert env.reset(counts(2, 4), set_state=True)["count"].squeeze(-1).tolist() == [2, 4]
    assert env.reset(counts(2, 4), set_state=False)["count"].squeeze(-1).tolist() == [0, 0]
    assert env.reset(counts(2, 4))["count"].squeeze(-1).tolist() == [0, 0]


def test_a_partial_reset_sets_the_state_of_its_rows_alone():
    env = StatelessCountingEnv()
    td = counts(2, 4).set("_reset", torch.tensor([[False], [True]]))
    before = td["count"]
    fresh = env.reset(td, set_state=False)

    assert fresh["count"].squeeze(-1).tolist() == [2, 0]
    assert before.squeeze(-1).tolist() == [2, 4]


def test_a_rollout_begins_at_the_state_it_is_asked_to():
    data = StatelessCountingEnv().rollout(2, tensordict=counts(1, 2), set_state=True)

    assert data["next", "count"].squeeze(-1).tolist() == [[2, 3], [3, 4]]


def test_setting_a_state_needs_a_stateless_environment():
    env = CountingEnv()

    assert not env.supports_set_state
    with pytest.raises(NotSupported, match=r"CountingEnv cannot be put into a state.*_supports_set_state = True"):
        env.reset(env.reset(), set_state=True)
    assert env.reset(env.reset(), set_state=False)["observation"].item() == 0


def test_a_state_to_begin_at_has_to_be_given():
    with pytest.raises(TypeError, match="needs tensordict=, the data with the state"):
        StatelessCountingEnv().reset(set_state=True)


def test_transforms_and_batches_begin_at_a_given_state():
    """Batches and transformed environments support set_state if all their bases do."""
    env = TransformedEnv(SerialEnv(2, lambda: TransformedEnv(StatelessCountingEnv(9), StepCounter())), RewardSum())

    assert env.supports_set_state
    begun = env.reset(counts(2, 4), set_state=True)
    assert begun["count"].squeeze(-1).tolist() == [2, 4]
    assert begun["step_count"].squeeze(-1).tolist() == [0, 0]
    assert not SerialEnv(2, [StatelessCountingEnv, CountingEnv]).supports_set_state


def test_all_actions_lists_the_actions_of_the_given_state():
    class Masked(StatelessCountingEnv):
        def _reset(self, tensordict=None, *, set_state=False):
            data = super()._reset(tensordict, set_state=set_state)
            self.action_spec = OneHot(3, mask=torch.tensor([True, True, bool(data["count"] == 0)]))
            return data

    env = Masked()

    assert env.all_actions(TensorDict({"count": torch.tensor([0])})).batch_size == (3,)
    assert env.all_actions(TensorDict({"count": torch.tensor([1])})).batch_size == (2,)


class Plain(GymLikeEnv):
    """A wrapper of an object with ``reset(**options)``, of no library."""

    def __init__(self, library):
        super().__init__(library)
        self.observation_spec = Unbounded((1,))
        self.action_spec = Unbounded((1,))
        self.reward_spec = Unbounded((1,))

    def close(self, *, raise_if_closed=False):
        EnvBase.close(self, raise_if_closed=raise_if_closed)


class Library:
    def reset(self, seed=None, options=None):
        self.got = (seed, options)
        return np.zeros(1, np.float32), {}


@pytest.mark.parametrize("wrap", [lambda env: env, lambda env: TransformedEnv(env, StepCounter())])
@pytest.mark.parametrize("make", [ArrayCountingEnv, lambda: GymEnv("CartPole-v1"), lambda: Plain(Library())])
def test_a_reset_takes_no_seed(make, wrap):
    with pytest.raises(TypeError, match=r"call env\.set_seed\(seed\)"):
        wrap(make()).reset(seed=3)


@pytest.mark.parametrize("make", [ArrayCountingEnv, lambda: GymEnv("CartPole-v1"), lambda: Plain(Library())])
def test_a_reset_refuses_unknown_arguments(make):
    with pytest.raises(TypeError, match="nonsense"):
        make().reset(nonsense=5)


def test_a_reset_hands_options_on_to_the_library():
    library = Library()
    Plain(library).reset(options={"low": 1})
    assert library.got == (None, {"low": 1})

    for env in (GymEnv("CartPole-v1"), TransformedEnv(GymEnv("CartPole-v1"), StepCounter())):
        assert env.reset(options={"low": 0.2, "high": 0.2})["observation"].tolist() == pytest.approx([0.2] * 4)
    with SerialEnv(2, "gym:CartPole-v1") as batch:
        root = batch.reset(list_of_kwargs=[{}, {"options": {"low": 0.2, "high": 0.2}}])
    assert root["observation"][1].tolist() == pytest.approx([0.2] * 4)


class Restorable(EnvBase):
    """An environment that counts in its data, from the count passed to ``_reset``."""

    def __init__(self, groups=False):
        super().__init__()
        self.observation_spec = Composite(x=Unbounded((1,)))
        self.state_spec = Composite(x=Unbounded((1,)))
        self.action_spec = Unbounded((1,))
        self.reward_spec = Unbounded((1,))

    def _reset(self, tensordict=None):
        given = None if tensordict is None else tensordict.get("x", None)
        return TensorDict(x=torch.zeros(1) if given is None else given.clone())

    def _step(self, tensordict):
        x = tensordict["x"] + 1
        return TensorDict(x=x, reward=x.clone(), done=x >= 3)

    def _set_seed(self, seed):
        pass


class Told(Restorable):
    """The same for an environment with the argument ``set_state``."""

    _supports_set_state = True

    def _reset(self, tensordict=None, set_state=True):
        return super()._reset(tensordict if set_state else None)


RESTORABLE = {
    "one": lambda make: make(),
    "transformed": lambda make: TransformedEnv(make(), Compose(StepCounter(), RewardSum())),
    "ended by a transform": lambda make: TransformedEnv(make(), StepCounter(3)),
    "serial": lambda make: SerialEnv(2, make),
    "parallel": lambda make: ParallelEnv(2, make),
    "serial of transformed": lambda make: SerialEnv(2, lambda: TransformedEnv(make(), StepCounter())),
    "transformed serial": lambda make: TransformedEnv(SerialEnv(2, make), StepCounter()),
    "serial, ended by a transform": lambda make: TransformedEnv(SerialEnv(2, make), StepCounter(3)),
    "pool": lambda make: AsyncEnvPool([make] * 2, backend="threading"),
}


@pytest.mark.parametrize("wrap", RESTORABLE.values(), ids=RESTORABLE.keys())
@pytest.mark.parametrize("make", [Restorable, Told])
def test_an_automatic_reset_ignores_the_last_state(wrap, make):
    """The next episode starts at a new state, not at the last one."""
    with wrap(make) as env:
        data = env.rollout(7, break_when_any_done=False)
        for row in data["x"].reshape(-1, 7):
            assert row.tolist() == [0, 1, 2, 0, 1, 2, 0]

        root = env.reset()
        root["x"] = torch.full_like(root["x"], 5)
        for key in ("done", "terminated"):
            root[key] = torch.ones_like(root[key])
        assert env.maybe_reset(root)["x"].flatten().unique().tolist() == [0]


@pytest.mark.parametrize("wrap", RESTORABLE.values(), ids=RESTORABLE.keys())
def test_an_explicit_reset_passes_all_data_to_the_environment(wrap):
    with wrap(Restorable) as env:
        root = env.reset()
        root["x"] = torch.full_like(root["x"], 2)

        assert env.reset(root)["x"].flatten().unique().tolist() == [2]


def test_a_collector_resets_its_environment():
    for env in (Restorable(), SerialEnv(2, Restorable), TransformedEnv(Restorable(), StepCounter())):
        collector = SyncDataCollector(env, frames_per_batch=14, total_frames=14)
        data = next(iter(collector))
        collector.shutdown()

        assert data["x"].max() == 2


def test_a_smaller_observation_after_a_reset_is_not_expanded():
    """A reset may return fewer elements than the last step; they are not repeated."""
    env = DynamicSpecEnv(3)
    td = env.reset()

    for _ in range(3):
        _, td = env.step_and_maybe_reset(env.rand_action(td))

    assert td["observation"].shape == (3, 1, 2)
