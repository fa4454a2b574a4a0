"""Brax in steppe, compared with Brax itself."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from tensordict import TensorDict

pytest.importorskip("brax")

import jax
import jax.numpy as jnp
from brax import envs
from brax.envs.wrappers.training import EpisodeWrapper, VmapWrapper

from steppe import Compose, ParallelEnv, RewardSum, SerialEnv, StepCounter, SyncDataCollector, TransformedEnv, make_env
from steppe.errors import SteppeError
from steppe_brax import BraxEnv, BraxWrapper

pytestmark = [pytest.mark.library, pytest.mark.filterwarnings("ignore")]

N, LIMIT = 3, 5

#: What a function computes that was compiled together with another one may differ so much from it by itself.
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def first_keys(seed: int, n: int) -> Any:
    return jax.random.split(jax.random.split(jax.random.PRNGKey(seed))[1], n)


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("name", "kwargs"),
    [("fast", {}), ("inverted_pendulum", {"backend": "spring"})],
    ids=["fast", "inverted_pendulum"],
)
@pytest.mark.parametrize("state_in_data", [False, True], ids=["kept", "in the data"])
def test_a_rollout_has_the_data_of_brax(name: str, kwargs: Any, state_in_data: bool) -> None:
    env = BraxEnv(name, batch_size=N, episode_length=LIMIT, state_in_data=state_in_data, **kwargs)
    env.set_seed(3)
    data = env.rollout(LIMIT)
    raw = VmapWrapper(EpisodeWrapper(envs.get_environment(name, **kwargs), LIMIT, 1))
    step = jax.jit(raw.step)

    state = jax.jit(raw.reset)(first_keys(3, N))
    for t in range(data.shape[1]):
        np.testing.assert_allclose(data["observation"][:, t], state.obs, **CLOSE)
        state = step(state, jnp.asarray(data["action"][:, t].numpy()))
        np.testing.assert_allclose(data["next", "observation"][:, t], state.obs, **CLOSE)
        np.testing.assert_allclose(data["next", "reward"][:, t, 0], state.reward, **CLOSE)
        np.testing.assert_array_equal(data["next", "done"][:, t, 0], np.asarray(state.done) > 0)
        np.testing.assert_array_equal(data["next", "truncated"][:, t, 0], np.asarray(state.info["truncation"]) > 0)
    assert data.shape[1] == LIMIT
    assert data["next", "truncated"][:, -1].all()


@pytest.mark.matrix
def test_one_environment_has_the_data_of_a_batch_of_one() -> None:
    one, batch = (make_env("brax:fast", episode_length=LIMIT, **kwargs) for kwargs in ({}, {"batch_size": 1}))
    for env in (one, batch):
        env.set_seed(0)
    data = batch.rollout(LIMIT)

    alone = one.rollout(LIMIT, actions=list(data["action"][0].unbind(0)))

    for key in ("observation", ("next", "observation"), ("next", "reward"), ("next", "done")):
        torch.testing.assert_close(alone[key], data[key][0])


@pytest.mark.matrix
def test_gradients_match_jax() -> None:
    steps = 3
    env = BraxEnv("inverted_pendulum", backend="spring", batch_size=2, requires_grad=True, episode_length=None)
    env.set_seed(0)
    raw = envs.get_environment("inverted_pendulum", backend="spring")

    def total(actions: Any) -> Any:
        state, found = jax.vmap(raw.reset)(first_keys(0, 2)), 0.0
        for action in actions:
            state = jax.vmap(raw.step)(state, action)
            found = found + (state.obs**2).sum()
        return found

    actions = torch.linspace(-1, 1, steps * 2).reshape(steps, 2, 1).requires_grad_()
    td, value = env.reset(), torch.zeros(())
    for action in actions:
        td = env.step(td.set("action", action))
        value = value + td["next", "observation"].square().sum()
        td = env.step_mdp(td)
    (found,) = torch.autograd.grad(value, actions)

    expected = jax.jit(jax.grad(total))(jnp.asarray(actions.detach().numpy()))
    assert float(found.abs().max()) > 1e-3
    np.testing.assert_allclose(found.numpy(), np.asarray(expected), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("kwargs", [{"batch_size": 64}, {"batch_size": 64, "requires_grad": True}], ids=str)
def test_memory_does_not_grow_over_10_000_steps(kwargs: Any) -> None:
    env = make_env("brax:fast", episode_length=50, **kwargs)
    process = psutil.Process()
    action = torch.zeros(64, 1, requires_grad="requires_grad" in kwargs)
    td, sizes = env.reset(), []
    for step in range(10_000):
        td = env.step(td.set("action", action))
        if action.requires_grad and step % 20 == 0:
            torch.autograd.grad(td["next", "reward"].sum(), action)
        following = env.maybe_reset(env.step_mdp(td)).detach()
        td = following
        if step % 2000 == 1999:
            gc.collect()
            sizes.append(process.memory_info().rss)

    # The first part compiles and fills pools.
    assert sizes[-1] - sizes[0] < 16 * 2**20, [size // 2**20 for size in sizes]


@pytest.mark.parametrize("state_in_data", [False, True], ids=["kept", "in the data"])
def test_parallel_environments_have_the_data_of_serial_ones(state_in_data: bool) -> None:
    def make() -> Any:
        return make_env("brax:fast", episode_length=LIMIT, state_in_data=state_in_data)

    serial, parallel = SerialEnv(2, make), ParallelEnv(2, make)
    try:
        found = []
        for batch in (serial, parallel):
            batch.set_seed(0)
            found.append(batch.rollout(2 * LIMIT, break_when_any_done=False))
        for key in found[0].keys(True, True):
            torch.testing.assert_close(found[0][key], found[1][key])
        assert parallel.shape == (2,)
    finally:
        parallel.close()


def test_num_workers_makes_a_batch_of_batches_in_processes() -> None:
    found = []
    for batch in (
        BraxEnv("fast", batch_size=3, episode_length=LIMIT, num_workers=2),
        SerialEnv(2, lambda: BraxEnv("fast", batch_size=3, episode_length=LIMIT)),
    ):
        with batch:
            batch.set_seed(0)
            found.append(batch.rollout(2 * LIMIT, break_when_any_done=False))

    assert found[0].shape == (2, 3, 2 * LIMIT)
    for key in found[1].keys(True, True):
        torch.testing.assert_close(found[0][key], found[1][key])


def test_workers_that_are_forked_from_this_process_are_refused() -> None:
    make_env("brax:fast").reset()
    batch = ParallelEnv(2, lambda: BraxEnv("fast"), mp_start_method="fork")

    with pytest.raises(SteppeError, match="mp_start_method='spawn'"):
        batch.reset()
    batch.close(raise_if_closed=False)


@pytest.mark.matrix
def test_a_collector_sums_rewards_and_counts_steps() -> None:
    base = make_env("brax:fast", batch_size=N, episode_length=100)
    env = TransformedEnv(base, Compose(RewardSum(), StepCounter(max_steps=LIMIT)))
    collector = SyncDataCollector(env, None, frames_per_batch=N * 2 * LIMIT, total_frames=N * 2 * LIMIT)

    (data,) = [batch.clone() for batch in collector]
    collector.shutdown()

    assert data["next", "step_count"][0, :, 0].tolist() == [*range(1, LIMIT + 1)] * 2
    expected = data["next", "reward"].unflatten(1, (2, LIMIT)).cumsum(2).flatten(1, 2)
    torch.testing.assert_close(data["next", "episode_reward"], expected)


@pytest.mark.matrix
def test_a_custom_environment_is_wrapped() -> None:
    env = BraxWrapper(envs.get_environment("fast"), batch_size=2)

    data = env.rollout(3)

    assert data.shape == (2, 3)
    assert not data["next", "done"].any()


@pytest.mark.matrix
def test_dict_observations_are_below_observation() -> None:
    env = BraxEnv("fast", obs_mode="dict_pixels_state")

    td = env.reset(TensorDict({}, [2]))

    assert td["observation", "state"].shape == (2, 2)
    assert td["observation", "pixels/view_0"].shape == (2, 4, 4, 3)


@pytest.mark.matrix
def test_actions_are_repeated() -> None:
    once, twice = (BraxEnv("fast", action_repeat=repeat) for repeat in (1, 2))
    action = torch.ones(1)

    td = once.reset()
    rewards = []
    for _ in range(2):
        td = once.step(td.set("action", action))
        rewards.append(td["next", "reward"])
        td = once.step_mdp(td)
    both = twice.step(twice.reset().set("action", action))

    torch.testing.assert_close(both["next", "reward"], sum(rewards))
    torch.testing.assert_close(both["next", "observation"], td["observation"])


@pytest.mark.matrix
@pytest.mark.parametrize("state_in_data", [False, True], ids=["kept", "in the data"])
def test_a_mask_alone_leaves_other_environments_unchanged(state_in_data: bool) -> None:
    env = BraxEnv("fast", batch_size=N, episode_length=9, state_in_data=state_in_data)
    env.set_seed(5)
    root = env.reset()
    first = root["observation"].clone()
    for _ in range(2):
        root = env.step_mdp(env.step(env.rand_action(root)))
    last = root["observation"].clone()
    found = env.reset(TensorDict({"_reset": torch.tensor([[True], [False], [False]])}, [N]))

    assert torch.equal(found["observation"][1:], last[1:])
    assert not torch.equal(last[0], first[0])
    assert not torch.equal(found["observation"][0], last[0])
    following = env.step(env.rand_action(found))["next", "observation"]
    assert not torch.equal(following[1:], last[1:])  # they go on from where they were
