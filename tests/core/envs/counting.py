"""Counting environments and a policy for tests of rollouts."""

from __future__ import annotations

import pytest
import torch

from steppe_testing import ArrayCountingEnv, CountingEnv

BOTH = pytest.mark.parametrize("make", [CountingEnv, ArrayCountingEnv])


def counts(data, key="observation"):
    return data[key].squeeze(-1).tolist()


def ones(td):
    """A policy: always the second of three actions."""
    action = torch.zeros(*td.batch_size, 3, dtype=torch.bool)
    action[..., 1] = True
    return td.set("action", action)
