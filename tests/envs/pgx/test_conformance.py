"""steppe-pgx and some of its games against the conformance kit."""

from __future__ import annotations

from typing import ClassVar

import pytest

pytest.importorskip("pgx")

from steppe_testing import EnvConformance, PluginConformance

# Skipped are pixels: Pgx draws SVG images only.
pytestmark = [pytest.mark.library, pytest.mark.matrix, pytest.mark.filterwarnings("ignore")]


class TestPlugin(PluginConformance):
    namespace = "pgx"
    smoke = ("tic_tac_toe",)


class TestAFunctionOfTheData(EnvConformance):
    env_id = "pgx:tic_tac_toe"
    batch_locked = False
    supports_set_state = True
    max_steps = 9


class TestABatchThatKeepsItsState(EnvConformance):
    env_id = "pgx:kuhn_poker"
    kwargs: ClassVar = {"batch_size": 3, "categorical_action_encoding": False}
    max_steps = 3
