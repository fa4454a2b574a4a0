"""steppe-mo-gym against the conformance kit."""

from __future__ import annotations

from typing import ClassVar

import pytest

pytest.importorskip("mo_gymnasium")

from steppe_testing import EnvConformance, PluginConformance

# Skipped are set_state and pixels: states are no entries of the data, and frames are not asked for.
pytestmark = [pytest.mark.matrix, pytest.mark.filterwarnings("ignore")]


class TestPlugin(PluginConformance):
    namespace = "mo-gym"
    smoke = ("deep-sea-treasure-v0", "minecart-v0")


class TestVectorOfRewards(EnvConformance):
    env_id = "mo-gym:mo-mountaincar-v0"
    kwargs: ClassVar = {"max_episode_steps": 12}


class TestContinuousActions(EnvConformance):
    env_id = "mo-gym:mo-mountaincarcontinuous-v0"
    kwargs: ClassVar = {"max_episode_steps": 9}
