"""steppe-gymnax and some of its environments against the conformance kit."""

from __future__ import annotations

from typing import ClassVar

import pytest

pytest.importorskip("gymnax")

from steppe_testing import EnvConformance, PluginConformance

# Skipped are pixels: Gymnax draws figures only.
pytestmark = [pytest.mark.library, pytest.mark.matrix, pytest.mark.filterwarnings("ignore")]


class TestPlugin(PluginConformance):
    namespace = "gymnax"
    smoke = ("CartPole-v1",)


class TestAFunctionOfTheData(EnvConformance):
    env_id = "gymnax:CartPole-v1"
    batch_locked = False
    supports_set_state = True


class TestABatchThatKeepsItsState(EnvConformance):
    env_id = "gymnax:Breakout-MinAtar"
    kwargs: ClassVar = {"batch_size": 3}
    max_steps = 1001


class TestContinuousActions(EnvConformance):
    env_id = "gymnax:Pendulum-v1"
    kwargs: ClassVar = {"env_params": {"max_steps_in_episode": 10}, "state_in_data": False}
    max_steps = 11
