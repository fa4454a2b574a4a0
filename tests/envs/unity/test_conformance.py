"""steppe-unity against the conformance kit, with games that need no binary."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

pytest.importorskip("mlagents_envs")

from steppe_testing import EnvConformance, PluginConformance
from steppe_unity import UnityMLAgentsWrapper
from tests.envs.unity.games import Relay, mock_game

# Skipped are seeds, which a game gets when it is started, partial resets and steps of agents that have not ended, and
# pixels.
pytestmark = [pytest.mark.library, pytest.mark.matrix, pytest.mark.filterwarnings("ignore")]


class TestPlugin(PluginConformance):
    namespace = "unity"
    lists_names = False  # ML-Agents reads them from the network


class _Games(EnvConformance):
    deterministic: ClassVar[bool] = False
    seed_matters: ClassVar[bool] = False
    supports_partial_step: ClassVar[bool] = False

    def _seed(self, env: Any, seed: int) -> None:
        """A game made outside of steppe cannot be seeded."""


class TestMockOfMLAgents(_Games):
    def make_env(self, **kwargs: Any) -> UnityMLAgentsWrapper:
        return UnityMLAgentsWrapper(mock_game(), **kwargs)


class TestMockWithDiscreteActions(_Games):
    def make_env(self, **kwargs: Any) -> UnityMLAgentsWrapper:
        return UnityMLAgentsWrapper(mock_game(discrete=True), categorical_actions=True, **kwargs)


class TestAgentsThatComeAndGo(_Games):
    def make_env(self, **kwargs: Any) -> UnityMLAgentsWrapper:
        return UnityMLAgentsWrapper(Relay(), **kwargs)
