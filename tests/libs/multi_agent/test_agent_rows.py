"""AgentRows writes the data of each agent into the rows of its group."""

from __future__ import annotations

import numpy as np
import pytest

from steppe.errors import SpecError
from steppe_multi_agent import AgentRows

NAMES = ["fox_0", "fox_1", "fox_2"]


def make_rows():
    out = {
        ("fox", "observation"): np.full((3, 2), 9, np.float32),
        ("fox", "info", "lives"): np.full(3, 9),
        ("fox", "reward"): np.full((3, 1), 9, np.float32),
        ("hen", "reward"): np.full((1, 1), 9, np.float32),
        **{("fox", name): np.ones((3, 1), bool) for name in ("done", "terminated", "truncated")},
        "state": np.full(4, 9),
    }
    return AgentRows.of("fox", NAMES, out), out


def test_views_of_an_agent_are_its_part_of_the_rows():
    rows, out = make_rows()

    rows.views[1]["observation"][...] = (3, 4)
    rows.views[2]["info", "lives"][...] = 5

    assert out["fox", "observation"].tolist() == [[9, 9], [3, 4], [9, 9]]
    assert out["fox", "info", "lives"].tolist() == [9, 9, 5]


def test_rewards_are_numbers_or_arrays_of_one_number():
    rows, out = make_rows()

    rows.write_rewards({"fox_0": 1, "fox_2": np.float64(2.5)})
    assert out["fox", "reward"].tolist() == [[1], [0], [2.5]]
    rows.write_rewards({"fox_0": np.array([4.0]), "fox_1": 3})
    assert out["fox", "reward"].tolist() == [[4], [3], [0]]
    assert out["hen", "reward"].item() == 9


@pytest.mark.parametrize("value", [None, "much"])
def test_a_reward_that_is_no_number_names_its_agent(value):
    rows, _ = make_rows()

    with pytest.raises(SpecError, match=r"agent 'fox_1'.*'reward' must be a number"):
        rows.write_rewards({"fox_1": value})


def test_flags_of_agents_without_an_end_are_false():
    rows, out = make_rows()

    rows.write_flags({"fox_0": (True, False), "fox_2": (False, True)})

    assert out["fox", "terminated"].squeeze(-1).tolist() == [True, False, False]
    assert out["fox", "truncated"].squeeze(-1).tolist() == [False, False, True]
    assert out["fox", "done"].squeeze(-1).tolist() == [True, False, True]
    rows.write_flags({})
    assert not out["fox", "done"].any()


def test_agents_with_other_entries_have_views_of_their_own():
    arrays = [{("observation",): np.zeros(2)}, {("observation",): np.zeros(3)}]
    rows = AgentRows(NAMES[:2], arrays, {("reward",): np.zeros((2, 1), np.float32)})

    rows.views[1]["observation"][...] = 1
    rows.write_rewards({"fox_1": 2})

    assert arrays[1]["observation",].tolist() == [1, 1, 1]
    assert rows.reward.tolist() == [[0], [2]]
