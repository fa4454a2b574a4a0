"""steppe-gym and a few of its environments against the conformance kit, under every version."""

from __future__ import annotations

import warnings
from typing import ClassVar

import pytest

from steppe.registry import list_envs
from steppe_testing import EnvConformance, PluginConformance

# The first workers of a new installation import torch from files that nothing has read before: more than the usual
# minute on a busy machine.
pytestmark = [pytest.mark.matrix, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(240)]

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    NAMES = list_envs("gym")


def newest(base: str) -> str:
    return "gym:" + max(name for name in NAMES if name.startswith(f"{base}-v"))


class TestPlugin(PluginConformance):
    namespace = "gym"
    smoke = ("CartPole-v1", "MountainCar-v0")


class TestPendulum(EnvConformance):
    env_id = newest("Pendulum")


class TestCartPole(EnvConformance):
    env_id = "gym:CartPole-v1"


class TestFrozenLake(EnvConformance):
    env_id = newest("FrozenLake")
    kwargs: ClassVar = {"categorical_action_encoding": True}
    seed_matters = False  # eight steps may be too few to slip differently


class TestBlackjack(EnvConformance):
    env_id = newest("Blackjack")
    # Stepped after its end, as rows that wait for others are, the hand of older versions leaves its space.
    supports_partial_reset = False
    supports_partial_step = False


class TestFrameSkip(EnvConformance):
    env_id = "gym:CartPole-v1"
    kwargs: ClassVar = {"frame_skip": 2}


class TestBatch(EnvConformance):
    env_id = "gym:CartPole-v1"
    kwargs: ClassVar = {"num_envs": 3}
    supports_batching = False
    supports_partial_step = False
    supports_partial_reset = False  # older libraries reset what has ended, and nothing else
