"""Loops over environment libraries, as contestants of bench_libraries.py.

A loop takes random actions, reads what a rollout stores, and resets ended episodes. A loop over a JAX library steps its
compiled function, which resets rows that end, and moves no data out of JAX.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np

__all__ = ["CASES", "Case"]


@dataclass
class Case:
    """An environment, and a loop over its library.

    Attributes:
        module: module of the library.
        libraries: distributions whose versions are written beside the figures, separated by spaces.
        id: id of the environment.
        loop: a generator that steps the library once for each value.
        kwargs: arguments of ``make_env``.
        make: makes our environment, if ``make_env(id, **kwargs)`` does not.
        collects: a collector is measured too.
    """

    module: str
    libraries: str
    id: str
    loop: Callable[[], Iterator[None]]
    kwargs: dict[str, Any] = field(default_factory=dict)
    make: Callable[[], Any] | None = None
    collects: bool = False


def openspiel(name: str) -> Callable[[], Iterator[None]]:
    """Play legal actions, and read the tensors, legal actions and returns of both players."""

    def loop() -> Iterator[None]:
        import pyspiel

        game = pyspiel.load_game(name)
        kinds = [
            kind
            for kind in ("observation_tensor", "information_state_tensor")
            if getattr(game.get_type(), f"provides_{kind}")
        ]
        while True:
            state = game.new_initial_state()
            while not state.is_terminal():
                if state.is_chance_node():
                    actions, probabilities = zip(*state.chance_outcomes(), strict=True)
                    state.apply_action(random.choices(actions, probabilities)[0])
                    continue
                if state.is_simultaneous_node():
                    state.apply_actions([random.choice(state.legal_actions(player)) for player in (0, 1)])
                else:
                    state.apply_action(random.choice(state.legal_actions()))
                if not state.is_chance_node():
                    for player in (0, 1):
                        _ = [np.asarray(getattr(state, kind)(player), np.float32) for kind in kinds]
                    _ = state.returns(), state.current_player()
                    yield

    return loop


def meltingpot(name: str) -> Callable[[], Iterator[None]]:
    """Take random actions, and copy the observations of all players and the image of the world."""

    def loop() -> Iterator[None]:
        from meltingpot import substrate

        config = substrate.get_config(name)
        env = substrate.build_from_config(config, roles=config.default_player_roles)
        n = env.action_spec()[0].num_values
        while True:
            timestep = env.reset()
            yield  # the first reset, which takes seconds, in the warm-up
            while not timestep.last():
                timestep = env.step([random.randrange(n) for _ in config.default_player_roles])
                for each in timestep.observation:
                    _ = [np.array(value) for key, value in each.items() if not key.startswith("WORLD.")]
                _ = np.array(timestep.observation[0]["WORLD.RGB"])
                yield

    return loop


def procgen(name: str, n: int) -> Callable[[], Iterator[None]]:
    """Take random actions in ``n`` games, and copy images and infos."""

    def loop() -> Iterator[None]:
        from procgen import ProcgenGym3Env

        env = ProcgenGym3Env(num=n, env_name=name, rand_seed=0)
        while True:
            env.act(np.random.randint(15, size=n))
            _, observation, _ = env.observe()
            _ = observation["rgb"].copy(), env.get_info()
            yield

    return loop


def gymnax(name: str, n: int) -> Callable[[], Iterator[None]]:
    """Step ``n`` environments with the compiled function of Gymnax, which resets ended environments."""

    def loop() -> Iterator[None]:
        import gymnax as library
        import jax

        env, params = library.make(name)
        step = jax.jit(jax.vmap(env.step, in_axes=(0, 0, 0, None)))
        chain, actions = jax.random.PRNGKey(0), jax.numpy.zeros(n, int)
        _, state = jax.jit(jax.vmap(env.reset, in_axes=(0, None)))(jax.random.split(chain, n), params)
        while True:
            chain, key = jax.random.split(chain)
            _, state, _, _, _ = jax.block_until_ready(step(jax.random.split(key, n), state, actions, params))
            yield

    return loop


def pgx(name: str, n: int) -> Callable[[], Iterator[None]]:
    """Step ``n`` games with the compiled function of Pgx, which resets ended games; take the first legal action."""

    def loop() -> Iterator[None]:
        import jax
        from pgx import make
        from pgx.experimental import auto_reset

        env = make(name)
        step = jax.jit(jax.vmap(auto_reset(env.step, env.init)))
        chain = jax.random.PRNGKey(0)
        state = jax.jit(jax.vmap(env.init))(jax.random.split(chain, n))
        while True:
            chain, key = jax.random.split(chain)
            actions = state.legal_action_mask.argmax(-1)
            state = jax.block_until_ready(step(state, actions, jax.random.split(key, n)))
            yield

    return loop


def pettingzoo(name: str) -> Callable[[], Iterator[None]]:
    """Step all agents at once, and begin again when one ends."""

    def loop() -> Iterator[None]:
        env = import_module(f"mpe2.{name}").parallel_env()
        counts = {agent: int(env.action_space(agent).n) for agent in env.possible_agents}
        while True:
            env.reset()
            while True:
                _, _, terminated, truncated, _ = env.step({agent: random.randrange(n) for agent, n in counts.items()})
                yield
                if any(terminated.values()) or any(truncated.values()):
                    break

    return loop


def dm_control(domain: str, task: str) -> Callable[[], Iterator[None]]:
    """Take random actions, and copy the observations."""

    def loop() -> Iterator[None]:
        from dm_control import suite

        env = suite.load(domain, task)
        spec = env.action_spec()
        actions = np.random.uniform(spec.minimum, spec.maximum, (1000, *spec.shape))
        while True:
            env.reset()
            for action in actions:
                timestep = env.step(action)
                _ = [np.array(value) for value in timestep.observation.values()]
                yield
                if timestep.last():
                    break

    return loop


def gym_like(module: str, name: str) -> Callable[[], Iterator[None]]:
    """Take random actions, and copy the observations. A step returns five values, or six with a cost."""

    def loop() -> Iterator[None]:
        env = import_module(module).make(name)
        actions = [env.action_space.sample() for _ in range(1000)]
        while True:
            env.reset()
            for action in actions:
                observation, *_, terminated, truncated, _ = env.step(action)
                _ = np.array(observation)
                yield
                if terminated or truncated:
                    break

    return loop


def envpool(name: str, n: int) -> Callable[[], Iterator[None]]:
    """Step a pool, which resets rows that end."""

    def loop() -> Iterator[None]:
        import envpool as library

        pool = library.make(name, env_type="gymnasium", num_envs=n)
        pool.reset()
        while True:
            pool.step(np.random.randint(pool.action_space.n, size=n))
            yield

    return loop


def vmas(name: str, n: int) -> Callable[[], Iterator[None]]:
    """Step ``n`` environments. Begin again after as many steps as a rollout takes."""

    def loop() -> Iterator[None]:
        import torch
        import vmas as library

        env = library.make_env(name, num_envs=n, max_steps=100, terminated_truncated=True)
        while True:
            env.reset()
            for _ in range(100):
                env.step([2 * torch.rand(n, space.shape[-1]) - 1 for space in env.action_space.spaces])
                yield

    return loop


def unity_game() -> Any:
    """Return a UnityEnvironment whose messages come from ML-Agents' own mock of a game."""
    from unittest import mock

    from mlagents_envs.environment import UnityEnvironment
    from mlagents_envs.mock_communicator import MockCommunicator

    game = MockCommunicator(discrete_action=False, visual_inputs=0)
    with (
        mock.patch.object(UnityEnvironment, "_get_communicator", return_value=game),
        mock.patch("mlagents_envs.env_utils.launch_executable"),
    ):
        return UnityEnvironment(" ")


def our_unity() -> Any:
    from steppe_unity import UnityMLAgentsWrapper

    return UnityMLAgentsWrapper(unity_game())


def unity() -> Iterator[None]:
    """Send random actions of all agents that decide, and copy their observations."""
    game = unity_game()
    game.reset()
    (name,) = game.behavior_specs
    spec = game.behavior_specs[name].action_spec
    while True:
        decisions, _ = game.get_steps(name)
        game.set_actions(name, spec.random_action(len(decisions)))
        game.step()
        for steps in game.get_steps(name):
            _ = [np.array(value) for value in steps.obs], steps.reward.copy()
        yield


def openml(n: int) -> Callable[[], Iterator[None]]:
    """Draw ``n`` rows of a table, guess their labels, and compare."""

    def loop() -> Iterator[None]:
        features, labels = openml_table()
        order, at = np.random.permutation(len(labels)), 0
        while True:
            if at + n > len(order):
                order, at = np.random.permutation(len(labels)), 0
            rows = order[at : at + n]
            at += n
            guesses = np.random.randint(2, size=n)
            _ = features[rows], (guesses == labels[rows]).astype(np.float32)
            yield

    return loop


def openml_table() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    return generator.normal(size=(10_000, 10)).astype(np.float32), generator.integers(2, size=10_000)


def our_openml() -> Any:
    """Make an OpenMLEnv of a table in memory, because the data sets must be downloaded."""
    from unittest import mock

    from steppe_openml import OpenMLEnv

    with mock.patch("steppe_openml.env.load", return_value=openml_table()):
        return OpenMLEnv("magic", batch_size=64)


def compiled(make: Callable[[], tuple[Any, Any, Any]], n: int) -> Callable[[], Iterator[None]]:
    """Step ``n`` rows of a JAX library with its own compiled functions, which reset rows that end.

    Args:
        make: returns the reset function of a batch, the step function of a batch, and the actions ``[n, ...]``.
        n: number of rows.
    """

    def loop() -> Iterator[None]:
        import jax

        reset, step, actions = make()
        reset, step = jax.jit(reset), jax.jit(step)
        state = reset(jax.random.split(jax.random.PRNGKey(0), n))
        while True:
            state = jax.block_until_ready(step(state, actions))
            yield

    return loop


def brax(name: str, n: int) -> Callable[[], Iterator[None]]:
    def make() -> tuple[Any, Any, Any]:
        import jax
        from brax import envs

        env = envs.create(name, episode_length=1000, auto_reset=True, batch_size=n)
        return lambda keys: env.reset(keys[0]), env.step, jax.numpy.zeros((n, env.action_size))

    return compiled(make, n)


def jumanji(name: str, n: int) -> Callable[[], Iterator[None]]:
    def make() -> tuple[Any, Any, Any]:
        import jax
        import jumanji as library
        from jumanji.wrappers import VmapAutoResetWrapper

        env = VmapAutoResetWrapper(library.make(name))
        actions = jax.numpy.zeros((n, *env.action_spec.shape), env.action_spec.dtype)
        return lambda keys: env.reset(keys)[0], lambda state, action: env.step(state, action)[0], actions

    return compiled(make, n)


def craftax(name: str, n: int) -> Callable[[], Iterator[None]]:
    def make() -> tuple[Any, Any, Any]:
        import jax
        from craftax.craftax_env import make_craftax_env_from_name

        env = make_craftax_env_from_name(name, auto_reset=True)
        params = env.default_params
        reset, step = jax.vmap(env.reset, (0, None)), jax.vmap(env.step, (0, 0, 0, None))

        def stepped(state: Any, actions: Any) -> Any:
            observation, state, keys = state
            keys = jax.vmap(jax.random.split)(keys)
            observation, state, _, _, _ = step(keys[:, 0], state, actions, params)
            return observation, state, keys[:, 1]

        return lambda keys: (*reset(keys, params), keys), stepped, jax.numpy.zeros(n, int)

    return compiled(make, n)


def playground(name: str, n: int) -> Callable[[], Iterator[None]]:
    def make() -> tuple[Any, Any, Any]:
        import jax
        from mujoco_playground import registry, wrapper

        config = registry.get_default_config(name)
        env = registry.load(name, config=config, config_overrides={"impl": "jax"})
        env = wrapper.wrap_for_brax_training(env, episode_length=config.episode_length)
        return env.reset, env.step, jax.numpy.zeros((n, env.action_size))

    return compiled(make, n)


CASES = {
    f"OpenSpiel, {name}": Case("pyspiel", "open-spiel", f"openspiel:{name}", openspiel(name))
    for name in ("tic_tac_toe", "leduc_poker", "goofspiel", "chess")
}
CASES |= {
    f"Melting Pot, {name}": Case("meltingpot", "dm-meltingpot", f"meltingpot:{name}", meltingpot(name))
    for name in ("prisoners_dilemma_in_the_matrix__repeated", "commons_harvest__open")
}
CASES |= {
    f"Procgen, coinrun, {n} game{'s' * (n > 1)}": Case(
        "procgen", "procgen-mirror", "procgen:coinrun", procgen("coinrun", n), {"num_envs": n}
    )
    for n in (1, 16)
}
CASES |= {
    f"PettingZoo, {name}": Case("mpe2", "pettingzoo mpe2", f"pettingzoo:mpe2/{name}", pettingzoo(name))
    for name in ("simple_tag_v3", "simple_spread_v3")
}
CASES |= {
    "dm_control, cheetah-run": Case("dm_control", "dm-control", "dm:cheetah-run", dm_control("cheetah", "run")),
    "MO-Gymnasium, deep-sea-treasure-v0": Case(
        "mo_gymnasium", "mo-gymnasium", "mo-gym:deep-sea-treasure-v0", gym_like("mo_gymnasium", "deep-sea-treasure-v0")
    ),
    "Safety-Gymnasium, SafetyPointGoal1-v0": Case(
        "safety_gymnasium",
        "safety-gymnasium",
        "safety:SafetyPointGoal1-v0",
        gym_like("safety_gymnasium", "SafetyPointGoal1-v0"),
    ),
    "EnvPool, 8 games of Pong": Case(
        "envpool", "envpool", "envpool:Pong-v5", envpool("Pong-v5", 8), {"num_workers": 8}
    ),
    "VMAS, 32 of balance": Case(
        "vmas", "vmas", "vmas:balance", vmas("balance", 32), {"num_envs": 32, "max_steps": 100}
    ),
    "Unity, ML-Agents' mock": Case("mlagents_envs", "mlagents-envs", "", unity, make=our_unity),
    "OpenML, 64 rows of 10 numbers": Case("sklearn", "scikit-learn", "", openml(64), make=our_openml, collects=True),
    "Brax, 1,024 of fast": Case("brax", "brax jax", "brax:fast", brax("fast", 1024), {"batch_size": 1024}),
    "Brax, 256 of inverted_pendulum": Case(
        "brax",
        "brax jax",
        "brax:inverted_pendulum",
        brax("inverted_pendulum", 256),
        {"batch_size": 256},
    ),
    "Jumanji, 256 of Snake-v1": Case(
        "jumanji", "jumanji jax", "jumanji:Snake-v1", jumanji("Snake-v1", 256), {"batch_size": 256}
    ),
    "Gymnax, 1,024 of CartPole-v1": Case(
        "gymnax", "gymnax jax", "gymnax:CartPole-v1", gymnax("CartPole-v1", 1024), {"batch_size": 1024}
    ),
    "Pgx, 1,024 games of connect_four": Case(
        "pgx", "pgx jax", "pgx:connect_four", pgx("connect_four", 1024), {"batch_size": 1024}
    ),
    "Craftax, 64 of Craftax-Classic-Symbolic-v1": Case(
        "craftax",
        "craftax jax",
        "craftax:Craftax-Classic-Symbolic-v1",
        craftax("Craftax-Classic-Symbolic-v1", 64),
        {"batch_size": 64},
    ),
    "MuJoCo Playground, 64 of CartpoleBalance": Case(
        "mujoco_playground",
        "playground jax",
        "playground:CartpoleBalance",
        playground("CartpoleBalance", 64),
        {"batch_size": 64},
    ),
}
