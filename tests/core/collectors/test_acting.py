"""A policy is called once for each step, on data from the environment alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModule
from torch import nn

from steppe import (
    Categorical,
    Collector,
    Composite,
    EnvBase,
    MultiaSyncDataCollector,
    MultiSyncDataCollector,
    SerialEnv,
    Unbounded,
    aSyncDataCollector,
)
from steppe.errors import PolicyError, WorkerError
from steppe_testing import ArrayCountingEnv, CountingEnv, TextCountingEnv, assert_equal_data

pytestmark = pytest.mark.usefixtures("nothing_left")


class Place(EnvBase):
    """Observes where it is, as one of five; ends after seven steps, and refuses a second one if it is ``short``."""

    def __init__(self, short: bool = False) -> None:
        super().__init__()
        self.observation_spec = Composite(place=Unbounded((5,)))
        self.action_spec = Categorical(3)
        self.reward_spec = Unbounded((1,))
        self.t, self.short = 0, short

    def _set_seed(self, seed: int | None) -> None:
        pass

    def _observed(self) -> dict[str, torch.Tensor]:
        return {"place": nn.functional.one_hot(torch.tensor(self.t % 5), 5).float()}

    def _reset(self, tensordict: Any = None, **kwargs: Any) -> Any:
        self.t = 0
        return TensorDict(self._observed())

    def _step(self, tensordict: Any) -> Any:
        assert not (self.short and self.t), "a second step"
        self.t += 1
        return TensorDict({**self._observed(), "reward": torch.ones(1), "done": torch.tensor([self.t == 7])})


class Watching:
    """A policy that counts its calls, and asserts that its input is one-hot."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, tensordict: TensorDictBase) -> TensorDictBase:
        size = tensordict.batch_size
        assert tensordict["place"].sum(-1).eq(1).all(), "no data from the environment"
        self.calls += 1
        tensordict.set("calls", torch.full(size, self.calls))
        return tensordict.set("action", torch.full(size, self.calls % 3))


def one_or_two(rows: int) -> Any:
    return Place if not rows else lambda: SerialEnv(rows, Place)


@pytest.mark.parametrize("trust", [True, False])
@pytest.mark.parametrize("rows", [0, 2])
def test_a_batch_has_one_call_for_each_step(rows: int, trust: bool) -> None:
    policy = Watching()
    frames = 5 * (rows or 1)
    with Collector(one_or_two(rows), policy, frames_per_batch=frames, trust_policy=trust) as collector:
        assert not policy.calls
        found = [next(collector)["calls"].reshape(-1, 5) for _ in range(3)]
    assert torch.cat(found, 1).tolist() == [list(range(1, 16))] * (rows or 1)
    assert policy.calls == 15


@pytest.mark.parametrize("rows", [0, 2])
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("kind", [MultiSyncDataCollector, MultiaSyncDataCollector, aSyncDataCollector, Collector])
def test_workers_call_the_policy_once_per_step(kind: Any, workers: int, rows: int) -> None:
    if kind is aSyncDataCollector and workers > 1:
        pytest.skip("it has one worker")
    env = one_or_two(rows)
    shares = workers if kind in (MultiSyncDataCollector, Collector) else 1
    arguments: dict[str, Any] = {"frames_per_batch": 4 * shares * (rows or 1), "total_frames": 48 * shares}
    if kind is Collector:
        made = kind(env, Watching(), num_workers=workers, **arguments)
    else:
        made = kind([env] * workers, Watching(), **arguments)
    with made as collector:
        batches = [next(collector)["calls"].reshape(-1, 4)[:: rows or 1] for _ in range(4)]
    # Each worker counts for itself, and each batch of its has the next four calls.
    sequences = sorted(torch.cat(batches).tolist())
    assert 1 <= sequences.count([1, 2, 3, 4]) <= workers
    assert all(sequence == list(range(sequence[0], sequence[0] + 4)) and sequence[0] % 4 == 1 for sequence in sequences)
    if shares == workers:
        assert [sequence[0] for sequence in sequences] == sorted([1, 5, 9, 13] * workers)


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("rows", [0, 3])
def test_requests_call_it_once_for_each_step(workers: int, rows: int) -> None:
    with Collector(one_or_two(rows), Watching(), num_workers=workers) as collector:
        first = collector.execute(n_episodes=1).result()
        second = collector.execute(n_episodes=(rows or 1) * max(workers, 1)).result()
        collector.reset()
        third = collector.execute(n_steps=3).result()
    assert first.steps["calls"].tolist() == [[1, 2, 3, 4, 5, 6, 7]]
    after = [7 if worker == max(workers, 1) - 1 else 0 for worker in range(max(workers, 1)) for _ in range(rows or 1)]
    assert second.steps["calls"][:, 0].tolist() == [calls + 1 for calls in after]
    assert third.steps["calls"].tolist() == [[calls + 8, calls + 9, calls + 10] for calls in after]


def test_slots_are_laid_out_when_all_workers_have_acted() -> None:
    with Collector(Place, Watching(), num_workers=2, slot_len=3) as collector:
        assert collector.execute(n_episodes=1).result().length.tolist() == [7]
        assert collector.requests.runner.slots is None, "one of them has not"
        assert collector.execute(n_episodes=5).result().length.tolist() == [7] * 5
        assert set(collector.requests.runner.slots.steps.tensors) >= {"calls", "place", ("next", "reward")}


@pytest.mark.parametrize("workers", [0, 2])
def test_iteration_after_requests_continues_the_count(workers: int) -> None:
    with Collector(Place, Watching(), num_workers=workers, frames_per_batch=2 * max(workers, 1)) as collector:
        collector.execute(n_episodes=max(workers, 1)).result()
        assert next(collector)["calls"].reshape(-1, 2).tolist() == [[8, 9]] * max(workers, 1)


class Normalized(nn.Module):
    """Counts in its statistics, and draws from numpy."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(5)

    def forward(self, place: torch.Tensor) -> torch.Tensor:
        self.norm(place.reshape(-1, 5).expand(2, 5))
        return torch.full(place.shape[:-1], int(np.random.default_rng(int(np.random.randint(1000))).integers(3)))


@pytest.mark.parametrize("request_form", [True, False])
def test_statistics_and_random_numbers_match_a_loop(request_form: bool) -> None:
    def policy() -> TensorDictModule:
        np.random.seed(5)
        return TensorDictModule(Normalized(), ["place"], ["action"])

    env, by_hand = Place(), policy()
    td, expected = env.reset(), []
    for _ in range(7):
        td, following = env.step_and_maybe_reset(by_hand(td))
        expected.append(td["action"].item())
        td = following

    acting = policy()
    with Collector(Place(), acting, frames_per_batch=7) as collector:
        steps = collector.execute(n_episodes=1).result().steps[0] if request_form else next(collector)
    assert steps["action"].tolist() == expected
    assert acting.module.norm.num_batches_tracked == 7
    assert torch.equal(acting.module.norm.running_mean, by_hand.module.norm.running_mean)


# -- random frames ----------------------------------------------------------------------------------------------------


def test_random_frames_do_not_call_the_policy() -> None:
    policy = Watching()
    with Collector(Place, policy, frames_per_batch=6, init_random_frames=7, seed=0) as collector:
        batches = [next(collector) for _ in range(4)]
        assert [("calls" in batch.keys()) for batch in batches] == [False, False, True, True]
    assert torch.cat([batch["calls"] for batch in batches[2:]]).tolist() == list(range(1, 13))
    env = Place()
    env.set_seed(0)
    expected = env.rollout(12, break_when_any_done=False)
    assert_equal_data(torch.cat(batches[:2]).exclude("collector"), expected)


@pytest.mark.parametrize("env", [ArrayCountingEnv, CountingEnv, TextCountingEnv])
def test_random_frames_match_a_rollout(env: Any) -> None:
    def policy(td: TensorDictBase) -> TensorDictBase:
        return td.update({"action": torch.tensor([True, False, False]), "value": torch.ones(1)})

    with Collector(env(50), policy, frames_per_batch=10, init_random_frames=20, seed=4) as collector:
        batches = [next(collector) for _ in range(3)]
    one = env(50)
    one.set_seed(4)
    data = one.rollout(20)
    assert torch.cat([batch["action"] for batch in batches[:2]]).equal(data["action"])
    assert torch.cat([batch["observation"] for batch in batches]).flatten().tolist() == list(range(30))
    assert batches[2]["value"].eq(1).all()


@pytest.mark.parametrize("kind", [MultiSyncDataCollector, MultiaSyncDataCollector])
def test_random_frames_of_workers_do_not_call_the_policy(kind: Any) -> None:
    with kind([Place] * 2, Watching(), frames_per_batch=4, init_random_frames=8) as collector:
        batches = [next(collector) for _ in range(12)]
    random = [batch for batch in batches if "calls" not in batch.keys()]
    steps = 4 if kind is MultiaSyncDataCollector else 2
    acted = [batch["calls"].reshape(-1, steps) for batch in batches[2:]]
    assert len(random) == 2
    assert all(torch.equal(calls.diff(), torch.ones_like(calls[:, 1:])) for calls in acted)
    assert acted[0][:, 0].eq(1).all()


def test_whole_trajectories_hold_zeros_for_the_random_part() -> None:
    """A trajectory with random and policy actions has zeros for the policy's entries."""
    with Collector(Place, Watching(), frames_per_batch=5, init_random_frames=5, trajs_per_batch=2) as collector:
        batch = next(collector)
    assert batch["calls"].tolist() == [[0] * 5 + [1, 2], [3, 4, 5, 6, 7, 8, 9]]


# -- a policy that does not fit ---------------------------------------------------------------------------------------


def narrow() -> TensorDictModule:
    return TensorDictModule(nn.Linear(4, 3), ["place"], ["action"])


ASKED: dict[str, Any] = {
    "iterate": next,
    "request": lambda collector: collector.execute(n_episodes=2).result(),
    "slice": lambda collector: collector.execute(n_steps=2).result(),
}


@pytest.mark.parametrize("ask", ASKED)
def test_a_policy_that_does_not_fit_is_named_at_its_first_call(ask: str) -> None:
    with Collector(Place, narrow(), frames_per_batch=5) as collector:
        with pytest.raises(PolicyError, match=r"Collector: the policy TensorDictModule .*with .*'place' \[(1, )?5\]"):
            ASKED[ask](collector)
        assert collector.env.t == 0


@pytest.mark.parametrize("ask", ["iterate", "request", "slice"])
def test_no_worker_takes_a_second_step_before_that_is_heard(ask: str) -> None:
    env = lambda: Place(short=True)  # noqa: E731
    policies = [Watching, narrow]
    with MultiSyncDataCollector([env] * 2, policy_factory=policies, frames_per_batch=8) as collector:
        with pytest.raises(WorkerError, match=r"Worker 1.*PolicyError.*the policy TensorDictModule") as caught:
            ASKED[ask](collector)
        assert "a second step" not in str(caught.value)


def test_a_trusted_policy_raises_what_it_raises() -> None:
    with Collector(Place, narrow(), frames_per_batch=5, trust_policy=True) as collector, pytest.raises(RuntimeError):
        next(collector)


def test_a_state_that_a_request_would_lose_is_refused() -> None:
    def counting(td: TensorDictBase) -> TensorDictBase:
        td.set("action", torch.zeros(td.batch_size, dtype=torch.int64))
        return td.set(("next", "memory"), td.get("memory", torch.zeros(*td.batch_size, 1)) + 1)

    with (
        Collector(Place, counting) as collector,
        pytest.raises(PolicyError, match=r"\('next', 'memory'\).*TensorDictPrimer"),
    ):
        collector.execute(n_episodes=1).result()
