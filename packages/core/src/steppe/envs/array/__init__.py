"""The array way: environments that write rows of numpy arrays, and the one loop that steps them."""

from __future__ import annotations

from steppe.envs.array.actions import ActionCodec
from steppe.envs.array.env import ArrayEnv
from steppe.envs.array.row_layout import RowLayout, layout_problem
from steppe.envs.array.row_loop import Loop
from steppe.envs.array.row_steps import RowSteps, row_steps_of
from steppe.envs.array.row_writer import BoundWriter, EnvInfos, EnvRows, RowWriter, writer_of_one
from steppe.envs.array.rows import Arrays, Ended, Progress, Rows

__all__ = [
    "ActionCodec",
    "ArrayEnv",
    "Arrays",
    "BoundWriter",
    "Ended",
    "EnvInfos",
    "EnvRows",
    "Loop",
    "Progress",
    "RowLayout",
    "RowSteps",
    "RowWriter",
    "Rows",
    "layout_problem",
    "row_steps_of",
    "writer_of_one",
]
