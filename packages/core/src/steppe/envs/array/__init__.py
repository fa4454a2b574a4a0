"""The array way: environments that write rows of numpy arrays, and the one loop that steps them."""

from __future__ import annotations

from steppe.envs.array.actions import ActionCodec
from steppe.envs.array.env import ArrayEnv
from steppe.envs.array.layout import RowLayout, layout_problem
from steppe.envs.array.loop import Loop
from steppe.envs.array.rows import Arrays, Ended, Progress, Rows
from steppe.envs.array.td_steps import RowSteps, overlaid, overlay_reset
from steppe.envs.array.writer import BoundWriter, EnvRows, RowWriter, writer_of_one

__all__ = [
    "ActionCodec",
    "ArrayEnv",
    "Arrays",
    "BoundWriter",
    "Ended",
    "EnvRows",
    "Loop",
    "Progress",
    "RowLayout",
    "RowSteps",
    "RowWriter",
    "Rows",
    "layout_problem",
    "overlaid",
    "overlay_reset",
    "writer_of_one",
]
