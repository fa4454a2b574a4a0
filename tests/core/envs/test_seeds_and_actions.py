"""Seeds, random actions and their number."""

from __future__ import annotations

from steppe_testing import (
    CountingEnv,
    MultiKeyCountingEnv,
)


def test_all_actions_are_listed():
    assert CountingEnv().all_actions()["action"].int().tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert CountingEnv(action="categorical").all_actions().batch_size == (3,)


def test_actions_are_counted():
    assert CountingEnv().cardinality() == 3
    assert CountingEnv(action="multi_categorical").cardinality() == 6
    assert MultiKeyCountingEnv().cardinality() == 27
    assert CountingEnv(action="continuous").cardinality() == float("inf")
