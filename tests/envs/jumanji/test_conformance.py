"""steppe-jumanji and some of its environments against the conformance kit."""

from __future__ import annotations

from typing import ClassVar

import pytest

pytest.importorskip("jumanji")

from steppe_testing import EnvConformance, PluginConformance

# Skipped are pixels: frames come from render().
pytestmark = [pytest.mark.library, pytest.mark.matrix, pytest.mark.filterwarnings("ignore")]


class TestPlugin(PluginConformance):
    namespace = "jumanji"
    smoke = ("Snake-v1",)


class TestAFunctionOfTheData(EnvConformance):
    env_id = "jumanji:Snake-v1"
    kwargs: ClassVar = {"num_rows": 4, "num_cols": 4, "time_limit": 20}
    batch_locked = False
    supports_set_state = True
    max_steps = 20


class TestABatchThatKeepsItsState(EnvConformance):
    env_id = "jumanji:Snake-v1"
    kwargs: ClassVar = {"num_rows": 4, "num_cols": 4, "time_limit": 20, "batch_size": 3}
    max_steps = 20


class TestOneHotActions(EnvConformance):
    env_id = "jumanji:Game2048-v1"
    kwargs: ClassVar = {"categorical_action_encoding": False, "state_in_data": False}
    ends = False  # a game takes long


class TestSeveralChoicesWithMasks(EnvConformance):
    env_id = "jumanji:Cleaner-v0"
    kwargs: ClassVar = {"batch_size": 2}
    max_steps = 101
