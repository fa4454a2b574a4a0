"""Private entries are left out of data unless they are declared."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModule

from steppe import Collector, MultiSyncDataCollector, ParallelEnv, SerialEnv, TransformedEnv
from steppe.envs import declared_keys, is_kept, without_private
from steppe.specs import Composite, Unbounded
from steppe.transforms import Compose, StepCounter, TensorDictPrimer, Transform
from steppe_testing import ArrayCountingEnv, CountingEnv


class Remembers(Transform):
    """Keeps the last observation as a memory."""

    def memory_spec(self, specs: Any) -> Composite:
        return Composite({"__last": specs.observation["observation"].clone()}, shape=specs.batch_size)

    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        return next_tensordict.set("__last", tensordict["observation"])

    def _reset(self, tensordict: TensorDictBase, tensordict_reset: TensorDictBase) -> TensorDictBase:
        return tensordict_reset.set("__last", tensordict_reset["observation"])


class Noisy:
    """Makes an environment whose resets draw a noise, as gSDE does."""

    def __init__(self, base: Any) -> None:
        self.base = base

    def __call__(self) -> TransformedEnv:
        noise = TensorDictPrimer({"_eps_gSDE": Unbounded((2, 3))}, random=True)
        return TransformedEnv(self.base(5), Compose(noise, StepCounter(), Remembers(in_keys=["observation"])))


def act(observation: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, ...]:
    choice = torch.zeros((*observation.shape[:-1], 3), dtype=torch.bool)
    choice[..., 0] = True
    return choice, noise.sum(-1), noise.sum((-1, -2)), observation


def policy() -> TensorDictModule:
    """Reads the noise, and writes two private entries, of which one is no output that it declares."""
    module = TensorDictModule(act, ["observation", "_eps_gSDE"], ["action", "_features", "score", "_"])
    return module


PLACES: dict[str, Any] = {
    "on TensorDicts": lambda: Noisy(CountingEnv)(),
    "on rows": lambda: Noisy(ArrayCountingEnv)(),
    "in a batch": lambda: SerialEnv(2, Noisy(ArrayCountingEnv)),
    "in a batch of TensorDicts": lambda: SerialEnv(2, Noisy(CountingEnv)),
    "in workers": lambda: ParallelEnv(2, Noisy(ArrayCountingEnv)),
}


def check(data: TensorDictBase, *, acted: bool) -> None:
    """Assert that the noise is in the data and was used, and that memory is not."""
    noise = data["_eps_gSDE"]
    assert noise.shape == (*data.batch_size, 2, 3)
    assert torch.equal(data["next", "_eps_gSDE"], noise)
    assert bool(noise.any())
    names = {name for key in data.keys(True) for name in ((key,) if isinstance(key, str) else key)}
    assert {name for name in names if name[0] == "_"} == {"_eps_gSDE", *(["_features"] if acted else [])}
    if acted:
        torch.testing.assert_close(data["_features"], noise.sum(-1))


@pytest.mark.parametrize("acted", [True, False], ids=["policy", "random"])
@pytest.mark.parametrize("place", PLACES)
def test_declared_noise_is_in_rollouts(place: str, acted: bool) -> None:
    with PLACES[place]() as env:
        for options in ({}, {"break_when_any_done": False}):
            check(env.rollout(7, policy() if acted else None, **options), acted=acted)


@pytest.mark.parametrize("acted", [True, False], ids=["policy", "random"])
@pytest.mark.parametrize("place", PLACES)
def test_declared_noise_is_in_batches_of_a_collector(place: str, acted: bool) -> None:
    with PLACES[place]() as env, Collector(env, policy() if acted else None, frames_per_batch=16) as collector:
        for _ in range(2):
            check(next(collector), acted=acted)


def test_declared_noise_is_in_batches_of_workers() -> None:
    make = Noisy(ArrayCountingEnv)
    with MultiSyncDataCollector([make, make], policy(), frames_per_batch=16) as collector:
        check(next(collector), acted=True)


@pytest.mark.parametrize("place", ["on rows", "in a batch"])
def test_declared_noise_is_in_what_a_request_gives(place: str) -> None:
    with PLACES[place]() as env, Collector(env, policy(), frames_per_batch=4) as collector:
        steps = collector.execute(n_episodes=3).result().steps
    names = set(steps.keys(True))
    assert {"_eps_gSDE", ("next", "_eps_gSDE"), "_features"} <= names
    assert "__last" not in names


@pytest.mark.parametrize("base", [CountingEnv, ArrayCountingEnv])
def test_underscored_entries_of_a_policy_are_left_out(base: Any) -> None:
    def noting(td: TensorDictBase) -> TensorDictBase:
        return td.update({"action": torch.tensor([True, False, False]), "_note": torch.ones(1), "seen": torch.ones(1)})

    data = base(5).rollout(4, noting)
    assert "_note" not in data.keys()
    assert data["seen"].shape == (4, 1)
    with Collector(base(5), noting, frames_per_batch=4) as collector:
        assert "_note" not in next(collector).keys()


def test_a_group_is_kept_for_the_entry_that_is_declared() -> None:
    class Declares:
        out_keys = ("action", ("_group", "noise"), "_")

    declared = declared_keys(CountingEnv(), Declares())
    inner = TensorDict(noise=torch.ones(2), other=torch.zeros(2))
    data = TensorDict(
        a=torch.zeros(1), _b=torch.zeros(1), _group=inner, next=TensorDict(_group=inner.copy(), _=torch.zeros(1))
    )
    kept = {"a", ("_group", "noise"), ("next", "_group", "noise")}
    assert set(without_private(data, declared).keys(True, True)) == kept
    assert without_private(data.select("a"), declared).keys() == {"a"}
    assert is_kept(("next", "a"), frozenset())
    assert not is_kept(("next", "_reset"), declared)
