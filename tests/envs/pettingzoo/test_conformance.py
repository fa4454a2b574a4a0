"""steppe-pettingzoo and some of its environments against the conformance kit."""

from __future__ import annotations

from typing import ClassVar

import pytest

pytest.importorskip("pettingzoo")

from steppe_testing import EnvConformance, PluginConformance

# Skipped are set_state (what the library keeps is no entry of data) and pixels (frames come from render()).
pytestmark = [pytest.mark.library, pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore")]


class TestPlugin(PluginConformance):
    namespace = "pettingzoo"
    smoke = ("mpe2/simple_tag_v3", "classic/tictactoe_v3", "butterfly/pistonball_v6")


class TestSpread(EnvConformance):
    env_id = "pettingzoo:mpe2/simple_spread_v3"
    kwargs: ClassVar = {"max_cycles": 20}


class TestTagInTwoGroups(EnvConformance):
    env_id = "pettingzoo:mpe2/simple_tag_v3"
    kwargs: ClassVar = {"max_cycles": 20, "continuous_actions": True, "return_state": True}


class TestUnequalAgentsInOneGroup(EnvConformance):
    env_id = "pettingzoo:mpe2/simple_speaker_listener_v4"
    kwargs: ClassVar = {"max_cycles": 20, "group_map": {"all": ["speaker_0", "listener_0"]}}


class TestTurns(EnvConformance):
    env_id = "pettingzoo:mpe2/simple_spread_v3"
    kwargs: ClassVar = {"parallel": False, "max_cycles": 6}


class TestActionMasks(EnvConformance):
    env_id = "pettingzoo:classic/connect_four_v3"
    seed_matters = False  # nothing in it is random
