"""terminated_or_truncated: which rows have ended, and their reset masks."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from steppe_testing import NestedCountingEnv

pytest.importorskip("steppe_torchrl")

from steppe_torchrl import terminated_or_truncated


def ended(*values):
    return torch.tensor(values).unsqueeze(-1)


def test_rows_that_have_ended_get_a_mask():
    data = TensorDict({"terminated": ended(True, False), "truncated": ended(False, False)}, [2])

    assert terminated_or_truncated(data)
    assert data["_reset"].squeeze(-1).tolist() == [True, False]


def test_no_reset_mask_is_written_if_nothing_has_ended():
    """With write_full_false, a mask is written nevertheless."""
    data = TensorDict({"done": ended(False, False)}, [2])

    assert not terminated_or_truncated(data)
    assert "_reset" not in data
    assert not terminated_or_truncated(data, write_full_false=True)
    assert not data["_reset"].any()


def test_no_mask_is_written_without_a_key():
    data = TensorDict({"done": ended(True, False)}, [2])

    assert terminated_or_truncated(data, key=None)
    assert set(data.keys()) == {"done"}


def test_done_entries_of_the_root_prevail():
    data = TensorDict({"done": torch.tensor([False]), "agents": {"done": ended(True, True)}}, [])

    assert not terminated_or_truncated(data)


def test_groups_decide_without_done_entries_of_the_root():
    env = NestedCountingEnv(2, spread=1)
    data = env.step_mdp(env.rollout(2)[-1])

    assert terminated_or_truncated(data, env.full_done_spec, key="_mask")
    assert data["agents", "_mask"].squeeze(-1).tolist() == [True, False]
