"""Frames of a gym environment, with other observations, repeats and batches."""

import gymnasium
import numpy as np
import torch
from environments import Compose, GymEnv, GymWrapper, ParallelEnv, RewardSum, StepCounter, TransformedEnv
from gymnasium.envs.classic_control import CartPoleEnv
from tensordict.nn import TensorDictModule


class Leaning(CartPoleEnv):
    """Each episode begins with the pole leaning by the same angle."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        self.state = np.array([0.0, 0.0, 0.05, 0.0])
        return np.array(self.state, dtype=np.float32), {}


NAME = "Leaning-v0"
if NAME not in gymnasium.registry:
    gymnasium.register(NAME, entry_point=Leaning, max_episode_steps=6)


def push(observation):
    """Follow the pole."""
    return torch.nn.functional.one_hot((observation[..., 2] > 0).long(), 2)


def follow_frame(pixels):
    """Move right if the right half of the frame is darker."""
    left, right = pixels[..., :300, :].float().mean((-3, -2, -1)), pixels[..., 300:, :].float().mean((-3, -2, -1))
    return torch.nn.functional.one_hot((right < left).long(), 2)


def run():
    both = GymEnv(NAME, from_pixels=True, pixels_only=False)
    alone = GymEnv(NAME, from_pixels=True, frame_skip=2)
    wrapped = GymWrapper(gymnasium.make(NAME, render_mode="rgb_array"), from_pixels=True)
    state_policy = TensorDictModule(push, in_keys=["observation"], out_keys=["action"])
    frame_policy = TensorDictModule(follow_frame, in_keys=["pixels"], out_keys=["action"])
    later = GymEnv(NAME)
    later.rebuild_with_kwargs(from_pixels=True, pixels_only=False)
    counted = TransformedEnv(GymEnv(NAME, from_pixels=True, pixels_only=False), Compose(StepCounter(), RewardSum()))
    found = {
        "beside": both.rollout(4, state_policy),
        "alone, repeated": alone.rollout(4, frame_policy),
        "of an object": wrapped.rollout(4, state_policy),
        "added later": later.rollout(3, state_policy),
        "several episodes": counted.rollout(9, state_policy, break_when_any_done=False),
        "attributes": [(env.from_pixels, env.pixels_only) for env in (both, alone, wrapped, later)],
    }
    workers = ParallelEnv(
        2,
        lambda: GymEnv(NAME, from_pixels=True, pixels_only=False, categorical_action_encoding=False),
        mp_start_method="fork",
    )
    try:
        found["workers"] = workers.rollout(3, state_policy)
        found["workers, stacked frames"] = tuple(workers.rollout(3, state_policy)["pixels"].shape)
    finally:
        workers.close()
    return found
