"""Functions on done entries: which rows have ended, and their reset masks."""

from __future__ import annotations

import torch
from tensordict import TensorDict

from steppe.envs import DoneGroup, done_groups, rows_ended
from steppe.envs.done import any_done
from steppe_testing import NestedCountingEnv


def two_agents(first, second):
    """Data and done groups of an environment whose two agents end by themselves."""
    env = NestedCountingEnv(2, spread=1)
    data = env.reset()
    data["agents", "done"] = torch.tensor([[first], [second]])
    return data, done_groups(env.full_done_spec)


def test_the_end_of_one_agent_ends_the_row():
    data, groups = two_agents(True, False)

    assert rows_ended(data, groups)
    assert not rows_ended(data, groups, every=True)
    assert rows_ended(*two_agents(True, True), every=True)


def test_agents_that_have_ended_get_a_mask():
    data, groups = two_agents(False, True)

    assert any_done(data, groups, write_masks=True)
    assert data["agents", "_reset"].squeeze(-1).tolist() == [False, True]


def test_no_mask_is_written_if_no_agent_has_ended():
    data, groups = two_agents(False, False)

    assert not any_done(data, groups, write_masks=True)
    assert ("agents", "_reset") not in data.keys(True)


def test_the_done_entry_of_the_root_prevails():
    groups = [DoneGroup((), ("done",)), DoneGroup(("agents",), ("done",))]
    data = TensorDict({"done": torch.tensor([[False], [True]]), "agents": {"done": torch.ones(2, 3, 1).bool()}}, [2])

    assert rows_ended(data, groups).tolist() == [False, True]
    assert any_done(data, groups, write_masks=True)
    assert data["_reset"].squeeze(-1).tolist() == [False, True]
