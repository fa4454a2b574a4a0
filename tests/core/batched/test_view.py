"""Views of some environments of a batch: ``env[i]``."""

from __future__ import annotations

import pytest
import torch

from steppe import SerialEnv
from steppe_testing import ArrayCountingEnv


@pytest.fixture
def batch():
    with SerialEnv(4, lambda: ArrayCountingEnv(9)) as env:
        yield env


def test_a_view_steps_its_environments_alone(batch):
    root = batch.reset()
    view = batch[1:3]
    data = view.rollout(2)

    assert view.batch_size == (2,)
    assert data["next", "observation"].squeeze(-1).tolist() == [[1, 2], [1, 2]]
    assert batch.step(batch.rand_action(root))["next", "observation"].shape == (4, 1)


def test_a_view_says_which_environments_it_has(batch):
    assert repr(batch[[0, 3]]).startswith("<environments [0, 3] of SerialEnv(")


@pytest.mark.parametrize("index", [7, [1, 9], torch.tensor([True, False])])
def test_environments_that_do_not_exist_are_refused(batch, index):
    with pytest.raises(IndexError, match="Environments of this batch are numbered from 0 to 3"):
        batch[index]


def test_an_environment_may_be_chosen_once(batch):
    with pytest.raises(IndexError, match=r"An environment may be named once, found \[1, 1\]"):
        batch[[1, 1]]
