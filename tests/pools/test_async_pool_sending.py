"""Data sent to the environments of a pool, and their results."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import LazyStackedTensorDict, TensorDict

from steppe import SerialEnv, TensorDictPrimer, TransformedEnv, Unbounded
from steppe.errors import ActionError, SpecError, StateError
from steppe_testing import ArrayCountingEnv, CountingEnv, NestedCountingEnv, TextCountingEnv, assert_equal_data
from tests.core.batched.gates import Gate, HeldEnv

pytestmark = pytest.mark.usefixtures("nothing_left")

CARTPOLE, PENDULUM = "gym:CartPole-v1", "gym:Pendulum-v1"


@pytest.mark.parametrize("factory", [CARTPOLE, PENDULUM, CountingEnv, NestedCountingEnv, TextCountingEnv], ids=str)
def test_a_pool_gives_the_data_of_a_serial_env(pool: Any, factory: Any) -> None:
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
    [
        (3, "must be from 0 to 2"),
        (-1, "be from 0 to 2"),
        ([0, 0], "must not repeat"),
        ("0", "whole number"),
        ([], "whole"),
    ],
)
def test_an_invalid_env_index_is_refused(pool: Any, index: Any, text: str) -> None:
    env = pool([ArrayCountingEnv] * 3)
    td = env.rand_action(env.reset())

    with pytest.raises(SpecError, match=text):
        env.async_step_send(td[0], env_index=index)


def test_data_without_env_index_is_refused(pool: Any) -> None:
    env = pool([ArrayCountingEnv] * 3)
    td = env.rand_action(env.reset())

    with pytest.raises(SpecError, match=r'env_index=..., or write td\["env_index"\]'):
        env.async_step_send(td[0])
    with pytest.raises(SpecError, match=r"for the 1 environments \[0\] must have batch size \[1\], found \(2,\)"):
        env.async_step_send(td[:2], env_index=0)


def test_a_refused_action_starts_no_environment(pool: Any) -> None:
    env = pool([ArrayCountingEnv] * 2)
    td = env.rand_action(env.reset())

    with pytest.raises(ActionError, match="no action"):
        env.async_step_send(td.exclude("action"))
    with pytest.raises(ActionError, match="Environment 0: The action 'action' must have shape"):
        env.async_step_send(td.exclude("action").set("action", torch.zeros(2, 7)))

    assert env.step(td)["next", "observation"].tolist() == [[1.0], [1.0]]


def test_a_busy_environment_is_not_sent_more(pool: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    env = pool([ArrayCountingEnv, partial(HeldEnv, gate)])
    td = env.rand_action(env.reset())
    env.async_step_send(td[1], env_index=1)

    with pytest.raises(StateError, match=r"step of environment 1 was not received.*async_step_recv\(env_index=1\)"):
        env.async_step_send(td)
    with pytest.raises(StateError, match="step of environment 1 was not received"):
        env.async_reset_send(env_index=1)
    for call in (env.reset, partial(env.step, td), partial(env.set_seed, 0), partial(env.step_at, td[:1], [0])):
        with pytest.raises(StateError, match="step of environment 1 was not received"):
            call()
    with pytest.raises(AttributeError, match=r"'max_steps' cannot be read: .* Receive it first"):
        list(env.max_steps)
    env.async_step_send(td[0], env_index=0)  # env 0 was not started by what was refused
    gate.open()

    assert env.async_step_recv(min_get=2)["next", "observation"].tolist() == [[1.0], [1.0]]
    env.async_reset_send(env_index=1)
    assert env.async_reset_recv()["env_index"].tolist() == [1]


def test_a_finished_step_must_be_received_before_the_next(pool: Any) -> None:
    env = pool([ArrayCountingEnv] * 2)
    td = env.rand_action(env.reset())
    env.async_step_send(td[1], env_index=1)
    env.async_step_recv()
    env.async_step_send(td[1], env_index=1)

    with pytest.raises(StateError, match="step of environment 1 was not received"):
        env.async_step_send(td[1], env_index=1)

    assert env.async_step_recv()["next", "observation"].tolist() == [[2.0]]


@pytest.mark.parametrize("factory", [ArrayCountingEnv, CountingEnv, TextCountingEnv], ids=str)
@pytest.mark.parametrize("stack", ["dense", "maybe_dense", "lazy"])
def test_received_data_does_not_change(pool: Any, stack: str, factory: Any) -> None:
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
        assert_equal_data(after, before)
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


def test_entries_that_a_policy_adds_are_kept(pool: Any) -> None:
    env = pool([ArrayCountingEnv] * 2)
    td = env.rand_action(env.reset())
    td["next", "hidden"] = torch.tensor([[3.0], [4.0]])
    env.async_step_and_maybe_reset_send(td)

    _, root = env.async_step_and_maybe_reset_recv(min_get=2)

    assert root["hidden"].tolist() == [[3.0], [4.0]]


@pytest.mark.parametrize("base", [ArrayCountingEnv, CountingEnv, TextCountingEnv])
def test_the_environments_pass_a_recurrent_state_through(pool: Any, base: Any) -> None:
    env = pool([lambda: TransformedEnv(base(3), TensorDictPrimer(hidden=Unbounded((1,))))] * 2)
    td, seen = env.reset(), []
    for _ in range(5):
        seen.append(td["hidden"].flatten().tolist())
        env.rand_action(td).set(("next", "hidden"), td["hidden"] + torch.tensor([[1.0], [10.0]]))
        env.async_step_and_maybe_reset_send(td)
        data, td = env.async_step_and_maybe_reset_recv(min_get=2)
        assert torch.equal(data["next", "hidden"], data["hidden"] + torch.tensor([[1.0], [10.0]]))
    env.async_step_send(env.rand_action(td)[:1].set("env_index", [0]).set(("next", "hidden"), torch.tensor([[7.0]])))

    assert seen == [[0, 0], [1, 10], [2, 20], [0, 0], [1, 10]]
    assert env.async_step_recv()["next", "hidden"].tolist() == [[7.0]]
