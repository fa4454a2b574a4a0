"""PettingZoo's environments return the library's data, on all code paths."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import torch
from tensordict import TensorDict

pytest.importorskip("pettingzoo")

from steppe import ParallelEnv, SerialEnv, make_env
from steppe.envs import next_seed
from steppe.registry import env_factory, list_envs

pytestmark = [pytest.mark.library, pytest.mark.matrix, pytest.mark.filterwarnings("ignore")]

STEPS = 14
CASES = [
    ("mpe2/simple_tag_v3", {"max_cycles": 6}),
    ("mpe2/simple_spread_v3", {"max_cycles": 6, "continuous_actions": True}),
    ("butterfly/pistonball_v6", {"max_cycles": 6, "n_pistons": 4}),
    ("sisl/multiwalker_v9", {"max_cycles": 6}),
    (max(name for name in list_envs("pettingzoo") if name.startswith("sisl/pursuit")), {"max_cycles": 6}),
]


def raw_parallel(name, **kwargs):
    family, task = name.split("/")
    module = importlib.import_module(f"mpe2.{task}" if family == "mpe2" else f"pettingzoo.{name.replace('/', '.')}")
    return module.parallel_env(**kwargs)


def played(raw, steps, seed):
    """Actions, and for each step what agents observed before and after, rewards and flags; resets at an end."""
    generator = np.random.default_rng(seed)
    observations, _ = raw.reset(seed=seed)
    rows = []
    for _ in range(steps):
        actions = {}
        for agent in raw.agents:
            space = raw.action_space(agent)
            one = generator.integers(space.n) if hasattr(space, "n") else generator.uniform(space.low, space.high)
            actions[agent] = one if hasattr(space, "n") else one.astype(space.dtype)
        following, rewards, terminated, truncated, _ = raw.step(dict(actions))
        copies = [{k: np.array(v) for k, v in each.items()} for each in (observations, following)]
        rows.append((actions, *copies, rewards, terminated, truncated))
        observations = following
        if any(terminated.values()) or any(truncated.values()):
            observations, _ = raw.reset()
    return rows


def as_data(env, rows):
    """The actions of rows as the environment takes them."""
    return [
        TensorDict(
            {
                group: TensorDict({"action": torch.as_tensor(np.stack([row[0][name] for name in names]))}, [len(names)])
                for group, names in env.group_map.items()
            },
            [],
        )
        for row in rows
    ]


def assert_equal_to_library(env, data, rows):
    for t, (_, before, after, rewards, terminated, truncated) in enumerate(rows):
        for group, names in env.group_map.items():
            root, following = data[t][group], data[t]["next"][group]
            for i, name in enumerate(names):
                np.testing.assert_array_equal(root[i]["observation"].numpy(), before[name], err_msg=f"{t} {name}")
                np.testing.assert_array_equal(following[i]["observation"].numpy(), after[name], err_msg=f"{t} {name}")
                assert following[i]["reward"].item() == np.float32(rewards[name])
                assert following[i]["terminated"].item() == terminated[name]
                assert following[i]["truncated"].item() == truncated[name]
        assert data[t]["next", "terminated"].item() == any(terminated.values())
        assert data[t]["next", "truncated"].item() == any(truncated.values())


@pytest.mark.parametrize(("name", "kwargs"), CASES)
def test_a_rollout_equals_the_library_over_ends_of_episodes(name, kwargs):
    rows = played(raw_parallel(name, **kwargs), STEPS, 3)
    env = make_env(f"pettingzoo:{name}", **kwargs)
    env.set_seed(3)

    data = env.rollout(STEPS, actions=as_data(env, rows), break_when_any_done=False)

    assert data["next", "done"].any()
    assert_equal_to_library(env, data, rows)
    env.close()


def test_a_step_loop_equals_the_library():
    name, kwargs = CASES[0]
    rows = played(raw_parallel(name, **kwargs), STEPS, 5)
    env = make_env(f"pettingzoo:{name}", **kwargs)
    env.set_seed(5)

    root, steps = env.reset(), []
    for action in as_data(env, rows):
        root.update(action)
        step, root = env.step_and_maybe_reset(root)
        steps.append(step)

    assert_equal_to_library(env, steps, rows)


@pytest.mark.parametrize("kind", [SerialEnv, ParallelEnv])
def test_rows_of_a_batch_equal_the_library(kind):
    name, kwargs = CASES[0]
    seeds = [7, next_seed(7)]
    rows = [played(raw_parallel(name, **kwargs), STEPS, seed) for seed in seeds]
    env = make_env(f"pettingzoo:{name}", **kwargs)
    batch = kind(2, env_factory(f"pettingzoo:{name}", **kwargs))
    batch.set_seed(7)
    actions = [torch.stack(pair, 0) for pair in zip(*(as_data(env, row) for row in rows), strict=True)]

    data = batch.rollout(STEPS, actions=actions, break_when_any_done=False)

    for row in range(2):
        assert_equal_to_library(env, data[row], rows[row])
    batch.close()


@pytest.mark.parametrize("task", ["tictactoe_v3", "connect_four_v3", "leduc_holdem_v4"])
def test_turns_equal_the_library(task):
    raw = importlib.import_module(f"pettingzoo.classic.{task}").env()
    env = make_env(f"pettingzoo:classic/{task}")
    env.set_seed(1)
    raw.reset(seed=1)
    generator, td = np.random.default_rng(0), env.reset()

    while True:
        mine = raw.agent_selection
        for agent in raw.agents:
            seen = raw.observe(agent)
            np.testing.assert_array_equal(td[agent, "observation", "observation"][0].numpy(), seen["observation"])
            assert td[agent, "mask"].item() == (agent == mine)
            allowed = seen["action_mask"].astype(bool) if agent == mine else np.ones_like(seen["action_mask"], bool)
            np.testing.assert_array_equal(td[agent, "action_mask"][0].numpy(), allowed)
        action = generator.choice(np.flatnonzero(raw.observe(mine)["action_mask"]))
        raw.step(int(action))
        env.rand_action(td)
        td[mine, "action"] = torch.tensor([action])
        td = env.step(td)["next"]
        for agent in raw.possible_agents:
            assert td[agent, "reward"].item() == np.float32(raw.rewards.get(agent, 0))
            assert td[agent, "terminated"].item() == raw.terminations[agent]
        if td["done"].item():
            break
        td = td.exclude(*((agent, "reward") for agent in raw.possible_agents))
    assert all(raw.terminations.values())
