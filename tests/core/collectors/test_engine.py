"""Batches equal those of a handwritten loop, and continue after the last batch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import pytest
import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModule

from steppe import (
    Collector,
    EnvBase,
    ExplorationType,
    MultiaSyncDataCollector,
    MultiSyncDataCollector,
    ParallelEnv,
    SerialEnv,
    StepCounter,
    SyncDataCollector,
    TransformedEnv,
    exploration_type,
    make_env,
)
from steppe.errors import ArgumentError, SpecError, WorkerError
from steppe_testing import (
    ArrayCountingEnv,
    AutoResettingCountingEnv,
    CountingEnv,
    DynamicSpecEnv,
    FailingEnv,
    NestedCountingEnv,
    TextCountingEnv,
    assert_equal_data,
)

ENVS: dict[str, Callable[[], EnvBase]] = {
    "arrays": lambda: ArrayCountingEnv(4, noise=True),
    "arrays, nested keys and infos": lambda: ArrayCountingEnv(4, nested=True, info=True, actions=True),
    "tensordicts": lambda: CountingEnv(4, noise=True),
    "a batch": lambda: CountingEnv(4, noise=True, batch_size=(3,)),
    "a batch of two dimensions": lambda: CountingEnv(4, noise=True, batch_size=(3, 2)),
    "agents": lambda: NestedCountingEnv(4, spread=2, batch_size=(3,)),
    "agents and a root": lambda: NestedCountingEnv(4, spread=2, root_done="all", batch_size=(3,)),
    "serial": lambda: SerialEnv(3, lambda: ArrayCountingEnv(4, noise=True)),
    "serial, on tensordicts": lambda: SerialEnv(3, lambda: CountingEnv(4, noise=True)),
    "transformed": lambda: TransformedEnv(CountingEnv(4, noise=True, batch_size=(3,)), StepCounter(max_steps=3)),
    "transformed arrays": lambda: TransformedEnv(ArrayCountingEnv(9, noise=True), StepCounter(max_steps=4)),
    "serial, transformed inside": lambda: SerialEnv(
        3, lambda: TransformedEnv(ArrayCountingEnv(9, noise=True), StepCounter(max_steps=4))
    ),
    "serial, transformed outside": lambda: TransformedEnv(
        SerialEnv(3, lambda: ArrayCountingEnv(9, noise=True)), StepCounter(max_steps=4)
    ),
    "resets itself": lambda: AutoResettingCountingEnv(4),
    "text": lambda: TextCountingEnv(4),
    "growing": lambda: DynamicSpecEnv(4),
}


FIXED = [name for name in ENVS if name not in ("text", "growing")]


def collected(collector: Collector) -> TensorDictBase:
    """All batches, one after the other."""
    with collector:
        batches = [batch.exclude("collector") for batch in collector]
    dim = batches[0].batch_dims - 1
    return torch.cat(batches, dim)


def by_hand(env: EnvBase, policy: Callable[[TensorDictBase], TensorDictBase], steps: int) -> TensorDictBase:
    with closing(env), torch.no_grad():
        env.set_seed(3)
        td, frames = env.reset(), []
        for _ in range(steps):
            frame, td = env.step_and_maybe_reset(policy(td))
            frames.append(frame.copy())
        return TensorDict.lazy_stack(frames, len(env.batch_size))


class Alternating:
    """A policy that writes random actions and additional entries."""

    def __init__(self, env: EnvBase) -> None:
        self.leaves = {key: env.full_action_spec[key] for key in env.action_keys}
        self.draws = torch.Generator().manual_seed(1)

    def __call__(self, td: TensorDictBase) -> TensorDictBase:
        for key, leaf in self.leaves.items():
            td.set(key, leaf.rand(generator=self.draws))
        td.set("log_prob", torch.rand(td.batch_size, generator=self.draws))
        return td


@pytest.mark.parametrize("name", FIXED)
def test_a_policy_gives_the_data_of_a_hand_written_loop(name: str) -> None:
    env = ENVS[name]()
    collector = Collector(
        env,
        Alternating(env),
        frames_per_batch=7 * env.numel(),
        total_frames=21 * env.numel(),
        seed=3,
        trust_policy=True,
    )
    other = ENVS[name]()
    assert_equal_data(collected(collector), by_hand(other, Alternating(other), 21))


@pytest.mark.parametrize("name", ["text", "growing"])
def test_data_without_a_fixed_place_is_stacked(name: str) -> None:
    env, other = ENVS[name](), ENVS[name]()
    with Collector(env, Alternating(env), frames_per_batch=7, total_frames=7, seed=3, trust_policy=True) as collector:
        (batch,) = collector
    assert batch.batch_size == (7,)
    assert_equal_data(batch.exclude("collector"), by_hand(other, Alternating(other), 7))


@pytest.mark.parametrize("name", FIXED)
def test_random_actions_match_a_rollout_for_any_batch_size(name: str) -> None:
    """Random actions equal those of a rollout, for any size of batches."""
    steps = 300  # more than two of the blocks in which they are drawn
    with closing(ENVS[name]()) as other:
        other.set_seed(3)
        expected = other.rollout(steps, break_when_any_done=False)
    for per_batch in (1, 50, 150, 300):
        env = ENVS[name]()
        rows = env.numel()
        collector = Collector(env, frames_per_batch=per_batch * rows, total_frames=steps * rows, seed=3)
        assert_equal_data(collected(collector), expected)


def test_a_serial_batch_collects_the_data_of_its_environments() -> None:
    """Each row of a serial batch has the data of a single environment."""

    def policy(td: TensorDictBase) -> TensorDictBase:
        return td.set("action", torch.nn.functional.one_hot(td["observation"].squeeze(-1).long() % 2, 3).bool())

    def data(env: EnvBase, seed: int) -> TensorDictBase:
        return collected(Collector(env, policy, frames_per_batch=20, total_frames=60, seed=seed, trust_policy=True))

    batch = data(SerialEnv(2, lambda: ArrayCountingEnv(4, noise=True)), 5)
    second = ArrayCountingEnv().set_seed(5)
    singles = [data(ArrayCountingEnv(4, noise=True), seed) for seed in (5, second)]
    assert_equal_data(batch, torch.stack([single[:30] for single in singles]))


@pytest.mark.parametrize("policy", [None, lambda observation: torch.tensor([[0, 0, 1]]).bool().expand(3, 3)])
def test_processes_give_the_data_of_one(policy: Any) -> None:
    def data(kind: type) -> TensorDictBase:
        env = kind(3, lambda: ArrayCountingEnv(4))
        return collected(Collector(env, policy, frames_per_batch=30, total_frames=60, seed=1))

    assert_equal_data(data(ParallelEnv), data(SerialEnv))


def test_gymnasium_in_batches() -> None:
    collector = SyncDataCollector("gym:CartPole-v1", frames_per_batch=100, total_frames=300, seed=3)
    env = make_env("gym:CartPole-v1")
    env.set_seed(3)
    data = collected(collector)
    assert_equal_data(data, env.rollout(300, break_when_any_done=False))
    assert data["next", "done"].sum() > 5


def test_one_environment_gives_time_and_a_batch_rows_by_time() -> None:
    with Collector(CountingEnv(), frames_per_batch=6) as single:
        batch = next(single)
        assert (batch.batch_size, batch.names) == ((6,), ["time"])
    with Collector(CountingEnv(batch_size=(3,)), frames_per_batch=6) as many:
        batch = next(many)
        assert (batch.batch_size, batch.names) == ((3, 2), [None, "time"])
        assert batch["next"].names == batch["collector"].names == [None, "time"]


def test_a_batch_is_a_copy_and_the_same_td_the_storage() -> None:
    with Collector(CountingEnv(100), frames_per_batch=3) as collector:
        first = next(collector)
        next(collector)
    assert first["observation"].flatten().tolist() == [0, 1, 2]
    with Collector(CountingEnv(100), frames_per_batch=3, return_same_td=True) as collector:
        first = next(collector)
        second = next(collector)
    assert first is second
    assert first["observation"].flatten().tolist() == [3, 4, 5]


def test_changing_a_batch_does_not_change_the_next_one() -> None:
    with Collector(CountingEnv(100, batch_size=(2,)), frames_per_batch=6) as collector:
        next(collector).zero_()
        assert next(collector)["observation"].squeeze(-1).tolist() == [[3, 4, 5]] * 2


def test_reset_at_each_iter_begins_every_batch_with_new_episodes() -> None:
    with Collector(CountingEnv(100), frames_per_batch=3, reset_at_each_iter=True) as collector:
        first, second = next(collector), next(collector)
    assert second["observation"].flatten().tolist() == [0, 1, 2]
    assert first["collector", "traj_ids"].tolist() == [0, 0, 0]
    assert second["collector", "traj_ids"].tolist() == [1, 1, 1]


def test_reset_begins_new_episodes() -> None:
    with Collector(CountingEnv(100), frames_per_batch=3) as collector:
        next(collector)
        collector.reset()
        batch = next(collector)
        assert batch["observation"].flatten().tolist() == [0, 1, 2]
        assert batch["collector", "traj_ids"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("make", [partial(CountingEnv, 100), lambda: SerialEnv(2, lambda: CountingEnv(100))])
def test_a_reset_of_some_rows_is_refused(make: Callable[[], EnvBase]) -> None:
    """Environments that take any keyword do not make a reset of all rows of it."""
    with Collector(make, frames_per_batch=4) as collector:
        next(collector)
        with pytest.raises(TypeError, match=r"Collector.reset takes no index="):
            collector.reset(index=[0])
        with pytest.raises(TypeError, match="positional"):
            collector.reset([0])  # type: ignore[misc]
        assert next(collector)["observation"].all(), "nothing was reset"
        collector.reset(index=None)


def test_policy_output_is_part_of_the_next_input() -> None:
    """An entry that the policy writes for itself is there at its next call."""

    def policy(td: TensorDictBase) -> TensorDictBase:
        seen = td.get("seen", torch.zeros(1))
        return td.update({"action": torch.tensor([True, False, False]), "seen": seen + 1})

    with Collector(CountingEnv(100), policy, frames_per_batch=3) as collector:
        assert torch.cat([next(collector)["seen"].flatten() for _ in range(2)]).tolist() == [1, 2, 3, 4, 5, 6]


def test_an_entry_that_changes_its_shape_is_named() -> None:
    def policy(td: TensorDictBase) -> TensorDictBase:
        size = 1 + int(td["observation"].item() > 2)
        return td.update({"action": torch.tensor([True, False, False]), "value": torch.ones(size)})

    with (
        Collector(CountingEnv(100), policy, frames_per_batch=5) as collector,
        pytest.raises(SpecError, match=r"the shape of 'value' changes from \(1,\) to \(2,\)"),
    ):
        next(collector)


@pytest.mark.parametrize(("at", "said"), [(0, "'value' is missing"), (3, "'value' is new")])
def test_an_entry_that_appears_or_disappears_is_named(at: int, said: str) -> None:
    def policy(td: TensorDictBase) -> TensorDictBase:
        td = td.exclude("value").set("action", torch.tensor([True, False, False]))
        return td.set("value", torch.ones(1)) if (int(td["observation"].item()) == at) else td

    def fresh(td: TensorDictBase) -> TensorDictBase:
        out = policy(td)
        if "value" not in out.keys():
            td.pop("value", None)
        return out

    with Collector(CountingEnv(100), fresh, frames_per_batch=5) as collector, pytest.raises(SpecError, match=said):
        next(collector)


def test_exploration_type_holds_only_during_the_policys_calls() -> None:
    """Between batches, the exploration type is that of the caller."""
    seen = []

    def policy(td: TensorDictBase) -> TensorDictBase:
        seen.append(exploration_type())
        return td.set("action", torch.tensor([True, False, False]))

    before = exploration_type()
    with Collector(CountingEnv(), policy, frames_per_batch=2, exploration_type=ExplorationType.MODE) as collector:
        next(collector)
        assert exploration_type() is before
    assert set(seen) == {ExplorationType.MODE}


def test_gradients_are_off_only_inside_the_collector() -> None:
    net = torch.nn.Linear(1, 2)
    module = TensorDictModule(net, in_keys=["observation"], out_keys=["action"])
    with Collector(CountingEnv(action="continuous"), module, frames_per_batch=3) as collector:
        for batch in [next(collector)]:
            assert torch.is_grad_enabled()
            assert not batch["action"].requires_grad


def test_postproc_runs_after_the_split() -> None:
    with Collector(
        CountingEnv(2), frames_per_batch=6, split_trajs=True, postproc=lambda td: td["collector", "mask"]
    ) as collector:
        assert next(collector).tolist() == [[True, True]] * 3


def test_a_batch_after_an_error_begins_with_a_reset() -> None:
    """An error in a batch is raised, and the next batch begins with new episodes."""
    with Collector(FailingEnv(at=5), frames_per_batch=4) as collector:
        next(collector)
        with pytest.raises(RuntimeError, match="failed in step 5"):
            next(collector)
        batch = next(collector)
    assert batch["observation"][0].item() == 0
    assert batch["collector", "traj_ids"].tolist() == [1] * 4
    assert collector.stats()["frames"] == 8


@pytest.mark.parametrize("name", ["arrays", "tensordicts", "serial"])
def test_an_interrupted_batch_leaves_no_data_in_the_next(name: str) -> None:
    env = ENVS[name]()
    calls = iter(range(1000))

    def policy(td: TensorDictBase) -> TensorDictBase:
        if next(calls) in (7, 20):
            raise KeyboardInterrupt
        return env.rand_action(td)

    with Collector(env, policy, frames_per_batch=12 * env.numel(), trust_policy=True) as collector:
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                next(collector)
            counts = next(collector)["observation"].reshape(-1, 12)
            assert counts.tolist() == [[0, 1, 2, 3] * 3] * env.numel()


def test_different_seeds_give_different_data() -> None:
    def data(seed: int) -> TensorDictBase:
        env = SerialEnv(2, lambda: ArrayCountingEnv(4, noise=True))
        return collected(Collector(env, frames_per_batch=20, total_frames=40, seed=seed))

    assert_equal_data(data(1), data(1))
    assert not torch.equal(data(1)["noise"], data(2)["noise"])
    assert not torch.equal(data(1)["action"], data(2)["action"])


def test_set_seed_restarts_the_random_actions() -> None:
    """set_seed returns what the environment's set_seed returns."""
    with Collector(CountingEnv(), frames_per_batch=10) as collector:
        assert collector.set_seed(7) == CountingEnv().set_seed(7)
        first = next(collector)["action"]
        collector.set_seed(7)
        assert torch.equal(next(collector)["action"], first)
        assert collector.set_seed(7, static_seed=True) == 7


def test_another_collector_continues_from_a_loaded_state() -> None:
    class First(torch.nn.Linear):
        def forward(self, td: TensorDictBase) -> TensorDictBase:
            return td.set("action", torch.tensor([True, False, False]))

    def make() -> Collector:
        return Collector(CountingEnv(2), First(1, 2), frames_per_batch=4, total_frames=12, trust_policy=True)

    first, second = make(), make()
    next(first)
    first.update_policy_weights_()
    second.load_state_dict(first.state_dict())
    assert torch.equal(second.policy.weight, first.policy.weight)
    batch = next(second)
    assert batch["collector", "policy_version"].tolist() == [1] * 4
    assert batch["collector", "traj_ids"].min() > 1
    assert second.stats() | {"seconds": 0, "frames_per_second": 0} == {
        "frames": 8,
        "iterations": 2,
        "seconds": 0,
        "frames_per_second": 0,
    }


PENDULUM = "gym:Pendulum-v1"


GRAVITIES = {
    "one": (lambda: SyncDataCollector(PENDULUM, frames_per_batch=10, total_frames=-1), 1),
    "a batch": (lambda: SyncDataCollector(SerialEnv(3, PENDULUM), frames_per_batch=12, total_frames=-1), 3),
    "transforms": (
        lambda: SyncDataCollector(
            TransformedEnv(SerialEnv(2, PENDULUM), StepCounter()), frames_per_batch=10, total_frames=-1
        ),
        2,
    ),
    "workers": (
        lambda: MultiSyncDataCollector(
            [partial(SerialEnv, 2, PENDULUM)] * 2, frames_per_batch=24, total_frames=-1, cat_results=0
        ),
        4,
    ),
    "workers ahead": (
        lambda: MultiaSyncDataCollector([PENDULUM] * 2, frames_per_batch=10, total_frames=-1),
        2,
    ),
}


@pytest.mark.parametrize("name", GRAVITIES)
def test_attributes_of_environments_change_between_batches(name: str) -> None:
    make, n = GRAVITIES[name]
    with make() as collector:
        next(batches := iter(collector))
        collector.set_attr("g", 2.5)
        assert collector.get_attr("g") == [2.5] * n

        collector.set_attr("g", [0.5 + row for row in range(n)])
        next(batches)
        assert collector.get_attr("g") == [0.5 + row for row in range(n)]
        assert collector.call("has_wrapper_attr", "g") == [True] * n
        with pytest.raises(
            ArgumentError, match=f"g needs a list of {n} values, one for each environment, found {n + 1}"
        ):
            collector.set_attr("g", [1.0] * (n + 1))
        with pytest.raises((AttributeError, WorkerError), match="no_such_name"):
            collector.set_attr("no_such_name", 1.0)
        next(batches)


def test_data_follows_an_attribute_that_a_collector_sets() -> None:
    """A pendulum that nothing pulls keeps its speed; gravity changes it in the next batch."""
    collector = SyncDataCollector(
        SerialEnv(2, PENDULUM), lambda td: td.set("action", torch.zeros(2, 1)), frames_per_batch=8, total_frames=-1
    )
    with collector:
        collector.set_attr("g", [0.0, 9.0])
        speeds = next(iter(collector))["next", "observation"][..., 2]

    assert torch.allclose(speeds[0], speeds[0, :1])
    assert not torch.isclose(speeds[1, 1:], speeds[1, :1]).any()
