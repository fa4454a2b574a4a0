"""Environments of steppe that the bridge converts: the kit's mocks, batches, groups and transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import steppe_testing as kit
from steppe import Compose, InitTracker, ParallelEnv, RewardSum, SerialEnv, StepCounter, TransformedEnv, make_env

MOCKS: dict[str, Callable[[], Any]] = {
    name: getattr(kit, name)
    for name in (
        *("ArrayCountingEnv", "CountingEnv", "DoNothingEnv", "IncrementingEnv", "ScalarActionEnv"),
        *("StatelessCountingEnv", "HeterogeneousCountingEnv", "MultiAgentCountingEnv", "MultiKeyCountingEnv"),
        *("NestedCountingEnv", "NestedResetEnv", "AutoResettingCountingEnv", "AutoResettingHeterogeneousEnv"),
        *("DynamicSpecEnv", "EchoEnv", "MetadataEnv", "PlaceEnv", "TextCountingEnv", "ModelCountingEnv"),
    )
}


def with_transforms(env: Any) -> Any:
    from steppe.transforms import CatFrames

    frames = CatFrames(N=3, dim=-1, in_keys=["observation"])
    return TransformedEnv(env, Compose(frames, StepCounter(7), RewardSum(), InitTracker()))


LIBRARIES: dict[str, Callable[[], Any]] = {
    "gym": lambda: make_env("gym:CartPole-v1"),
    "a batch": lambda: SerialEnv(3, "gym:Pendulum-v1"),
    "processes": lambda: ParallelEnv(3, "gym:CartPole-v1"),
    "a batch of groups": lambda: SerialEnv(2, kit.MultiAgentCountingEnv),
    "a batch of unequal agents": lambda: SerialEnv(2, kit.HeterogeneousCountingEnv),
    "a batch of text": lambda: SerialEnv(2, kit.TextCountingEnv),
    "VMAS": lambda: make_env("vmas:balance", num_envs=3),
    "turns with masks": lambda: make_env("pettingzoo:classic/tictactoe_v3"),
    "transforms": lambda: with_transforms(make_env("gym:CartPole-v1")),
    "transforms around a batch": lambda: with_transforms(SerialEnv(3, "gym:CartPole-v1")),
    "transforms in a batch": lambda: SerialEnv(3, lambda: with_transforms(make_env("gym:CartPole-v1"))),
    "transforms of a stateless environment": lambda: TransformedEnv(kit.StatelessCountingEnv(), StepCounter(3)),
}

SPECS = ("full_observation_spec", "full_action_spec", "full_state_spec", "full_reward_spec", "full_done_spec")
