"""steppe-brax and its smallest environment against the conformance kit."""

from __future__ import annotations

from typing import ClassVar

import pytest

pytest.importorskip("brax")

from steppe_testing import EnvConformance, PluginConformance

# Skipped are pixels (Brax draws none while it steps), and seeds of "fast" (nothing in it is random).
pytestmark = [pytest.mark.library, pytest.mark.matrix, pytest.mark.filterwarnings("ignore")]


class TestPlugin(PluginConformance):
    namespace = "brax"
    smoke = ("fast",)


class TestAFunctionOfTheData(EnvConformance):
    env_id = "brax:fast"
    kwargs: ClassVar = {"episode_length": 6}
    batch_locked = False
    supports_set_state = True
    seed_matters = False
    max_steps = 8


class TestABatchThatKeepsItsState(EnvConformance):
    env_id = "brax:fast"
    kwargs: ClassVar = {"episode_length": 6, "batch_size": 3}
    seed_matters = False
    max_steps = 8


class TestOneThatKeepsItsState(EnvConformance):
    env_id = "brax:fast"
    kwargs: ClassVar = {"episode_length": 6, "state_in_data": False}
    seed_matters = False
    max_steps = 8


class TestABatchWithGradients(EnvConformance):
    env_id = "brax:fast"
    kwargs: ClassVar = {"episode_length": 6, "batch_size": 3, "requires_grad": True}
    supports_set_state = True
    seed_matters = False
    max_steps = 8


@pytest.mark.slow
class TestAPendulum(EnvConformance):
    env_id = "brax:inverted_pendulum"
    kwargs: ClassVar = {"backend": "spring", "episode_length": 6, "batch_size": 3}
    max_steps = 8
