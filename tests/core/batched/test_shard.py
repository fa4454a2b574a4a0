"""Environments of one process: steps, masks, resets and env_info reach the right ones."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from steppe import ParallelEnv, SerialEnv
from steppe.errors import ActionError, ArgumentError
from steppe.specs import MultiCategorical
from steppe_testing import (
    ArrayCountingEnv,
    CountingEnv,
    TextCountingEnv,
)

BOTH = pytest.mark.parametrize("batch", [SerialEnv, partial(ParallelEnv, num_processes=2)], ids=["serial", "parallel"])


@BOTH
def test_a_partial_step_works_in_a_batch_of_batches(batch: Any) -> None:
    with batch(2, partial(CountingEnv, batch_size=(2,))) as env:
        td = env.rand_action(env.reset())
        td["_step"] = torch.tensor([[True, False], [False, True]])
        after = env.step(td)["next", "observation"].squeeze(-1)
        td = env.step(env.rand_action(env.reset()))

    assert after.tolist() == [[1, 0], [0, 1]]
    assert td["next", "observation"].flatten().tolist() == [1] * 4


@BOTH
def test_a_partial_reset_works_in_a_batch_of_batches(batch: Any) -> None:
    with batch(2, partial(CountingEnv, batch_size=(2,))) as env:
        root = env.step_mdp(env.rand_step(env.reset()))
        root["_reset"] = torch.tensor([[True, False], [False, False]]).unsqueeze(-1)
        assert env.reset(root)["observation"].flatten().tolist() == [0, 1, 1, 1]
        after = env.rand_step(root)

    assert after["next", "observation"].flatten().tolist() == [1, 2, 2, 2]


@BOTH
def test_rows_are_stepped_and_reset_alone(batch: Any) -> None:
    with batch(3, ArrayCountingEnv) as env:
        env.step(env.rand_action(env.reset()))
        some = env.full_action_spec[:2].rand()
        stepped = env.step_at(some, [2, 0])
        fresh = env.reset_at(None, torch.tensor([1]))
        after = env.rand_step(env.rand_action())

    assert stepped["next", "observation"].flatten().tolist() == [2, 2]
    assert fresh["observation"].flatten().tolist() == [0]
    assert after["next", "observation"].flatten().tolist() == [3, 1, 3]


@BOTH
def test_the_text_of_an_ended_episode_is_kept(batch: Any) -> None:
    """The text of an episode that has ended stays while other rows go on."""
    with batch(2, [partial(TextCountingEnv, 2), partial(TextCountingEnv, 4)]) as env:
        data = env.rollout(9, break_when_any_done=False, break_when_all_done=True)

    assert data["next", "text"].tolist() == [["1", "2", "2", "2"], ["1", "2", "3", "4"]]


@BOTH
def test_skipped_rows_of_nested_batches_keep_their_text(batch: Any) -> None:
    with batch(2, partial(TextCountingEnv, batch_size=(2,))) as env:
        td = env.rand_action(env.reset())
        td["_step"] = torch.tensor([[True, False], [False, True]])

        assert env.step(td)["next", "text"].tolist() == [["1", "0"], ["0", "1"]]


@BOTH
@pytest.mark.parametrize("array_path", [True, False], ids=["arrays", "tensordicts"])
def test_env_info_reaches_its_row_and_stays_for_resets_inside(batch: Any, array_path: bool) -> None:
    make = partial(ArrayCountingEnv, 2, env_info=True, array_path=array_path)
    with batch(2, make) as env:
        root = env.reset(env_info={"start": torch.tensor([[5], [7]])})
        assert root["observation"].flatten().tolist() == [5, 7]
        root = env.step_and_maybe_reset(env.rand_action(root))[1]
        root = env.step_and_maybe_reset(env.rand_action(root))[1]
        inside = root["observation"].flatten().tolist()
        one = env.reset_at(None, [1], env_info={"start": torch.tensor([[9]])})["observation"].flatten().tolist()
        without = env.reset()["observation"].flatten().tolist()

    assert inside == [5, 7]
    assert one == [9]
    assert without == [0, 0]


@BOTH
def test_arguments_of_a_reset_go_to_their_rows(batch: Any) -> None:
    with batch(2, "gym:CartPole-v1") as env:
        root = env.reset(
            list_of_kwargs=[{"options": {"low": -0.01, "high": 0.0}}, {"options": {"low": 0.04, "high": 0.05}}]
        )
        shared = env.reset(options={"low": 0.03, "high": 0.04})

        with pytest.raises(ArgumentError, match="list_of_kwargs needs 2 dicts"):
            env.reset(list_of_kwargs=[{}])
    assert root["observation"][0].max() <= 0 <= root["observation"][1].min() - 0.04
    assert shared["observation"].min() >= 0.03


@pytest.mark.parametrize("counts", [(4, 4, 4), (4, 2, 5)])
def test_some_rows_take_numbers_of_several_choices(counts):
    class Choices(ArrayCountingEnv):
        def __init__(self, n):
            super().__init__(9)
            self.action_spec = MultiCategorical([n, 3])

    env = SerialEnv(3, [partial(Choices, n) for n in counts])
    td = env.rand_action(env.reset())[[2, 0]].set("action", torch.tensor([[counts[2] - 1, 2], [counts[0] - 1, 0]]))

    assert env.step_at(td, [2, 0])["next", "observation"].tolist() == [[1], [1]]
    with pytest.raises(ActionError, match="of environment 0"):
        env.step_at(td.set("action", torch.tensor([[0, 0], [counts[0], 0]])), [2, 0])
    env.close()
