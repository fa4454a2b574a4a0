"""steppe-openspiel and some of its games against the conformance kit."""

from __future__ import annotations

from typing import ClassVar

import pytest

pytest.importorskip("pyspiel")

from steppe_testing import EnvConformance, PluginConformance

# Skipped are pixels: games draw none. The kit repeats actions in other positions, so every action is always
# legal in these games; test_env.py has others.
pytestmark = [pytest.mark.library, pytest.mark.matrix, pytest.mark.filterwarnings("ignore")]


class TestPlugin(PluginConformance):
    namespace = "openspiel"
    smoke = ("tic_tac_toe", "kuhn_poker", "goofspiel")


class TestTurnsWithChance(EnvConformance):
    env_id = "openspiel:kuhn_poker"


class TestSimultaneousMoves(EnvConformance):
    env_id = "openspiel:markov_soccer"
    kwargs: ClassVar = {"categorical_actions": True, "group_map": None}
    max_steps = 2000


class TestStatesInTheData(EnvConformance):
    env_id = "openspiel:kuhn_poker"
    kwargs: ClassVar = {"return_state": True}
    supports_set_state = True
