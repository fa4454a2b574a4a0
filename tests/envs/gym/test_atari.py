"""``atari_preprocessing`` shows what gymnasium's AtariPreprocessing and FrameStackObservation show, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDictBase

gymnasium = pytest.importorskip("gymnasium")
wrappers = pytest.importorskip("gymnasium.wrappers")
ale_py = pytest.importorskip("ale_py")
pytest.importorskip("cv2")

import steppe  # noqa: E402
from steppe import ParallelEnv, TransformedEnv, make_env  # noqa: E402
from steppe.errors import ArgumentError, NotSupported  # noqa: E402

COLOURS = {"grayscale": False, "stack": 2}
FLOATS = {"scale": True, "noop_max": 0, "screen_size": 64}


def reference(name: str, *, stack: int = 4, **settings: Any) -> Any:
    gymnasium.register_envs(ale_py)
    names = {"grayscale": "grayscale_obs", "scale": "scale_obs"}
    env = gymnasium.make(f"ALE/{name}-v5", frameskip=1)
    env = wrappers.AtariPreprocessing(env, **{names.get(key, key): value for key, value in settings.items()})
    return wrappers.FrameStackObservation(env, stack)


def ours(name: str = "Pong", *, frameskip: int = 1, **settings: Any) -> Any:
    env = make_env(f"gym:ALE/{name}-v5", frameskip=frameskip, categorical_action_encoding=True)
    return TransformedEnv(env, steppe.atari_preprocessing(**settings))


@pytest.mark.parametrize(
    ("name", "settings", "steps"),
    [
        ("Breakout", {}, 500),
        ("Seaquest", {"terminal_on_life_loss": True}, 500),
        ("Breakout", {"terminal_on_life_loss": True, "noop_max": 5, "frame_skip": 2}, 200),
        ("Pong", COLOURS, 60),
        ("Pong", FLOATS, 60),
        ("Pong", {"frame_skip": 1}, 60),
    ],
    ids=["breakout", "lives", "two-frames", "colours", "floats", "every-frame"],
)
def test_observations_equal_those_of_gymnasium(name, settings, steps):
    theirs, env = reference(name, **settings), ours(name, **settings)
    env.set_seed(7)
    observation, _ = theirs.reset(seed=7)
    td = env.reset()
    actions = np.random.default_rng(0).integers(0, theirs.action_space.n, steps)
    ends = 0
    for step, action in enumerate(actions):
        assert np.array_equal(observation, td["pixels"].numpy()), step
        observation, reward, terminated, truncated, _ = theirs.step(action)
        td = env.step(td.set("action", torch.tensor(action)))
        assert np.array_equal(observation, td["next", "pixels"].numpy()), step
        assert (reward, terminated, truncated) == (
            td["next", "reward"].item(),
            td["next", "terminated"].item(),
            td["next", "truncated"].item(),
        )
        td = env.step_mdp(td)
        if terminated or truncated:
            ends += 1
            observation, _ = theirs.reset()
            td = env.reset()
    assert ends > 0 or steps < 500
    theirs.close()
    env.close()


def noop(tensordict: TensorDictBase) -> TensorDictBase:
    return tensordict.set("action", torch.zeros(tensordict.batch_size, dtype=torch.int64))


@pytest.mark.parametrize("make_policy", [lambda env: noop, lambda env: env.rand_action, lambda env: None])
def test_a_rollout_has_the_entries_of_the_specs(make_policy):
    env = TransformedEnv(ours(screen_size=42), steppe.RenameTransform(["pixels"], ["screens"]))
    data = env.rollout(5, make_policy(env))

    flags = {"done", "terminated", "truncated"}
    assert set(data.keys()) == {"screens", "action", "next", *flags}
    assert set(data["next"].keys()) == {"screens", "reward", *flags}
    assert data["screens"].shape == (5, 4, 42, 42)


def test_a_collector_with_a_policy_shows_the_same_as_steps():
    env = ours(screen_size=42)
    batch = next(iter(steppe.Collector(env, noop, frames_per_batch=40, total_frames=40, seed=3)))
    alone = ours(screen_size=42)
    alone.set_seed(3)
    data = alone.rollout(40, noop)
    assert torch.equal(batch["pixels"], data["pixels"])
    assert torch.equal(batch["next", "reward"], data["next", "reward"])


def test_transforms_before_the_screens_see_every_frame():
    class Halved(steppe.transforms.Transform):
        """Half the reward of each frame."""

        def __init__(self) -> None:
            super().__init__(in_keys=["reward"])

        def _apply_transform(self, reward: torch.Tensor) -> torch.Tensor:
            return reward / 2

    def run(*before: Any) -> Any:
        game = make_env("gym:ALE/Pong-v5", frameskip=1, categorical_action_encoding=True)
        env = TransformedEnv(game, steppe.Compose(*before, steppe.atari_preprocessing(screen_size=42)))
        env.set_seed(0)
        return env.rollout(120, noop)

    whole, half = run(), run(Halved())
    assert whole["next", "reward"].min() == -1
    assert torch.equal(half["next", "reward"], whole["next", "reward"] / 2)
    assert torch.equal(half["next", "pixels"], whole["next", "pixels"])


def test_workers_send_stacks_of_uint8():
    env = ParallelEnv(2, ours)
    data = env.rollout(4)

    assert data["pixels"].shape == (2, 4, 4, 84, 84)
    assert data["pixels"].dtype is torch.uint8
    env.close()


def test_a_game_that_repeats_actions_is_an_error():
    with pytest.raises(ArgumentError, match="Make it with frameskip=1"):
        ours(frameskip=4).reset()


def test_other_environments_are_an_error():
    with pytest.raises(NotSupported, match="needs a game of ALE"):
        TransformedEnv(make_env("gym:CartPole-v1"), steppe.atari_preprocessing()).reset()


def test_around_a_batch_it_is_an_error():
    batch = steppe.SerialEnv(2, lambda: make_env("gym:ALE/Pong-v5", frameskip=1))
    with pytest.raises(NotSupported, match="In a batch, put it inside"):
        TransformedEnv(batch, steppe.atari_preprocessing()).reset()


@pytest.mark.parametrize("wrong", [{"noop_max": -1}, {"frame_skip": 0}, {"stack": 1.5}])
def test_numbers_out_of_range_are_an_error(wrong):
    with pytest.raises(ArgumentError, match="must be a whole number"):
        steppe.atari_preprocessing(**wrong)
