"""steppe-procgen and some of its games against the conformance kit."""

from __future__ import annotations

from typing import ClassVar

import pytest

pytest.importorskip("procgen")

from steppe_testing import EnvConformance, PluginConformance

# Skipped are pixels, which are the observation, and set_state.
pytestmark = [pytest.mark.library, pytest.mark.matrix, pytest.mark.filterwarnings("ignore")]


class TestPlugin(PluginConformance):
    namespace = "procgen"
    smoke = ("coinrun", "starpilot")


class TestABatchOfGames(EnvConformance):
    env_id = "procgen:starpilot"
    kwargs: ClassVar = {"num_envs": 3, "num_threads": 0}
    max_steps = 3000


class TestOneGameWithOneHotActions(EnvConformance):
    env_id = "procgen:bigfish"
    kwargs: ClassVar = {"categorical_action_encoding": False, "num_threads": 0}
    max_steps = 3000
