"""steppe-openml against the conformance kit."""

from __future__ import annotations

from typing import ClassVar

import pytest

pytest.importorskip("sklearn")

from steppe_testing import EnvConformance, PluginConformance

# Skipped are pixels and set_state: a bandit has neither.
pytestmark = [pytest.mark.library, pytest.mark.matrix]


class TestPlugin(PluginConformance):
    namespace = "openml"
    smoke = ("magic", "adult_onehot", "mushroom_num")


class TestOneRow(EnvConformance):
    env_id = "openml:magic"
    max_steps = 1


class TestABatchOfRows(EnvConformance):
    env_id = "openml:adult_num"
    kwargs: ClassVar = {"batch_size": [4]}
    independent_rows = False  # one generator draws the rows of the data set
    max_steps = 1
