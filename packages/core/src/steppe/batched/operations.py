"""What a batch asks of its environments, the same for whoever carries it out: this process, processes, threads."""

from __future__ import annotations

from typing import Any

from steppe.batched.attributes import ask_row
from steppe.batched.shard import Shard
from steppe.workers import ItemError

__all__ = [
    "RESET",
    "RESET_BY_MASKS",
    "RESET_ON_DATA",
    "STEP",
    "STEP_AND_RESET",
    "ask_rows",
    "has_arguments",
    "perform",
    "seed_rows",
]

# Orders to workers are numbers, and so are these everywhere.
STEP, STEP_AND_RESET, RESET, RESET_ON_DATA, RESET_BY_MASKS = 1, 2, 3, 4, 5


def perform(shard: Shard, op: int, rows: list[int] | None) -> int:
    """Step or reset rows of storage, all of them where ``rows`` is None; returns how many ended and were reset."""
    if rows is not None and not rows:
        return 0  # the rows of a partial step may all be another's
    if op in (STEP, STEP_AND_RESET):
        return shard.step(rows, reset=op == STEP_AND_RESET)
    every = list(range(len(shard.envs)))
    shard.reset(every if rows is None else rows, on_data=op == RESET_ON_DATA, by_masks=op == RESET_BY_MASKS)
    return 0


def has_arguments(op: int, data: dict[int, Any]) -> bool:
    """Whether rows are reset with arguments of the caller's, which an environment may refuse: a batch survives that."""
    return op == RESET and any(arguments.keys() - {"select_reset_only"} for _, arguments in data.values())


def ask_rows(envs: dict[int, Any], path: tuple[str, ...], calls: dict[int, Any]) -> list[Any]:
    """Read or call an attribute in each environment, in the order of ``calls``."""
    return [ask_row(envs[row], row, path, call) for row, call in calls.items()]


def seed_rows(envs: dict[int, Any], seeds: dict[int, Any]) -> None:
    """Seed those environments that are named.

    Raises:
        ItemError: an environment raised.
    """
    for row, seed in seeds.items():
        try:
            envs[row].set_seed(seed)
        except Exception as error:
            raise ItemError(row, "set_seed") from error
