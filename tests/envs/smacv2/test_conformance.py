"""steppe-smacv2 against the conformance kit, with a double of SMACv2."""

from __future__ import annotations

from typing import ClassVar

import pytest

from steppe_testing import EnvConformance, PluginConformance

pytestmark = [pytest.mark.library, pytest.mark.matrix, pytest.mark.filterwarnings("ignore")]

TEAMS: dict = {
    "n_units": 4,
    "n_enemies": 4,
    "team_gen": {"dist_type": "weighted_teams", "unit_types": ["marine", "marauder"], "weights": [0.6, 0.4]},
    "start_positions": {"dist_type": "reflect_position", "map_x": 32, "map_y": 32},
}


class TestPlugin(PluginConformance):
    namespace = "smacv2"
    smoke = ("3m", "8m")
    wraps_library = False  # no package index has it: the plugin checks it, see test_env


class TestAMap(EnvConformance):
    env_id = "smacv2:3m"


class TestTeamsWithOneHotActions(EnvConformance):
    env_id = "smacv2:10gen_terran"
    kwargs: ClassVar = {"capability_config": TEAMS, "categorical_actions": False}
