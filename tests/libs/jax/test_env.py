"""JaxEnv: two functions of JAX as an environment, in batches, as a function of its data, and with gradients."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from tensordict import TensorDict, TensorDictBase, assert_close
from tensordict.nn import TensorDictModule

pytest.importorskip("jax")

import jax
import jax.numpy as jnp
import numpy as np

from steppe import SyncDataCollector, check_env_specs
from steppe.errors import NotSupported, SpecError
from steppe.specs import Bounded, Categorical
from steppe_jax import EnvFunctions, JaxEnv, Outcome, fork_check

pytestmark = pytest.mark.filterwarnings("ignore")

LIMIT = 5


def outcome(state: Any) -> tuple[Any, Outcome]:
    seen = {"x": state["x"], "parts": {"fixed": state["fixed"], "count": state["t"]}}
    reward = -(state["x"] ** 2).sum()
    return state, Outcome(seen, reward, jnp.abs(state["x"]).max() > 50, state["t"] >= LIMIT)


def reset(key: Any) -> tuple[Any, Outcome]:
    key, mine = jax.random.split(key)
    fixed = jnp.arange(3.0)
    return outcome({"x": jax.random.normal(mine, (2,)), "t": jnp.uint16(0), "key": key, "fixed": fixed})


def step(state: Any, action: Any) -> tuple[Any, Outcome]:
    key, mine = jax.random.split(state["key"])
    x = jnp.sin(state["x"]) * 1.5 + action + 0.01 * jax.random.normal(mine, (2,))
    return outcome({**state, "x": x, "t": state["t"] + jnp.uint16(1), "key": key})


class Drift(JaxEnv):
    def __init__(self, **kwargs: Any) -> None:
        functions = EnvFunctions(reset, step, jax.ShapeDtypeStruct((2,), jnp.float32))
        super().__init__(functions, action_spec=Bounded(-1, 1, shape=(2,), dtype=torch.float32), **kwargs)


@pytest.mark.parametrize("kwargs", [{}, {"batch_size": 3}, {"batch_size": (2, 2)}, {"state_in_data": False}], ids=str)
def test_its_data_is_what_its_specs_say(kwargs: Any) -> None:
    check_env_specs(Drift(**kwargs), seed=0)


def test_unsigned_observations_keep_their_values_in_signed_ones() -> None:
    env = Drift()

    assert env.full_observation_spec["parts", "count"].dtype is torch.int32
    assert env.step(env.rand_action(env.reset()))["next", "parts", "count"] == 1


def test_a_function_of_its_data_takes_any_batch_size() -> None:
    env = Drift()
    env.set_seed(0)
    td = env.reset(TensorDict({}, [2, 3]))

    td = env.step(env.rand_action(td))

    assert td["next", "x"].shape == (2, 3, 2)
    row = td[1, 2].exclude("next")
    assert env.step(row)["next", "x"].tolist() == pytest.approx(td["next", "x"][1, 2].tolist(), abs=1e-6)


def test_a_batch_and_a_function_of_the_data_give_the_same_data() -> None:
    kept, given = Drift(batch_size=4), Drift(batch_size=4, state_in_data=True)
    for env in (kept, given):
        env.set_seed(3)
    data = kept.rollout(2 * LIMIT + 2, break_when_any_done=False)
    actions = list(data["action"].unbind(1))

    other = given.rollout(len(actions), actions=actions, break_when_any_done=False).exclude("state", ("next", "state"))

    assert data["next", "truncated"][0, :, 0].nonzero().flatten().tolist() == [LIMIT - 1, 2 * LIMIT - 1]
    for key in data.keys(True, True):
        torch.testing.assert_close(data[key], other[key])


def test_the_state_in_the_data_equals_the_librarys() -> None:
    env = Drift()
    env.set_seed(7)
    key = jax.random.split(jax.random.split(jax.random.PRNGKey(7))[1], 1)[0]
    td, (state, _) = env.reset(), reset(key)

    assert td["state", "key"].dtype is torch.int32
    assert td["state", "key"].view(torch.uint32).tolist() == np.asarray(state["key"]).tolist()
    assert td["state", "t"].dtype is torch.int16
    np.testing.assert_allclose(env.native_state(td)["x"], state["x"], rtol=1e-6)


def test_a_state_with_an_empty_leaf_is_read_from_data() -> None:
    def reset(key: jax.Array) -> tuple[Any, Outcome]:
        state = {"x": jax.random.uniform(key, (2,)), "empty": jnp.zeros((0,))}
        return state, Outcome(state["x"], jnp.zeros(()), jnp.array(False), jnp.array(False))

    def step(state: Any, action: jax.Array) -> tuple[Any, Outcome]:
        return state, Outcome(state["x"], jnp.zeros(()), jnp.array(False), jnp.array(False))

    env = JaxEnv(EnvFunctions(reset, step, jax.ShapeDtypeStruct((), jnp.int32)), action_spec=Categorical(2))
    for td in (env.reset(), env.reset(TensorDict({}, [3]))):
        state = env.native_state(td, row=td.numel() - 1)

        assert state["empty"].shape == (0,)
        np.testing.assert_array_equal(state["x"], td["observation"].reshape(-1, 2)[-1].cpu().numpy())


def test_ended_rows_restart_independently() -> None:
    """Row 2 gets the same key, whether it is reset by itself or with all others."""
    env = Drift(batch_size=40)
    found = []
    for rows in ([2], [2, 5, 39], range(40)):
        env.set_seed(0)
        td = env.reset()
        before = td["x"].clone()
        mask = torch.zeros(40, 1, dtype=torch.bool, device=env.device)
        mask[list(rows)] = True
        td = env.reset(td.set("_reset", mask))
        assert torch.equal((td["x"] != before).any(-1), mask[:, 0])
        found.append(td["x"][2])
        np.testing.assert_array_equal(np.asarray(env.jax_state["x"]), td["x"].cpu().numpy())

    torch.testing.assert_close(found[0], found[1])
    torch.testing.assert_close(found[0], found[2])


@pytest.mark.parametrize("kwargs", [{}, {"batch_size": 2}, {"batch_size": 2, "state_in_data": True}], ids=str)
def test_writing_into_data_changes_no_other_data(kwargs: Any) -> None:
    env = Drift(**kwargs)
    env.set_seed(0)
    td = env.step(env.rand_action(env.reset()))
    following = td["next", "parts", "fixed"]

    td["parts", "fixed"].fill_(8)
    if env.state_in_data:
        td["state", "fixed"].fill_(8)

    assert following.flatten().tolist() == [0, 1, 2] * env.numel()
    following.fill_(9)
    later = env.step(env.rand_action(env.step_mdp(td)))["next", "parts", "fixed"]
    assert later.flatten().tolist() == [0, 1, 2] * env.numel()


def test_gradients_match_jax() -> None:
    env = Drift(batch_size=3, requires_grad=True)
    env.set_seed(0)
    root = env.reset()
    leaves = env.functions.state_leaves
    natives = [env._native_state(root[key], leaf, 3) for key, leaf in zip(env.state_entries, leaves, strict=True)]
    start = env.functions.state_tree([jnp.asarray(native.numpy()) for native in natives])

    def total(x: Any, actions: Any) -> Any:
        state, found = {**start, "x": x}, 0.0
        for action in actions:
            state, seen = jax.vmap(step)(state, action)
            found = found + seen.reward.sum() + (seen.observation["x"] ** 3).sum()
        return found

    actions = torch.linspace(-1, 1, 18).reshape(3, 3, 2).requires_grad_()
    x = root["state", "x"].detach().requires_grad_()
    td, value = root.set(("state", "x"), x), torch.zeros(())
    for action in actions:
        td = env.step(td.set("action", action))
        value = value + td["next", "reward"].sum() + (td["next", "x"] ** 3).sum()
        td = env.step_mdp(td)

    expected = jax.grad(total, argnums=(0, 1))(jnp.asarray(x.detach().numpy()), jnp.asarray(actions.detach().numpy()))
    for found, wanted in zip(torch.autograd.grad(value, (x, actions)), expected, strict=True):
        np.testing.assert_allclose(found.numpy(), np.asarray(wanted), rtol=2e-4, atol=1e-5)


def test_gradients_flow_through_a_rollout_and_its_resets() -> None:
    env = Drift(batch_size=2, requires_grad=True)
    gain = torch.tensor(0.1, requires_grad=True)

    policy = TensorDictModule(lambda x: gain * x, in_keys=["x"], out_keys=["action"])
    data = env.rollout(LIMIT + 2, policy, break_when_any_done=False)
    data["next", "reward"].sum().backward()

    assert torch.isfinite(gain.grad)
    assert gain.grad != 0


def test_gradients_need_the_state_in_the_data() -> None:
    with pytest.raises(SpecError, match="state_in_data=False"):
        Drift(requires_grad=True, state_in_data=False)


def test_a_jax_env_runs_without_compilation() -> None:
    env, compiled = Drift(batch_size=2, jit=False), Drift(batch_size=2)
    compiled.set_seed(0)
    data = compiled.rollout(3)

    env.set_seed(0)
    other = env.rollout(3, actions=list(data["action"].unbind(1)))

    torch.testing.assert_close(other["next", "x"], data["next", "x"])


def test_steps_on_rows_equal_those_on_tensordicts() -> None:
    class OnTensorDicts(Drift):
        def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
            return super()._step(tensordict)

    env, other = Drift(batch_size=3), OnTensorDicts(batch_size=3)
    for each in (env, other):
        each.set_seed(2)
    assert env.row_steps is not None
    assert other.row_steps is None

    data = env.rollout(2 * LIMIT + 3, break_when_any_done=False)
    actions = list(data["action"].unbind(1))

    expected = other.rollout(len(actions), actions=actions, break_when_any_done=False)
    assert data["next", "truncated"].sum() == 6
    assert_close(data, expected, rtol=0, atol=0)
    env.set_seed(2)
    root = env.reset()
    for t, action in enumerate(actions):
        frame, root = env.step_and_maybe_reset(root.set("action", action))
        assert_close(frame, data[:, t], rtol=0, atol=0)


def test_a_collector_takes_rows_of_a_batch() -> None:
    env = Drift(batch_size=4)
    assert env.no_row_writer_reason is None
    collector = SyncDataCollector(env, None, frames_per_batch=4 * (LIMIT + 2), total_frames=8 * (LIMIT + 2))

    batches = [batch.clone() for batch in collector]
    collector.shutdown()

    assert batches[0]["parts", "count"][0].tolist() == [*range(LIMIT), 0, 1]
    assert [tuple(batch.shape) for batch in batches] == [(4, LIMIT + 2)] * 2


def test_a_fork_of_a_process_with_jax_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_check, "_LOADED_IN", os.getpid() + 1)

    with pytest.raises(NotSupported, match="mp_start_method='spawn'"):
        Drift()


def test_errors_say_what_a_reset_takes() -> None:
    env = Drift()

    with pytest.raises(SpecError, match="set_seed"):
        env.reset(options={})
    with pytest.raises(SpecError, match="has no"):
        env.reset(TensorDict({}, []), set_state=True)
