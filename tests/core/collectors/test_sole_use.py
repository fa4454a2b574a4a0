"""Who uses the environment of a collector in between joins no two states: a new trajectory begins, with a warning."""

from __future__ import annotations

import copy
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tensordict import TensorDictBase
from torch import nn

from steppe import Collector, EnvBase, ParallelEnv, SerialEnv, StepCounter, TransformedEnv
from steppe.batched import AsyncEnvPool
from steppe.errors import StateError
from steppe_testing import ArrayCountingEnv, CountingEnv
from tests.limits import CHILD

LENGTH = 40

ENVS: dict[str, Callable[[], EnvBase]] = {
    "tensordicts": lambda: CountingEnv(LENGTH),
    "arrays": lambda: ArrayCountingEnv(LENGTH),
    "transformed": lambda: TransformedEnv(CountingEnv(LENGTH), StepCounter()),
    "transformed arrays": lambda: TransformedEnv(ArrayCountingEnv(LENGTH), StepCounter()),
    "kept as it is": lambda: TransformedEnv(
        TransformedEnv(ArrayCountingEnv(LENGTH), StepCounter()), StepCounter(step_count_key="two"), auto_unwrap=False
    ),
    "a batch": lambda: CountingEnv(LENGTH, batch_size=(3,)),
    "serial": lambda: SerialEnv(3, lambda: ArrayCountingEnv(LENGTH)),
    "serial on tensordicts": lambda: SerialEnv(3, lambda: CountingEnv(LENGTH)),
    "transformed serial": lambda: TransformedEnv(SerialEnv(3, lambda: ArrayCountingEnv(LENGTH)), StepCounter()),
    "parallel": lambda: ParallelEnv(3, lambda: ArrayCountingEnv(LENGTH), num_processes=1),
    "threads": lambda: AsyncEnvPool([lambda: ArrayCountingEnv(LENGTH)] * 3, backend="threading"),
}
SINGLE = ["tensordicts", "arrays", "transformed", "transformed arrays", "kept as it is"]
ROWS = ["serial", "serial on tensordicts", "parallel", "threads"]


def played(env: EnvBase) -> TensorDictBase:
    return env.rand_action(env.reset())


def goes_on(env: EnvBase) -> None:
    data = env.rollout(2)
    env.rollout(3, auto_reset=False, tensordict=env.step_mdp(data[..., -1]))


def at_rows(env: EnvBase) -> None:
    env.step_at(env.rand_action(env.reset())[:2], [0, 1])


USES: dict[str, Callable[[Any], Any]] = {
    "rollout": lambda env: env.rollout(3),
    "rollout that goes on": goes_on,
    "reset": lambda env: env.reset(),
    "step": lambda env: env.step(played(env)),
    "step and reset": lambda env: env.step_and_maybe_reset(played(env)),
    "many steps": lambda env: env.rollout(7, break_when_any_done=False),
}


def two_batches(collector: Any, between: Callable[[], Any]) -> tuple[Any, Any]:
    with collector:
        first = next(collector)
        between()
        return first, next(collector)


def assert_begins_anew(first: TensorDictBase, second: TensorDictBase) -> None:
    assert not set(first["collector", "traj_ids"].unique().tolist()) & set(
        second["collector", "traj_ids"].unique().tolist()
    )
    observed = second["observation"]
    assert observed[..., 0, :].eq(0).all(), "an episode begins"
    assert torch.equal(second["next", "observation"][..., :-1, :], observed[..., 1:, :])
    assert observed.squeeze(-1).diff(dim=-1).eq(1).all()


def assert_noticed(collector: Any, use: Callable[[], Any]) -> None:
    """Assert that a use between two batches warns, and starts new trajectories."""
    with pytest.warns(UserWarning, match="an environment of its own"):
        first, second = two_batches(collector, use)
    assert_begins_anew(first, second)


def assert_goes_on(first: TensorDictBase, second: TensorDictBase) -> None:
    assert torch.equal(first["collector", "traj_ids"][..., -1], second["collector", "traj_ids"][..., 0])
    assert torch.equal(first["next", "observation"][..., -1, :], second["observation"][..., 0, :])


@pytest.mark.parametrize(
    ("name", "use"),
    [(name, use) for name in ENVS for use in USES if name != "parallel" or use in ("rollout that goes on", "step")],
)
def test_new_trajectories_begin_after_a_use_by_others(name: str, use: str) -> None:
    env = ENVS[name]()
    collector = Collector(env, frames_per_batch=5 * env.numel(), seed=1)
    with pytest.warns(UserWarning, match="an environment of its own") as told:
        first, second = two_batches(collector, lambda: USES[use](env))
    assert len(told) == 1
    assert_begins_anew(first, second)


@pytest.mark.parametrize("name", ENVS)
def test_trajectories_continue_without_other_uses(name: str) -> None:
    env = ENVS[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for policy in (None, Ones()):
            made = ENVS[name]()
            first, second = two_batches(Collector(made, policy, frames_per_batch=5 * made.numel()), lambda: None)
            assert_goes_on(first, second)
        first, second = two_batches(
            Collector(env, frames_per_batch=5 * env.numel()),
            lambda: (env.rand_action(), env.fake_tensordict(), env.set_seed(3), env.specs),
        )
    assert_goes_on(first, second)


class Ones(nn.Module):
    """Always the first choice."""

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        return torch.tensor([1, 0, 0]).expand(*observation.shape[:-1], 3)


@pytest.mark.parametrize("name", ENVS)
def test_a_policy_acts_on_no_stale_data(name: str) -> None:
    env = ENVS[name]()
    collector = Collector(env, Ones(), frames_per_batch=4 * env.numel())
    assert_noticed(collector, lambda: env.rollout(6, Ones()))


@pytest.mark.parametrize("name", ["transformed", "transformed arrays", "kept as it is", "transformed serial"])
def test_uses_of_the_base_are_noticed(name: str) -> None:
    for use in ("rollout", "step", "reset"):
        env: Any = ENVS[name]()
        collector = Collector(env, frames_per_batch=5 * env.numel())
        assert_noticed(collector, lambda use=use, env=env: USES[use](env.base_env))


def test_uses_by_other_transforms_of_the_base_are_noticed() -> None:
    for transformed in (True, False):
        base = ArrayCountingEnv(LENGTH)
        env, other = (TransformedEnv(base, StepCounter()) for _ in range(2))
        collector = Collector(env if transformed else base, frames_per_batch=6)
        assert_noticed(collector, lambda other=other: other.rollout(4))


class Around(EnvBase):
    """An environment that steps an inner environment."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = ArrayCountingEnv(LENGTH)
        for kind in ("observation", "action", "reward", "done"):
            setattr(self, f"full_{kind}_spec", getattr(self.inner, f"full_{kind}_spec").clone())

    def _reset(self, tensordict: Any = None, **kwargs: Any) -> Any:
        return self.inner.reset()

    def _step(self, tensordict: Any) -> Any:
        return self.inner.step(tensordict.copy())["next"]

    def _set_seed(self, seed: int | None) -> None:
        self.inner.set_seed(seed)


def test_uses_of_an_environment_inside_are_noticed() -> None:
    env = Around()
    assert_noticed(Collector(env, frames_per_batch=5), lambda: env.inner.rollout(2))
    env = Around()
    assert_goes_on(*two_batches(Collector(env, frames_per_batch=5), lambda: None))


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize(
    "use",
    [at_rows, lambda env: env.reset_at(None, [1]), lambda env: env[0].reset(), lambda env: env[1:].rollout(2)],
)
def test_uses_of_some_rows_are_noticed(name: str, use: Any) -> None:
    env = ENVS[name]()
    assert_noticed(Collector(env, frames_per_batch=12), lambda: use(env))


def test_uses_of_a_pool_begin_new_trajectories() -> None:
    pool = ENVS["threads"]()

    def use() -> None:
        pool.async_reset_send(env_index=[2])
        pool.async_reset_recv(env_index=[2])

    assert_noticed(Collector(pool, frames_per_batch=12), use)


@pytest.mark.parametrize("name", ["arrays", "serial", "transformed"])
def test_two_collectors_of_one_environment_restart_in_turn(name: str) -> None:
    env = ENVS[name]()
    one, other = (Collector(env, frames_per_batch=4 * env.numel()) for _ in range(2))
    next(one)
    next(other)
    with pytest.warns(UserWarning, match="an environment of its own"):
        assert next(one)["observation"][..., 0, :].eq(0).all()
    with pytest.warns(UserWarning, match="an environment of its own"):
        assert next(other)["observation"][..., 0, :].eq(0).all()
    env.close()


def test_resets_that_come_anyway_warn_of_nothing() -> None:
    env = ENVS["arrays"]()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Collector(env, frames_per_batch=5, reset_at_each_iter=True) as collector:
            next(collector)
            env.rollout(2)
            next(collector)
    env = ENVS["arrays"]()
    with warnings.catch_warnings(), Collector(env, frames_per_batch=5) as collector:
        warnings.simplefilter("error")
        next(collector)
        env.rollout(2)
        collector.reset()
        next(collector)


def test_trajectories_that_are_gone_are_never_whole() -> None:
    env = ArrayCountingEnv(7)
    with Collector(env, frames_per_batch=5, trajs_per_batch=1, traj_format="cat", seed=2) as collector:
        whole = [next(collector)]
        for _ in range(4):
            env.rollout(2)
            with pytest.warns(UserWarning, match="an environment of its own"):
                whole.append(next(collector))
    for data in whole:
        assert data["observation"].flatten().tolist() == list(range(7))


def in_a_thread(work: Callable[[], Any]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(CHILD)


@pytest.mark.parametrize("name", ["arrays", "serial", "tensordicts"])
def test_uses_of_another_thread_between_batches_are_noticed(name: str) -> None:
    env = ENVS[name]()
    assert_noticed(Collector(env, frames_per_batch=5 * env.numel()), lambda: in_a_thread(lambda: env.rollout(3)))


class Meddling(nn.Module):
    """Has something done at its fourth call, in the middle of a batch."""

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__()
        self.work, self.calls = work, 0

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self.calls == 4:
            self.work()
        return torch.tensor([0, 1, 0]).expand(*observation.shape[:-1], 3)


@pytest.mark.parametrize("name", ["arrays", "serial", "tensordicts", "transformed"])
@pytest.mark.parametrize("use", ["rollout", "step"])
def test_a_use_of_another_thread_within_a_batch_is_an_error(name: str, use: str) -> None:
    env = ENVS[name]()
    policy = Meddling(lambda: in_a_thread(lambda: USES[use](env)))
    with Collector(env, policy, frames_per_batch=9 * env.numel(), trust_policy=False) as collector:
        with pytest.raises(StateError, match="while a batch was being collected"):
            next(collector)
        assert next(collector)["observation"][..., 0, :].eq(0).all(), "the next batch begins anew"


def test_a_batch_of_an_environment_in_use_is_refused() -> None:
    env = ENVS["tensordicts"]()
    with Collector(env, frames_per_batch=3) as collector:
        with pytest.raises(StateError, match="being stepped by someone else"):
            env.rollout(4, callback=lambda env, td: next(collector))
        next(collector)


@pytest.mark.parametrize("name", ["arrays", "serial", "transformed", "tensordicts"])
def test_slices_restart_after_other_uses(name: str) -> None:
    env = ENVS[name]()
    with Collector(env, seed=0) as collector:
        collector.execute(n_steps=4).result()
        on = collector.execute(n_steps=3).result()
        assert on.steps["observation"][:, 0].eq(4).all()
        env.rollout(2)
        with pytest.warns(UserWarning, match="an environment of its own"):
            job = collector.execute(n_steps=5)
        anew = job.result()
        assert anew.steps["observation"][:, 0].eq(0).all()
        assert not set(anew.episode.tolist()) & set(on.episode.tolist())
        assert collector.execute(n_steps=2).result().steps["observation"][:, 0].eq(5).all()


def test_a_job_whose_environment_was_used_in_between_is_an_error() -> None:
    env = SerialEnv(2, lambda: CountingEnv(3000))
    with Collector(env) as collector:
        job = collector.execute(n_episodes=2)
        assert not job.done()
        env.rollout(2)
        with pytest.raises(StateError, match="an environment of its own"):
            job.result()
        assert collector.execute(n_steps=3).result().steps["observation"][:, 0].eq(0).all()


def test_an_environment_without_a_state_may_be_used_by_all() -> None:
    env = CountingEnv(LENGTH)
    env.batch_locked = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        two_batches(Collector(env, frames_per_batch=5), lambda: env.rollout(2))


def test_copies_are_used_apart() -> None:
    for name in ("arrays", "transformed", "tensordicts"):
        env = ENVS[name]()
        env.reset()
        for twin in (copy.copy(env), copy.deepcopy(env)):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                assert_goes_on(*two_batches(Collector(twin, frames_per_batch=5), lambda env=env: env.rollout(2)))
    env = copy.deepcopy(ENVS["transformed"]())
    with pytest.warns(UserWarning, match="an environment of its own"):
        two_batches(Collector(env, frames_per_batch=5), lambda: env.base_env.rollout(2))
