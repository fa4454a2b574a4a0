"""Environments of gymnasium and its extensions return the library's data."""

from __future__ import annotations

import warnings
from itertools import pairwise

import numpy as np
import pytest
import torch

gymnasium = pytest.importorskip("gymnasium", minversion="1.2")

from steppe.batched import ParallelEnv, SerialEnv  # noqa: E402
from steppe.registry import env_factory  # noqa: E402
from steppe_gym import GymEnv  # noqa: E402

FIRST = 11  # a batch seeds its environments with this and the two seeds that follow from it
STEPS = 64
LIMIT = 25  # steps of an episode, so that ends come soon

IDS = {
    "gymnasium": [
        "CartPole-v0",
        "CartPole-v1",
        "MountainCar-v0",
        "MountainCarContinuous-v0",
        "Pendulum-v1",
        "Acrobot-v1",
        "Blackjack-v1",
        "FrozenLake-v1",
        "FrozenLake8x8-v1",
        "CliffWalking-v1",
        "CliffWalkingSlippery-v1",
        "Taxi-v4",
    ],
    "Box2D": [
        "LunarLander-v3",
        "LunarLanderContinuous-v3",
        "BipedalWalker-v3",
        "BipedalWalkerHardcore-v3",
        "CarRacing-v3",
    ],
    "mujoco": [
        "Ant-v5",
        "HalfCheetah-v5",
        "Hopper-v5",
        "Humanoid-v5",
        "HumanoidStandup-v5",
        "InvertedDoublePendulum-v5",
        "InvertedPendulum-v5",
        "Pusher-v5",
        "Reacher-v5",
        "Swimmer-v5",
        "Walker2d-v5",
    ],
    "ale_py": [
        "ALE/Pong-v5",
        "ALE/Breakout-v5",
        "ALE/SpaceInvaders-v5",
        "ALE/Freeway-v5",
        "ALE/MsPacman-v5",
        "PongNoFrameskip-v4",
    ],
    "minigrid": [
        "MiniGrid-Empty-5x5-v0",
        "MiniGrid-DoorKey-5x5-v0",
        "MiniGrid-FourRooms-v0",
        "MiniGrid-Fetch-5x5-N2-v0",
        "MiniGrid-LavaGapS5-v0",
        "BabyAI-GoToObj-v0",
    ],
}
# Of a package whose environments share one kind of spaces and one engine, those that every change is tested with.
CHOSEN = {
    "gymnasium": IDS["gymnasium"],
    "Box2D": ["LunarLander-v3", "BipedalWalker-v3", "CarRacing-v3"],
    "mujoco": ["HalfCheetah-v5", "Humanoid-v5", "InvertedPendulum-v5"],
    "ale_py": ["ALE/Pong-v5", "PongNoFrameskip-v4"],
    "minigrid": ["MiniGrid-Empty-5x5-v0", "BabyAI-GoToObj-v0"],
}
CASES = [
    pytest.param(module, name, id=name, marks=[] if name in CHOSEN[module] else [pytest.mark.exhaustive])
    for module, names in IDS.items()
    for name in names
]

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def parts(space, value, prefix=()):
    """Every leaf of a value as the library returned it, by the key that it has in data."""
    if isinstance(space, gymnasium.spaces.Dict):
        for key, part in space.spaces.items():
            yield from parts(part, value[key], (*prefix, key))
    elif isinstance(space, gymnasium.spaces.Tuple):
        for i, part in enumerate(space.spaces):
            yield from parts(part, value[i], (*(prefix or ("observation",)), str(i)))
    else:
        frames = prefix == () and space.shape[-1:] == (3,) and space.dtype == np.uint8
        key = prefix or ("pixels" if frames else "observation",)
        yield (key[0] if len(key) == 1 else key), value


class Played:
    """One environment of the library, played with fixed actions, for several seeds."""

    def __init__(self, name, seeds):
        self.env = gymnasium.make(name, max_episode_steps=LIMIT)
        space = self.env.action_space
        rng = np.random.default_rng(3)
        if isinstance(space, gymnasium.spaces.Discrete):
            self.actions = [int(rng.integers(space.n)) + int(space.start) for _ in range(STEPS)]
            self.given = torch.tensor(self.actions) - int(space.start)
        else:
            self.actions = [rng.uniform(space.low, space.high).astype(space.dtype) for _ in range(STEPS)]
            self.given = torch.from_numpy(np.stack(self.actions))
        # Box2D's worlds remember earlier episodes: each seed gets an environment of its own.
        self.rows = {}
        for seed in seeds:
            self.env = gymnasium.make(name, max_episode_steps=LIMIT)
            self.rows[seed] = list(self._play(seed))
            self.env.close()

    def _play(self, seed):
        space = self.env.observation_space
        root, _ = self.env.reset(seed=seed)
        root = dict(parts(space, root))
        for action in self.actions:
            after, reward, terminated, truncated, _ = self.env.step(action)
            after = {key: np.array(value) for key, value in parts(space, after)}
            yield {key: np.array(value) for key, value in root.items()}, after, reward, terminated, truncated
            root = dict(parts(space, self.env.reset()[0])) if terminated or truncated else after

    def check(self, seed, steps):
        """Compare with the library.

        ``steps`` yields the data of steppe, one TensorDict for each step.
        """
        count = 0
        for (root, after, reward, terminated, truncated), found in zip(self.rows[seed], steps, strict=True):
            for expected, data in ((root, found), (after, found["next"])):
                for key, value in expected.items():
                    self._same(value, data[key])
            assert found["next", "reward"].item() == np.float32(reward)
            flags = [found["next", key].item() for key in ("terminated", "truncated", "done")]
            assert flags == [terminated, truncated, terminated or truncated]
            count += terminated or truncated
        assert count >= 2

    @staticmethod
    def _same(expected, found):
        if expected.dtype.kind in "US":
            assert found == str(expected)
        else:
            np.testing.assert_array_equal(expected.astype(found.numpy().dtype), found.numpy())


def make(name):
    return GymEnv(name, categorical_action_encoding=True, max_episode_steps=LIMIT)


def seeds_of_a_batch(env):
    seeds = [FIRST]
    while len(seeds) < 3:
        seeds.append(env.set_seed(seeds[-1]))
    return seeds


_played = {}


@pytest.fixture
def case(request):
    module, name = request.param
    pytest.importorskip(module)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Every test of an environment compares with the same data, which pytest's order would make several times.
        if name not in _played:
            env = make(name)
            _played[name] = Played(name, seeds_of_a_batch(env))
            env.close()
    return name, _played[name]


every_id = pytest.mark.parametrize(
    "case", [pytest.param(case.values, id=case.id, marks=case.marks) for case in CASES], indirect=True
)


@every_id
def test_step_loop(case):
    name, played = case
    for seed in played.rows:
        env = make(name)
        env.set_seed(seed)
        root, steps = env.reset(), []
        for action in played.given:
            root["action"] = action
            step, root = env.step_and_maybe_reset(root)
            steps.append(step)
        played.check(seed, steps)
        env.close()


@every_id
def test_rollout(case):
    name, played = case
    for seed in played.rows:
        env = make(name)
        env.set_seed(seed)
        data = env.rollout(STEPS, actions=played.given, break_when_any_done=False)
        played.check(seed, [data[t] for t in range(STEPS)])
        env.close()


@every_id
def test_batches(case):
    name, played = case
    given = torch.stack([played.given] * 3, 1)
    for kind, kwargs in ((SerialEnv, {}), (ParallelEnv, {"num_processes": 2})):
        env = kind(3, env_factory(f"gym:{name}", categorical_action_encoding=True, max_episode_steps=LIMIT), **kwargs)
        try:
            env.set_seed(FIRST)
            data = env.rollout(STEPS, actions=given, break_when_any_done=False)
            for row, seed in enumerate(played.rows):
                played.check(seed, [data[row][t] for t in range(STEPS)])
        finally:
            env.close()


def test_observations_are_not_the_library_s_memory():
    env = GymEnv("HalfCheetah-v5")
    root = env.reset()
    steps = []
    for _ in range(3):
        env.rand_step(root)
        steps.append(root["next", "observation"])
        root = env.step_mdp(root)
    assert all(not torch.equal(a, b) for a, b in pairwise(steps))
