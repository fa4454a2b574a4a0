"""Pools: the data of any batch, at the pace of each environment; what goes wrong is named, and nothing is left."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import LazyStackedTensorDict, TensorDict

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
from steppe.errors import (
    ActionError,
    ClosedError,
    IgnoredArgumentWarning,
    NotSupported,
    SpecError,
    StateError,
    WorkerError,
    WorkerTimeout,
)
from steppe.workers import Pool
from steppe_gym import GymEnv
from steppe_testing import (
    ArrayCountingEnv,
    CountingEnv,
    DyingEnv,
    FailingEnv,
    HangingEnv,
    NestedCountingEnv,
    SlowEnv,
    TextCountingEnv,
)
from tests.core.batched.gates import Gate, HeldEnv
from tests.limits import ANSWER, AT_ONCE, CHILD
from tools.workspace import ROOT

pytestmark = pytest.mark.usefixtures("nothing_left")

CARTPOLE, PENDULUM = "gym:CartPole-v1", "gym:Pendulum-v1"


@pytest.fixture(params=["threading", "multiprocessing"])
def pool(request: pytest.FixtureRequest) -> Any:
    """Makes a pool with either backend, and closes it."""
    made: list[Any] = []

    def make(factories: Any, **kwargs: Any) -> Any:
        made.append(AsyncEnvPool(factories, backend=request.param, **kwargs))
        return made[-1]

    yield make
    for one in made:
        one.close(raise_if_closed=False)


def same(one: Any, other: Any) -> bool:
    keys = set(one.keys(True, True)) | set(other.keys(True, True))
    return all(torch.equal(torch.as_tensor(one.get(key)), torch.as_tensor(other.get(key))) for key in keys)


# -- what is made


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
        ({"env_makers": [CARTPOLE], "mp_start_method": "fork"}, "leave it out, or use backend="),
        ({"env_makers": [CARTPOLE], "mp_start_method": "x", "backend": "multiprocessing"}, "found 'x'"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(SpecError, match=text):
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


# -- as any environment


@pytest.mark.parametrize("factory", [CARTPOLE, PENDULUM, CountingEnv, NestedCountingEnv, TextCountingEnv], ids=str)
@pytest.mark.parametrize("break_when_any_done", [True, False])
def test_rollouts_are_those_of_a_serial_env(pool: Any, factory: Any, break_when_any_done: bool) -> None:
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


def test_specs_and_attributes_are_those_of_a_batch(pool: Any) -> None:
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


def test_an_action_that_an_unequal_environment_does_not_take_is_refused(pool: Any) -> None:
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
def test_a_copy_is_a_pool_of_its_own(pool: Any, copy: Any) -> None:
    env = pool([CARTPOLE] * 2)
    env.async_step_send(env.rand_action(env.reset()))

    with copy(env) as other:
        assert type(other) is type(env)
        assert other.rollout(3).shape == (2, 3)

    assert len(env.async_step_recv(min_get=2)) == 2


def test_data_comes_out_where_it_was_asked_for(pool: Any) -> None:
    env = pool([PENDULUM] * 2, device="cpu")
    env.async_reset_send()
    root = env.async_reset_recv(min_get=2)
    env.async_step_and_maybe_reset_send(env.rand_action(root))

    data = (root, *env.async_step_and_maybe_reset_recv(min_get=2))

    assert {td.device for td in data} == {torch.device("cpu")}


# -- sending and receiving


@pytest.mark.parametrize("factory", [CARTPOLE, PENDULUM, CountingEnv, NestedCountingEnv, TextCountingEnv], ids=str)
def test_what_is_received_is_what_a_serial_env_gives(pool: Any, factory: Any) -> None:
    env, serial = pool([factory] * 3), SerialEnv(3, factory)
    env.set_seed(5), serial.set_seed(5)
    env.async_reset_send()
    root, expected = env.async_reset_recv(min_get=3), serial.reset()
    for _ in range(40):
        assert root["env_index"].tolist() == [0, 1, 2]
        unread = ("text", *serial.action_keys)
        assert (root.exclude("env_index", *unread) == expected.exclude(*unread)).all()
        action = serial.rand_action(expected.clone())
        env.async_step_and_maybe_reset_send(root.update(action.select(*serial.action_keys)))
        stepped, root = env.async_step_and_maybe_reset_recv(min_get=3)
        wanted, expected = serial.step_and_maybe_reset(action)
        assert (stepped["next"].exclude("text") == wanted["next"].exclude("text")).all()
    serial.close()


def test_steps_do_not_reset(pool: Any) -> None:
    env = pool([partial(ArrayCountingEnv, max_steps=1)] * 2)
    root = env.reset()
    env.async_step_send(env.rand_action(root))

    td = env.async_step_recv(min_get=2)

    assert td["next", "done"].all()
    assert torch.equal(td["observation"], root["observation"])


@pytest.mark.parametrize(
    "index", [1, [1], torch.tensor(1), torch.tensor([1]), range(1, 2), torch.tensor([[1]])], ids=repr
)
@pytest.mark.parametrize("way", ["argument", "entry"])
def test_an_environment_is_named_in_any_way(pool: Any, index: Any, way: str) -> None:
    env = pool([ArrayCountingEnv] * 3)
    td = env.rand_action(env.reset())[1]
    if way == "entry":
        td["env_index"] = index
        env.async_step_send(td)
    else:
        env.async_step_send(td, env_index=index)

    assert env.async_step_recv(env_index=1)["env_index"].tolist() == [1]


@pytest.mark.parametrize("entry", [[2, 0], torch.tensor([2, 0])], ids=["list", "tensor"])
def test_several_rows_are_divided_and_come_back_sorted(pool: Any, entry: Any) -> None:
    env = pool([CARTPOLE] * 3)
    root = env.rand_action(env.reset())[torch.tensor([2, 0])]
    root["env_index"] = entry
    env.async_step_send(root)

    td = env.async_step_recv(min_get=2)

    assert td["env_index"].tolist() == [0, 2]
    assert torch.equal(td["observation"], root["observation"].flip(0))


def test_data_of_a_lazy_stack_of_rows_is_divided(pool: Any) -> None:
    env = pool([PENDULUM, CARTPOLE, PENDULUM], stack="lazy")
    td = env.rand_action(env.reset())
    rows = [td[2].set("env_index", 2), td[1].set("env_index", 1)]
    env.async_step_and_maybe_reset_send(LazyStackedTensorDict(*rows, stack_dim=0))

    stepped, root = env.async_step_and_maybe_reset_recv(min_get=2)

    assert stepped["env_index"].tolist() == root["env_index"].tolist() == [1, 2]
    assert [row["observation"].shape[0] for row in root.unbind(0)] == [4, 3]
    assert "action" in stepped[0].keys()


@pytest.mark.parametrize(
    ("index", "text"),
    [(3, "must lie in 0..2"), (-1, "must lie in 0..2"), ([0, 0], "named once"), ("0", "whole number"), ([], "whole")],
)
def test_an_index_that_names_nothing_is_refused(pool: Any, index: Any, text: str) -> None:
    env = pool([ArrayCountingEnv] * 3)
    td = env.rand_action(env.reset())

    with pytest.raises(SpecError, match=text):
        env.async_step_send(td[0], env_index=index)


def test_data_that_does_not_say_where_it_goes_is_refused(pool: Any) -> None:
    env = pool([ArrayCountingEnv] * 3)
    td = env.rand_action(env.reset())

    with pytest.raises(SpecError, match=r'env_index=..., or write td\["env_index"\]'):
        env.async_step_send(td[0])
    with pytest.raises(SpecError, match=r"batch size \(2,\) cannot be divided among 1 environments, \[0\]"):
        env.async_step_send(td[:2], env_index=0)


def test_a_refused_action_starts_no_environment(pool: Any) -> None:
    env = pool([ArrayCountingEnv] * 2)
    td = env.rand_action(env.reset())

    with pytest.raises(ActionError, match="no action"):
        env.async_step_send(td.exclude("action"))
    with pytest.raises(ActionError, match="Environment 0: The action 'action' must have shape"):
        env.async_step_send(td.exclude("action").set("action", torch.zeros(2, 7)))

    assert env.step(td)["next", "observation"].tolist() == [[1.0], [1.0]]


def test_the_others_need_not_wait_for_a_slow_one(pool: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    env = pool([partial(HeldEnv, gate), ArrayCountingEnv, ArrayCountingEnv])
    env.async_step_send(env.rand_action(env.reset()))

    quick = env.async_step_recv(min_get=2)
    gate.open()
    slow = env.async_step_recv()

    assert quick["env_index"].tolist() == [1, 2]
    assert slow["env_index"].tolist() == [0]


def test_a_result_is_received_by_its_index(pool: Any) -> None:
    env = pool([ArrayCountingEnv] * 3)
    env.async_step_send(env.rand_action(env.reset()))

    assert env.async_step_recv(min_get=2, env_index=[2, 0])["env_index"].tolist() == [0, 2]
    assert env.async_step_recv(env_index=1)["env_index"].tolist() == [1]


class Waiting(ArrayCountingEnv):
    """Steps once somebody writes to a named pipe."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def step_into(self, action: Any, out: Any) -> Any:
        with open(self.path, "rb"):
            return super().step_into(action, out)


def test_at_most_max_get_are_returned_first_sent_first(pool: Any, tmp_path: Any) -> None:
    path = str(tmp_path / "pipe")
    os.mkfifo(path)
    env = pool([ArrayCountingEnv] * 3 + [partial(Waiting, path)])
    td = env.rand_action(env.reset())
    for row in (2, 1, 0, 3):
        env.async_step_send(td[row], env_index=row)
    with pytest.raises(SpecError, match="max_get must not be below min_get, found 2 and 3"):
        env.async_step_recv(min_get=3, max_get=2)
    ended = 0
    while ended < 3:
        with pytest.raises(WorkerTimeout) as caught:
            env.async_step_recv(min_get=4, timeout=0.01)
        ended = int(str(caught.value).split(": ")[1].split(" of 4")[0])

    assert env.async_step_recv(max_get=2)["env_index"].tolist() == [1, 2]
    assert env.async_step_recv(max_get=2)["env_index"].tolist() == [0]
    with open(path, "wb"):
        assert env.async_step_recv()["env_index"].tolist() == [3]


def test_a_most_and_a_time_collect_until_one_of_them_is_reached(pool: Any) -> None:
    env = pool([ArrayCountingEnv] * 3)
    td = env.rand_action(env.reset())
    env.async_step_send(td)

    # As soon as there are two, though a minute was given.
    assert len(env.async_step_recv(min_get=1, max_get=2, timeout=60.0)) == 2
    # All that are under way: more than that can not come.
    assert len(env.async_step_recv(min_get=1, max_get=2, timeout=60.0)) == 1


def test_a_pool_waits_for_min_get_results_where_a_call_does_not_say_how_many(pool: Any) -> None:
    env = pool([ArrayCountingEnv] * 3)
    td = env.rand_action(env.reset())
    env.async_step_send(td)
    env.min_get = 3

    assert env.async_step_recv(min_get=None)["env_index"].tolist() == [0, 1, 2]


def test_a_pool_takes_one_factory_and_environments_that_are_made(pool: Any) -> None:
    made = ArrayCountingEnv(start=7)

    assert pool(ArrayCountingEnv).batch_size == (1,)
    assert pool([made, ArrayCountingEnv]).reset()["observation"].flatten().tolist() == [7, 0]
    with pytest.raises(SpecError, match="The same environment is in the list twice"):
        pool([made, made])


def test_arguments_that_choose_how_a_pool_exchanges_data_are_taken_with_a_warning(pool: Any) -> None:
    with pytest.warns(IgnoredArgumentWarning, match="exchange has no effect: data of fixed shapes is in shared memory"):
        env = pool([ArrayCountingEnv] * 2, exchange="shm")
    assert (env.exchange, env.envs_per_worker, env.env_batch_sizes) == ("shm", 1, [torch.Size([])] * 2)

    env.shutdown()
    env.shutdown()
    assert env.is_closed


def test_a_time_limit_loses_nothing(pool: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    env = pool([ArrayCountingEnv, partial(HeldEnv, gate)])
    env.async_step_send(env.rand_action(env.reset()))

    match = rf"1 of 2 step\(s\) ended within {ANSWER} s; environments \[1\] are"
    with pytest.raises(WorkerTimeout, match=match) as caught:
        env.async_step_recv(min_get=2, timeout=ANSWER)

    assert caught.value.env == 1
    assert env.async_step_recv(timeout=0)["env_index"].tolist() == [0]
    gate.open()
    assert env.async_step_recv(timeout=CHILD)["env_index"].tolist() == [1]


def test_a_busy_environment_is_not_sent_more(pool: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    env = pool([ArrayCountingEnv, partial(HeldEnv, gate)])
    td = env.rand_action(env.reset())
    env.async_step_send(td[1], env_index=1)

    with pytest.raises(StateError, match=r"environment 1 was sent a step.*async_step_recv\(env_index=1\)"):
        env.async_step_send(td)
    with pytest.raises(StateError, match="environment 1 was sent a step"):
        env.async_reset_send(env_index=1)
    for call in (env.reset, partial(env.step, td), partial(env.set_seed, 0), partial(env.step_at, td[:1], [0])):
        with pytest.raises(StateError, match="environment 1 was sent a step"):
            call()
    with pytest.raises(AttributeError, match="'max_steps' cannot be read while environments are at work"):
        list(env.max_steps)
    env.async_step_send(td[0], env_index=0)  # env 0 was not started by what was refused
    gate.open()

    assert env.async_step_recv(min_get=2)["next", "observation"].tolist() == [[1.0], [1.0]]
    env.async_reset_send(env_index=1)
    assert env.async_reset_recv()["env_index"].tolist() == [1]


def test_what_ended_must_be_received_first(pool: Any) -> None:
    env = pool([ArrayCountingEnv] * 2)
    td = env.rand_action(env.reset())
    env.async_step_send(td[1], env_index=1)
    env.async_step_recv()
    env.async_step_send(td[1], env_index=1)

    with pytest.raises(StateError, match="environment 1 was sent a step that was not received"):
        env.async_step_send(td[1], env_index=1)

    assert env.async_step_recv()["next", "observation"].tolist() == [[2.0]]


@pytest.mark.parametrize("op", ["step", "reset", "step_and_maybe_reset"])
def test_receiving_what_was_not_sent_is_an_error_and_no_hang(pool: Any, op: str) -> None:
    env = pool([ArrayCountingEnv] * 2)
    env.reset()

    with pytest.raises(StateError, match=f"none is under way.*async_{op}_send"):
        getattr(env, f"async_{op}_recv")()


def test_receiving_more_than_is_under_way_is_an_error(pool: Any) -> None:
    env = pool([ArrayCountingEnv] * 3)
    td = env.rand_action(env.reset())
    env.async_step_send(td[0], env_index=0)
    env.async_reset_send(env_index=1)

    with pytest.raises(StateError, match=r"3 step\(s\) asked for, but 1 are under way. Environment 1 was sent a reset"):
        env.async_step_recv(min_get=3)
    with pytest.raises(StateError, match=r"of environments \[1, 2\] asked for, but none"):
        env.async_step_recv(env_index=[1, 2])
    with pytest.raises(SpecError, match="min_get is a whole number"):
        env.async_step_recv(min_get=0)

    assert len(env.async_step_recv()) == len(env.async_reset_recv()) == 1


@pytest.mark.parametrize("factory", [ArrayCountingEnv, CountingEnv, TextCountingEnv], ids=str)
@pytest.mark.parametrize("stack", ["dense", "maybe_dense", "lazy"])
def test_what_was_received_does_not_change(pool: Any, stack: str, factory: Any) -> None:
    env = pool([partial(factory, max_steps=3)] * 2, stack=stack)
    env.async_reset_send()
    root = env.async_reset_recv(min_get=2)
    sent = env.rand_action(root)
    env.async_step_and_maybe_reset_send(sent)
    for leaf in sent.values(True, True):
        if isinstance(leaf, torch.Tensor):
            leaf.zero_()  # the pool has a copy
    first = env.async_step_and_maybe_reset_recv(min_get=2)
    held = [td.clone() for td in first]
    root = first[1].clone()
    for _ in range(7):
        env.async_step_and_maybe_reset_send(env.rand_action(root))
        root = env.async_step_and_maybe_reset_recv(min_get=2)[1]

    assert isinstance(first[0], LazyStackedTensorDict) is (stack == "lazy")
    for before, after in zip(held, first, strict=True):
        assert same(before.exclude("text", ("next", "text")), after.exclude("text", ("next", "text")))
    assert first[0]["env_index"].tolist() == [0, 1]


def test_a_reset_keeps_the_other_entries_of_what_was_sent(pool: Any) -> None:
    env = pool([ArrayCountingEnv] * 2)
    td = TensorDict({"memory": torch.tensor([5.0, 6.0]), "env_index": torch.tensor([1, 0])}, [2])
    env.async_reset_send(td)

    root = env.async_reset_recv(min_get=2)

    assert root["memory"].tolist() == [6.0, 5.0]
    assert root["observation"].tolist() == [[0.0], [0.0]]


def test_rows_with_different_entries_need_another_stack(pool: Any) -> None:
    env = pool([ArrayCountingEnv] * 2)
    td = env.rand_action(env.reset())
    env.async_step_send(td[0], env_index=0)
    env.async_step_send(td[1].set("memory", torch.ones(1)), env_index=1)

    with pytest.raises(SpecError, match=r'stack="maybe_dense".*one by one'):
        env.async_step_recv(min_get=2)

    assert env.async_step_recv(env_index=0)["next", "observation"].tolist() == [[1.0]]
    assert env.async_step_recv()["memory"].tolist() == [[1.0]]


def test_actions_with_a_gradient_are_taken(pool: Any) -> None:
    env = pool([PENDULUM] * 2)
    root = env.reset()
    root["action"] = torch.ones(2, 1, requires_grad=True) * 0.5
    env.async_step_send(root)

    assert not env.async_step_recv(min_get=2)["next", "observation"].requires_grad


def test_entries_that_a_policy_hands_on_are_kept(pool: Any) -> None:
    env = pool([ArrayCountingEnv] * 2)
    td = env.rand_action(env.reset())
    td["next", "hidden"] = torch.tensor([[3.0], [4.0]])
    env.async_step_and_maybe_reset_send(td)

    _, root = env.async_step_and_maybe_reset_recv(min_get=2)

    assert root["hidden"].tolist() == [[3.0], [4.0]]


def test_several_threads_have_an_environment_each(pool: Any) -> None:
    env = pool([partial(ArrayCountingEnv, max_steps=1000)] * 4)
    root = env.reset()
    failures: list[BaseException] = []
    counts = {}

    def serve(row: int) -> None:
        try:
            td = root[row].clone()
            for _ in range(50):
                td["action"] = env.full_action_spec_unbatched.rand()["action"]
                env.async_step_and_maybe_reset_send(td, env_index=row)
                td = env.async_step_and_maybe_reset_recv(env_index=row)[1][0]
            counts[row] = td["observation"].item()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=serve, args=(row,)) for row in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(CHILD)

    assert not failures
    assert counts == dict.fromkeys(range(4), 50.0)


WAITING = """
import os, signal, sys, threading
from pathlib import Path
from steppe import AsyncEnvPool
from tests.core.batched.gates import Gate, HeldEnv
for backend in ("threading", "multiprocessing"):
    folder = Path(sys.argv[1], backend)
    folder.mkdir()
    gate = Gate(folder)
    env = AsyncEnvPool([lambda: HeldEnv(gate)] * 2, backend=backend)
    env.async_step_send(env.rand_action(env.reset()))
    try:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        env.async_step_recv(min_get=2)
    except KeyboardInterrupt:
        print("caught")
    gate.open()
    print(env.async_step_recv(min_get=2)["next", "observation"].tolist())
    env.close()
"""


def test_ctrl_c_ends_a_wait_and_loses_nothing(run_script: Any, tmp_path: Path) -> None:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    process = run_script(WAITING, str(tmp_path), env={**os.environ, "PYTHONPATH": path})
    out, err = process.communicate(timeout=CHILD)

    assert (out, err) == ("caught\n[[1.0], [1.0]]\n" * 2, "")


def test_ctrl_c_right_after_an_answer_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    # Text has no place in memory that processes share: it comes in messages.
    env = AsyncEnvPool([TextCountingEnv] * 2, backend="multiprocessing")
    root = env.reset()
    receive = Pool.receive

    def receive_and_press(own: Pool, worker: int) -> Any:
        told = receive(own, worker)
        signal.raise_signal(signal.SIGINT)
        return told

    env.async_step_send(env.rand_action(root))
    interrupts = 0
    with monkeypatch.context() as patched:
        patched.setattr(Pool, "receive", receive_and_press)
        while True:
            try:
                found = env.async_step_recv(min_get=2)
                break
            except KeyboardInterrupt:
                interrupts += 1

    assert interrupts == 2
    assert found["env_index"].tolist() == [0, 1]
    env.close()


# -- what goes wrong


def failing(**kwargs: Any) -> list[Any]:
    return [ArrayCountingEnv, ArrayCountingEnv, partial(FailingEnv, **kwargs)]


def assert_over(env: Any) -> None:
    for call in (env.reset, env.async_reset_send, env.async_step_recv, partial(env.set_seed, 0)):
        with pytest.raises(ClosedError, match="stopped after an error"):
            call()
    env.close()


@pytest.mark.parametrize("where", ["init", "reset", "step"])
def test_an_exception_arrives_with_its_traceback_worker_and_environment(pool: Any, where: str) -> None:
    env = pool(failing(in_=where, at=3 if where == "init" else 1))

    def use() -> None:
        env.async_reset_send()
        root = env.async_reset_recv(min_get=3)
        env.async_step_send(env.rand_action(root))
        env.async_step_recv(min_get=3)

    with pytest.raises(WorkerError, match=f"FailingEnv failed in {where}") as caught:
        use()

    assert (caught.value.worker, caught.value.env) == (2, 2)
    assert "mock_faults.py" in caught.value.remote_traceback
    if where != "init":
        assert_over(env)


def test_an_exception_in_a_call_of_any_environment_ends_the_pool_too(pool: Any) -> None:
    env = pool(failing())

    with pytest.raises(WorkerError, match="raised in step of environment 2: RuntimeError: FailingEnv failed in step 3"):
        env.rollout(10)

    assert_over(env)


class FailingText(TextCountingEnv):
    """Fails in its second step; its data travels in messages."""

    def _step(self, tensordict: Any) -> Any:
        if int(self.count) == 1:
            raise LookupError("no more text")
        return super()._step(tensordict)


def test_an_exception_among_messages_is_named_too(pool: Any) -> None:
    env = pool([TextCountingEnv, FailingText])
    td = env.rand_step(env.reset())
    env.async_step_send(env.rand_action(env.step_mdp(td)))

    with pytest.raises(WorkerError, match="raised in step of environment 1: LookupError: no more text"):
        env.async_step_recv(min_get=2)

    assert_over(env)


class Leaving(ArrayCountingEnv):
    """Tries to end its process."""

    def step_into(self, action: Any, out: Any) -> tuple[bool, bool]:
        sys.exit("enough")


def test_a_library_that_leaves_is_an_error_like_others(pool: Any) -> None:
    env = pool([ArrayCountingEnv, Leaving])
    env.async_step_send(env.rand_action(env.reset()))

    with pytest.raises(WorkerError, match=r"Worker 1 raised in .*: SystemExit: enough"):
        env.async_step_recv(min_get=2)

    assert_over(env)


@pytest.mark.parametrize("factory", [ArrayCountingEnv, TextCountingEnv], ids=str)
@pytest.mark.parametrize("when", ["idle", "sent", "among"])
def test_a_killed_worker_is_named_at_once(when: str, factory: Any) -> None:
    env = ProcessorAsyncEnvPool(
        [factory, factory, partial(HangingEnv, at=1)][: 2 if when != "among" else 3], stack="lazy"
    )
    td = env.rand_action(env.reset())
    pid = env.worker_pids[1]
    started = time.monotonic()
    if when == "among":
        env.async_step_send(td[2], env_index=2)
    os.kill(pid, signal.SIGKILL)

    def use() -> None:
        if when == "sent":
            env.async_step_send(td[1], env_index=1)
            env.async_step_recv()
        elif when == "idle":
            env.async_reset_send()
            env.async_reset_recv(min_get=2)
        else:
            env.async_step_recv()  # of 2, which hangs

    with pytest.raises(WorkerError, match=rf"Worker 1 \(process {pid}\) ended unexpectedly") as caught:
        use()

    assert time.monotonic() - started < AT_ONCE
    assert (caught.value.worker, caught.value.env) == (1, 1)
    assert_over(env)


def test_a_worker_that_dies_in_a_step_is_named() -> None:
    env = ProcessorAsyncEnvPool([ArrayCountingEnv, partial(DyingEnv, at=1)])
    env.async_step_send(env.rand_action(env.reset()))

    with pytest.raises(WorkerError, match=r"Worker 1 .*at work on environment 1"):
        env.async_step_recv(min_get=2)

    assert_over(env)


def test_a_process_that_hangs_is_given_up_after_step_timeout() -> None:
    env = ProcessorAsyncEnvPool([ArrayCountingEnv, partial(HangingEnv, at=1)], step_timeout=ANSWER)
    env.async_step_send(env.rand_action(env.reset()))
    assert env.async_step_recv()["env_index"].tolist() == [0]

    with pytest.raises(WorkerTimeout, match=rf"environment 1, did not answer within {ANSWER} s") as caught:
        env.async_step_recv()

    assert caught.value.env == 1
    assert_over(env)


RELEASE = threading.Event()


class Held(ArrayCountingEnv):
    """Stays in a step until it is let go."""

    def step_into(self, action: Any, out: Any) -> tuple[bool, bool]:
        RELEASE.wait(CHILD)
        return super().step_into(action, out)


@pytest.mark.parametrize("way", ["async", "sync"])
def test_a_thread_that_hangs_is_named_and_left_behind(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steppe.batched.base.PATIENCE", ANSWER)
    RELEASE.clear()
    env = ThreadingAsyncEnvPool([ArrayCountingEnv, Held], step_timeout=ANSWER)
    td = env.rand_action(env.reset())

    def use() -> None:
        if way == "sync":
            env.step(td)
        env.async_step_send(td)
        env.async_step_recv(min_get=2)

    with pytest.raises(WorkerTimeout, match="environment 1, did not answer") as caught:
        use()

    assert caught.value.env == 1
    with pytest.warns(RuntimeWarning, match=r"Environments \[1\] did not come back"):
        env.close()
    RELEASE.set()  # and its thread ends by itself


def test_closing_in_the_middle_of_steps_leaves_nothing(pool: Any) -> None:
    env = pool([partial(SlowEnv, seconds=0.2, reset_seconds=0)] * 2)
    env.async_step_send(env.rand_action(env.reset()))

    env.close()

    with pytest.raises(ClosedError):
        env.async_step_recv()
    with pytest.raises(ClosedError):
        env.async_reset_send()
    with pytest.raises(ClosedError):
        env.close(raise_if_closed=True)


def test_a_pool_that_was_never_used_closes(pool: Any) -> None:
    pool([ArrayCountingEnv]).close()


def test_a_pool_that_is_forgotten_leaves_nothing(pool: Any) -> None:
    env = AsyncEnvPool([ArrayCountingEnv, CARTPOLE], stack="lazy", backend=type(pool([CARTPOLE])).backend)
    env.async_step_send(env.rand_action(env.reset()))
    del env  # the fixture looks


def test_environments_are_made_stepped_and_closed_in_one_thread_each() -> None:
    seen: dict[str, list[int]] = {"made": [], "stepped": [], "closed": []}

    class Where(ArrayCountingEnv):
        def __init__(self) -> None:
            super().__init__()
            seen["made"].append(threading.get_ident())

        def step_into(self, action: Any, out: Any) -> tuple[bool, bool]:
            seen["stepped"].append(threading.get_ident())
            return super().step_into(action, out)

        def close(self, *, raise_if_closed: bool = True) -> None:
            seen["closed"].append(threading.get_ident())
            super().close(raise_if_closed=raise_if_closed)

    with ThreadingAsyncEnvPool([Where, Where]) as env:
        env.rand_step(env.reset())

    assert len(set(seen["made"])) == 2
    assert threading.get_ident() not in seen["made"]
    assert set(seen["made"]) == set(seen["stepped"]) == set(seen["closed"])


FORGOTTEN = """
from steppe import AsyncEnvPool
from steppe_testing import ArrayCountingEnv
env = AsyncEnvPool([ArrayCountingEnv] * 2, backend="{backend}")
env.async_step_send(env.rand_action(env.reset()))
print("done")
"""


@pytest.mark.parametrize("backend", ["threading", "multiprocessing"])
def test_a_script_that_forgets_to_close_ends(run_script: Any, backend: str) -> None:
    out, err = run_script(FORGOTTEN.format(backend=backend)).communicate(timeout=CHILD)

    assert (out, err) == ("done\n", "")


def test_each_environment_of_a_pool_of_processes_has_its_own() -> None:
    with ProcessorAsyncEnvPool([ArrayCountingEnv] * 3) as env:
        assert env.worker_pids == []
        env.start()

        assert len({*env.worker_pids, os.getpid()}) == 4
    assert env.worker_pids == []
