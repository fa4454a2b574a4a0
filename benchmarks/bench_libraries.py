"""Compare rollouts of environments with handwritten loops over their libraries.

    python benchmarks/bench_libraries.py [NAME ...] [--rounds 15] [--steps 400]

The loop of a library takes random actions, reads what a rollout stores, and resets ended episodes. The rollout takes
given actions. Contestants take turns in short slices; figures are medians in microseconds per step, and the ratio is
that of the same turn. Libraries that are not installed are left out.

With SuperSuit installed, a batch of PettingZoo's environments is compared with its ``concat_vec_envs_v1``
(``supersuit`` as NAME runs this alone).
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from common import Contest, show

from steppe import ParallelEnv, make_env

warnings.filterwarnings("ignore")

RAW, OURS = "loop over the library", "rollout"


@dataclass
class Case:
    """An environment, and a loop over its library.

    Attributes:
        module: module of the library.
        id: id of the environment.
        loop: a generator that steps the library once for each value.
        kwargs: arguments of ``make_env``.
    """

    module: str
    id: str
    loop: Callable[[], Iterator[None]]
    kwargs: dict[str, Any] = field(default_factory=dict)


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
    """Step ``n`` environments with the compiled function of Gymnax, which resets those that end."""

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
    """Step ``n`` games with the compiled function of Pgx, which resets those that end; take the first legal action."""

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


CASES = {
    f"openspiel, {name}": Case("pyspiel", f"openspiel:{name}", openspiel(name))
    for name in ("tic_tac_toe", "leduc_poker", "goofspiel", "chess")
}
CASES |= {
    f"meltingpot, {name}": Case("meltingpot", f"meltingpot:{name}", meltingpot(name))
    for name in ("prisoners_dilemma_in_the_matrix__repeated", "commons_harvest__open")
}
CASES |= {
    f"procgen, coinrun, {n} games": Case("procgen", "procgen:coinrun", procgen("coinrun", n), {"num_envs": n})
    for n in (1, 16)
}
CASES |= {
    f"pettingzoo, {name}": Case("mpe2", f"pettingzoo:mpe2/{name}", pettingzoo(name))
    for name in ("simple_tag_v3", "simple_spread_v3")
}
CASES |= {
    "gymnax, 1,024 CartPoles": Case("gymnax", "gymnax:CartPole-v1", gymnax("CartPole-v1", 1024), {"batch_size": 1024}),
    "pgx, 1,024 games of connect_four": Case(
        "pgx", "pgx:connect_four", pgx("connect_four", 1024), {"batch_size": 1024}
    ),
}


def raw_slice(loop: Iterator[None], steps: int) -> Callable[[], float]:
    def run() -> float:
        start = time.perf_counter()
        for _ in range(steps):
            next(loop)
        return 1e6 * (time.perf_counter() - start) / steps

    return run


def our_slice(case: Case, steps: int) -> Callable[[], float]:
    env = make_env(case.id, **case.kwargs)
    env.set_seed(0)
    first = env.rollout(steps, break_when_any_done=False)
    actions = list(first.select(*env.action_keys).unbind(-1))

    def run() -> float:
        env.set_seed(0)  # the same course, in which these actions are allowed
        root = env.reset()
        start = time.perf_counter()
        env.rollout(steps, actions=actions, break_when_any_done=False, tensordict=root, auto_reset=False)
        return 1e6 * (time.perf_counter() - start) / steps

    return run


def supersuit_slice(name: str, n: int, steps: int) -> tuple[Callable[[], float], Callable[[], None]]:
    """Return a slice of SuperSuit's batch in two processes, with a row for each agent, and its close."""
    import supersuit

    # SuperSuit needs agents with equal spaces: the predators and the prey of simple_tag are padded.
    padded = supersuit.pad_action_space_v0(supersuit.pad_observations_v0(import_module(f"mpe2.{name}").parallel_env()))
    one = supersuit.pettingzoo_env_to_vec_env_v1(padded)
    batch = supersuit.concat_vec_envs_v1(one, n, num_cpus=2, base_class="gymnasium")
    batch.reset(seed=0)
    actions = np.random.default_rng(0).integers(batch.action_space.n, size=(steps, batch.num_envs))

    def run() -> float:
        start = time.perf_counter()
        for action in actions:
            batch.step(action)
        return n * steps / (time.perf_counter() - start)

    return run, batch.close


def batch_slice(id: str, n: int, steps: int) -> tuple[Callable[[], float], Callable[[], None]]:
    """Return a slice of a loop over ``ParallelEnv`` with two processes, and its close."""
    batch = ParallelEnv(n, id, num_processes=2)
    batch.set_seed(0)
    root = batch.rand_action(batch.reset())
    actions = [batch.rand_action(root.copy()).select(*batch.action_keys) for _ in range(steps)]

    def run() -> float:
        root = batch.reset()
        start = time.perf_counter()
        for action in actions:
            _, root = batch.step_and_maybe_reset(root.update(action))
        return n * steps / (time.perf_counter() - start)

    return run, batch.close


def compare_with_supersuit(rounds: int, steps: int, n: int = 8) -> None:
    """Compare ``ParallelEnv`` with SuperSuit's ``concat_vec_envs_v1``, which has the same actions in each step."""
    rows = []
    for name in ("simple_tag_v3", "simple_spread_v3"):
        contest = Contest(name, "frames per second")
        (theirs, close_theirs), (ours, close_ours) = (
            supersuit_slice(name, n, steps),
            batch_slice(f"pettingzoo:mpe2/{name}", n, steps),
        )
        contest.add("SuperSuit", theirs)
        contest.add("ParallelEnv", ours)
        medians = contest.run(rounds)
        close_theirs(), close_ours()
        ratio = statistics.median(
            a / b for a, b in zip(contest.figures["ParallelEnv"], contest.figures["SuperSuit"], strict=True)
        )
        rows.append([name, *(f"{medians[key]:,.0f}" for key in ("SuperSuit", "ParallelEnv")), f"{ratio:.2f}"])
    show(f"frames per second of {n} environments in 2 processes", ["", "SuperSuit", "ParallelEnv", "ratio"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="beginnings of names; all by default")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=400)
    args = parser.parse_args()
    rows = []
    for name, case in CASES.items():
        if (args.names and not name.startswith(tuple(args.names))) or find_spec(case.module) is None:
            continue
        contest = Contest(name, "us per step")
        contest.add(RAW, raw_slice(case.loop(), args.steps))
        contest.add(OURS, our_slice(case, args.steps))
        medians = contest.run(args.rounds)
        pairs = zip(contest.figures[OURS], contest.figures[RAW], strict=True)
        ratio = statistics.median(ours / raw for ours, raw in pairs)
        over = medians[OURS] - medians[RAW]
        rows.append([name, f"{medians[RAW]:.1f}", f"{medians[OURS]:.1f}", f"{over:+.1f}", f"{ratio:.2f}"])
    show("microseconds per step", ["", RAW, OURS, "over", "ratio"], rows)
    if (not args.names or "supersuit" in args.names) and find_spec("supersuit") is not None:
        compare_with_supersuit(args.rounds, args.steps)


if __name__ == "__main__":
    main()
