"""The loss of a life is marked, and the episode continues."""

from __future__ import annotations

import pytest
import torch

gymnasium = pytest.importorskip("gymnasium", minversion="1.0")

import steppe.transforms  # noqa: E402
from steppe.envs import check_env_specs  # noqa: E402
from steppe.errors import NotSupported  # noqa: E402
from steppe.transforms import TransformedEnv  # noqa: E402
from steppe_gym import GymEnv, GymWrapper  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


class Lives(gymnasium.Env):
    """Three lives, each of which lasts two steps."""

    observation_space = gymnasium.spaces.Box(0, 9, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self.count = 0

    def lives(self):
        return 3 - self.count // 2

    @property
    def ale(self):
        return self

    def _seen(self):
        return torch.tensor([float(self.count)]).numpy()

    def reset(self, *, seed=None, options=None):
        self.count = 0
        return self._seen(), {"lives": self.lives()}

    def step(self, action):
        self.count += 1
        return self._seen(), 1.0, self.count == 6, False, {"lives": self.lives()}


EXPECTED = [False, True, False, True, False, True]


def test_end_of_life_transform_is_found_by_name():
    assert steppe.transforms.EndOfLifeTransform.__module__ == "steppe_gym.end_of_life"


def test_lives_are_read_from_the_environment():
    env = TransformedEnv(GymWrapper(Lives()), steppe.transforms.EndOfLifeTransform())
    check_env_specs(env)
    data = env.rollout(12, break_when_any_done=False)

    assert data["next", "end-of-life"].flatten().tolist() == EXPECTED * 2
    assert data["next", "lives"].tolist() == [3, 2, 2, 1, 1, 0] * 2
    assert data["lives"].tolist() == [3, 3, 2, 2, 1, 1] * 2
    assert data["next", "done"].flatten().tolist() == [False] * 5 + [True] + [False] * 5 + [True]


def test_lives_among_the_observations_serve_a_batch():
    from steppe.batched import SerialEnv

    def make():
        return GymWrapper(Lives()).set_info_dict_reader(["lives"])

    env = TransformedEnv(SerialEnv(2, make), steppe.transforms.EndOfLifeTransform())
    data = env.rollout(6, break_when_any_done=False)
    env.close()

    assert data["next", "end-of-life"].squeeze(-1).tolist() == [EXPECTED, EXPECTED]


def test_a_batch_without_them_is_refused():
    from steppe.batched import SerialEnv

    env = TransformedEnv(SerialEnv(2, lambda: GymWrapper(Lives())), steppe.transforms.EndOfLifeTransform())
    with pytest.raises(NotSupported, match="put it inside the batch"):
        env.reset()
    env.close()


def test_losses_take_the_mark_for_done():
    class Loss:
        def set_keys(self, **keys):
            self.keys = keys

    loss = Loss()
    steppe.transforms.EndOfLifeTransform().register_keys(loss)
    assert loss.keys == {"done": "end-of-life", "terminated": "end-of-life"}


def test_atari():
    pytest.importorskip("ale_py")
    env = TransformedEnv(GymEnv("ALE/Breakout-v5", frame_skip=4), steppe.transforms.EndOfLifeTransform())
    env.set_seed(0)  # whether a paddle that moves at random loses a life in so many steps is chance
    data = env.rollout(100)

    lost = data["next", "end-of-life"].flatten()
    assert lost.any()
    assert not data["next", "done"][:-1].any()
    assert torch.equal(lost, data["next", "lives"] < data["lives"])
