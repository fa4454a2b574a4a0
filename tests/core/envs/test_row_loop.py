"""A loop steps rows through a writer, and copies what the next step reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from steppe import StepCounter, TransformedEnv
from steppe.envs import Loop
from steppe_testing import ArrayCountingEnv


def loop_of(env: Any) -> Loop:
    writer = env.row_writer
    return Loop(writer, writer.new_rows())


def ones(loop: Loop) -> Any:
    """The library actions of a step that counts."""
    one_hot = np.zeros((1, *loop.writer.layout.actions.spec["action"].shape), bool)
    one_hot[0, -1] = True
    return loop.writer.decode({"action": one_hot})


def test_a_step_writes_next_and_leaves_the_root() -> None:
    loop = loop_of(ArrayCountingEnv(max_steps=2, start=7))
    loop.reset([0])

    assert loop.step(ones(loop)) == []
    assert loop.rows.root["observation"].tolist() == [[7.0]]
    assert loop.rows.next["observation"].tolist() == [[8.0]]


def test_a_row_that_ended_is_reset_in_the_root() -> None:
    loop = loop_of(ArrayCountingEnv(max_steps=2, start=7))
    loop.reset([0])
    loop.step_and_reset(ones(loop))

    ended = loop.step_and_reset(ones(loop))

    assert ended == [(0, True, False)]
    assert loop.rows.next["observation"].tolist() == [[9.0]]
    assert loop.rows.root["observation"].tolist() == [[7.0]]
    assert loop.rows.next["done"].all()
    assert not loop.rows.root["done"].any()


@pytest.mark.parametrize(("began", "count"), [([], 1), ([0], 0)])
def test_inputs_of_a_step_are_copied_unless_the_row_began(began: list[int], count: int) -> None:
    """A counter reads its last count in the root, where a row that was reset has a new one."""
    loop = loop_of(TransformedEnv(ArrayCountingEnv(), StepCounter()))
    loop.reset([0])
    loop.step(ones(loop))
    assert loop.rows.next["step_count"].tolist() == [[1]]

    loop.copy_root_inputs(began)

    assert loop.rows.root["step_count"].tolist() == [[count]]


def test_a_loop_notes_the_row_that_it_steps() -> None:
    loop = loop_of(ArrayCountingEnv())
    assert loop.progress.row is None

    loop.reset([0])

    assert loop.progress.row == 0
