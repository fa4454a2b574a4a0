"""steppe-smacv2 against the conformance kit, with a double of SMACv2."""

from __future__ import annotations

from typing import ClassVar

import pytest
import torch
from tensordict import TensorDict

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


class Masked(EnvConformance):
    """The kit repeats actions in other positions, so it takes the one that living agents always have: stop."""

    def _actions(self, env):
        leaf = env.full_action_spec["agents", "action"].zero()
        stop = leaf + 1 if leaf.ndim == 1 else leaf.zero_().index_fill_(1, torch.tensor([1]), 1)
        return [TensorDict({"agents": TensorDict({"action": stop.clone()}, [len(stop)])}, []) for _ in range(3)]


class TestAMap(Masked):
    env_id = "smacv2:3m"


class TestTeamsWithOneHotActions(Masked):
    env_id = "smacv2:10gen_terran"
    kwargs: ClassVar = {"capability_config": TEAMS, "categorical_actions": False}
