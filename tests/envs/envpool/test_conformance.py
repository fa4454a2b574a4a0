"""steppe-envpool against the conformance kit."""

from __future__ import annotations

from typing import ClassVar

import pytest

pytest.importorskip("envpool")

from steppe_testing import EnvConformance, PluginConformance

# Skipped are set_state and pixels: a pool has neither.
pytestmark = [pytest.mark.matrix, pytest.mark.filterwarnings("ignore")]


class TestPlugin(PluginConformance):
    namespace = "envpool"
    smoke = ("CartPole-v1",)
    smoke_kwargs: ClassVar = {"num_workers": 2}


class TestPool(EnvConformance):
    env_id = "envpool:CartPole-v1"
    kwargs: ClassVar = {"num_workers": 3, "max_episode_steps": 12}
    supports_partial_step = False
    independent_rows = False  # the seed of a row is that of the pool plus its number
    max_steps = 14
