"""steppe-meltingpot and some of its substrates against the conformance kit."""

from __future__ import annotations

from typing import ClassVar

import pytest

pytest.importorskip("meltingpot")

from steppe_testing import EnvConformance, PluginConformance

# Skipped are seeds, which Melting Pot ignores, and pixels: images are observations.
pytestmark = [
    pytest.mark.library,
    pytest.mark.matrix,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore"),
]


class TestPlugin(PluginConformance):
    namespace = "meltingpot"
    smoke = ("prisoners_dilemma_in_the_matrix__repeated", "coins")


class TestOneGroup(EnvConformance):
    env_id = "meltingpot:prisoners_dilemma_in_the_matrix__repeated"
    kwargs: ClassVar = {"max_steps": 12}
    deterministic = False
    seed_matters = False


class TestOneHotActionsInTwoGroups(EnvConformance):
    env_id = "meltingpot:coins"
    kwargs: ClassVar = {
        "max_steps": 12,
        "categorical_actions": False,
        "group_map": {"left": ["player_1"], "right": ["player_0"]},
    }
    deterministic = False
    seed_matters = False
