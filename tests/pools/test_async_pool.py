"""Pools as any environment: how they are made, and that their data is that of any batch."""

from __future__ import annotations

import pickle
from copy import deepcopy
from functools import partial
from typing import Any

import pytest
import torch

import steppe_pools
from steppe import (
    AsyncEnvPool,
    Collector,
    ProcessorAsyncEnvPool,
    SerialEnv,
    StepCounter,
    ThreadingAsyncEnvPool,
    TransformedEnv,
    make_env,
)
from steppe.errors import ActionError, ArgumentError, IgnoredArgumentWarning, NotSupported, SpecError
from steppe_gym import GymEnv
from steppe_testing import ArrayCountingEnv, CountingEnv, NestedCountingEnv, TextCountingEnv

pytestmark = pytest.mark.usefixtures("nothing_left")

CARTPOLE, PENDULUM = "gym:CartPole-v1", "gym:Pendulum-v1"


def test_the_backend_decides_the_class() -> None:
    threads = AsyncEnvPool([CARTPOLE])
    processes = AsyncEnvPool([CARTPOLE], backend="multiprocessing")

    assert type(threads) is ThreadingAsyncEnvPool
    assert type(processes) is ProcessorAsyncEnvPool
    assert type(ProcessorAsyncEnvPool([CARTPOLE])) is ProcessorAsyncEnvPool
    assert isinstance(threads, AsyncEnvPool)
    assert isinstance(processes, AsyncEnvPool)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"env_makers": []}, "a list with a factory for each"),
        ({"env_makers": [CARTPOLE], "backend": "asyncio"}, "'threading', 'multiprocessing', found 'asyncio'"),
        ({"env_makers": [CARTPOLE], "stack": "loose"}, "'dense', 'maybe_dense', 'lazy', found 'loose'"),
        ({"env_makers": [CARTPOLE], "step_timeout": 0}, "above 0"),
        ({"env_makers": [CARTPOLE], "mp_start_method": "fork"}, "leave it out, or pass backend="),
        ({"env_makers": [CARTPOLE], "mp_start_method": "x", "backend": "multiprocessing"}, "found 'x'"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises((ArgumentError, SpecError), match=text):
        AsyncEnvPool(**arguments)


def test_a_class_with_the_other_backend_is_refused() -> None:
    with pytest.raises(SpecError, match="has backend='threading', found 'multiprocessing'"):
        ThreadingAsyncEnvPool([CARTPOLE], backend="multiprocessing")


def test_the_example_of_a_pendulum_and_a_cartpole(pool: Any) -> None:
    env = pool([partial(GymEnv, "Pendulum-v1"), partial(GymEnv, "CartPole-v1")], stack="lazy")
    assert env.batch_size == (2,)
    reset = env.reset()
    s = env.rand_step(reset)
    s0 = s[0]
    s0["action"] = torch.randn(1).clamp(-1, 1)
    s0["env_index"] = 0
    env.async_step_send(s0)

    result = env.async_step_recv()

    assert result.batch_size == (1,)
    assert result["env_index"].tolist() == [0]
    assert result["next", "observation"].shape == (1, 3)
    assert torch.equal(result["action"][0], s0["action"])
    assert s[1]["next", "observation"].shape == (4,)


@pytest.mark.parametrize("factory", [CARTPOLE, PENDULUM, CountingEnv, NestedCountingEnv, TextCountingEnv], ids=str)
@pytest.mark.parametrize("break_when_any_done", [True, False])
def test_rollouts_equal_a_serial_envs(pool: Any, factory: Any, break_when_any_done: bool) -> None:
    env, serial = pool([factory] * 3), SerialEnv(3, factory)

    assert env.set_seed(7) == serial.set_seed(7)
    got, wanted = (one.rollout(40, break_when_any_done=break_when_any_done) for one in (env, serial))

    assert type(got) is type(wanted)
    assert (got.exclude("text", ("next", "text")) == wanted.exclude("text", ("next", "text"))).all()
    serial.close()


@pytest.mark.parametrize("factory", [CARTPOLE, CountingEnv, TextCountingEnv], ids=str)
def test_masks_step_and_reset_some_rows(pool: Any, factory: Any) -> None:
    data = []
    for env in (pool([factory] * 3), SerialEnv(3, factory)):
        env.set_seed(3)
        td = env.rand_step(env.reset())
        root = env.rand_action(env.step_mdp(td))
        stepped = env.step(root.set("_step", torch.tensor([True, False, True])))
        root = env.step_mdp(stepped)
        root["_reset"] = torch.tensor([[False], [True], [False]])
        data.append((stepped, env.reset(root)))
        env.close()

    for got, wanted in zip(*data, strict=True):
        assert (got.exclude("text", ("next", "text")) == wanted.exclude("text", ("next", "text"))).all()


def test_specs_and_attributes_equal_a_batchs(pool: Any) -> None:
    env, serial = pool([PENDULUM] * 2, create_env_kwargs=[{"g": 1.0}, {"g": 2.0}]), SerialEnv(2, PENDULUM)

    assert env.specs == serial.specs
    assert list(env.unwrapped.g) == [1.0, 2.0]
    assert env.num_envs == 2
    env.check_env_specs()
    serial.close()


@pytest.mark.parametrize("stack", ["lazy", "maybe_dense"])
def test_unequal_environments_go_through_every_call(pool: Any, stack: str) -> None:
    env = pool([PENDULUM, CARTPOLE, PENDULUM], stack=stack)
    env.set_seed(0)
    ones = [make_env(name) for name in (PENDULUM, CARTPOLE, PENDULUM)]
    seed = 0
    for one in ones:
        seed = one.set_seed(seed)

    data = env.rollout(60, break_when_any_done=False)

    assert data.shape == (3, 60)
    assert [row["next", "observation"].shape[-1] for row in data.unbind(0)] == [3, 4, 3]
    for row, one in zip(data.unbind(0), ones, strict=True):
        root = one.reset()
        for at in range(60):
            assert torch.equal(root["observation"], row[at]["observation"])
            stepped, root = one.step_and_maybe_reset(root.set("action", row[at]["action"]))
            assert torch.equal(stepped["next", "observation"], row[at]["next", "observation"])
    assert data[1]["next", "done"].any()
    assert env.action_keys == ["action"]


def test_a_mask_leaves_unequal_rows_alone(pool: Any) -> None:
    env = pool([PENDULUM, CARTPOLE], stack="lazy")
    td = env.rand_action(env.reset())

    stepped = env.step(td.copy().set("_step", torch.tensor([False, True])))

    assert torch.equal(stepped[0]["next", "observation"], td[0]["observation"])
    assert not torch.equal(stepped[1]["next", "observation"], td[1]["observation"])


def test_unequal_environments_need_another_stack(pool: Any) -> None:
    env = pool([PENDULUM, CARTPOLE])

    with pytest.raises(NotSupported, match=r"(?s)0 and 1 differ in their observation specs.*stack=.lazy"):
        env.reset()


def test_an_action_of_another_environments_spec_is_refused(pool: Any) -> None:
    """In a pool of unequal environments, each action must fit its own environment."""
    env = pool([PENDULUM, CARTPOLE], stack="lazy")
    td = env.rand_action(env.reset())

    with pytest.raises(ActionError, match="must have shape"):
        env.async_step_send(td[0], env_index=1)
    td[1]["action"] = td[0]["action"]
    with pytest.raises(ActionError, match="must have shape"):
        env.step(td)


def test_transforms_and_collectors_take_a_pool(pool: Any) -> None:
    env = TransformedEnv(pool([PENDULUM] * 2), StepCounter(max_steps=3))
    assert env.rollout(10)["next", "step_count"].flatten().tolist() == [1, 2, 3] * 2

    collector = Collector(env, frames_per_batch=20, total_frames=40)

    assert [batch.shape for batch in collector] == [(2, 10)] * 2
    collector.shutdown()


@pytest.mark.parametrize("copy", [deepcopy, lambda env: pickle.loads(pickle.dumps(env))], ids=["copied", "pickled"])
def test_a_copy_is_a_separate_pool(pool: Any, copy: Any) -> None:
    env = pool([CARTPOLE] * 2)
    env.async_step_send(env.rand_action(env.reset()))

    with copy(env) as other:
        assert type(other) is type(env)
        assert other.rollout(3).shape == (2, 3)

    assert len(env.async_step_recv(min_get=2)) == 2


def test_data_is_on_the_requested_device(pool: Any) -> None:
    env = pool([PENDULUM] * 2, device="cpu")
    env.async_reset_send()
    root = env.async_reset_recv(min_get=2)
    env.async_step_and_maybe_reset_send(env.rand_action(root))

    data = (root, *env.async_step_and_maybe_reset_recv(min_get=2))

    assert {td.device for td in data} == {torch.device("cpu")}


def test_a_pool_takes_one_factory_and_environments_that_are_made(pool: Any) -> None:
    made = ArrayCountingEnv(start=7)

    assert pool(ArrayCountingEnv).batch_size == (1,)
    assert pool([made, ArrayCountingEnv]).reset()["observation"].flatten().tolist() == [7, 0]
    with pytest.raises(SpecError, match="has the same environment twice"):
        pool([made, made])


def test_arguments_about_data_exchange_only_warn(pool: Any) -> None:
    """A pool takes arguments that choose how it exchanges data, with a warning."""
    with pytest.warns(IgnoredArgumentWarning, match="exchange has no effect: data of fixed shapes is in shared memory"):
        env = pool([ArrayCountingEnv] * 2, exchange="shm")
    assert (env.exchange, env.envs_per_worker, env.env_batch_sizes) == ("shm", 1, [torch.Size([])] * 2)

    env.shutdown()
    env.shutdown()
    assert env.is_closed


def test_the_names_are_found_in_steppe() -> None:
    import steppe

    for name in steppe_pools.__all__:
        package = steppe.collectors if name.endswith("Collector") else steppe.batched
        assert getattr(steppe, name) is getattr(package, name) is getattr(steppe_pools, name)
    with pytest.raises(AttributeError, match=r"module 'steppe\.batched' has no attribute 'AsyncPool'"):
        steppe.batched.AsyncPool  # noqa: B018
