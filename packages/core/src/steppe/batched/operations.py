"""Operations of a batch on its environments, shared by all backends."""

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
    "perform",
    "seed_rows",
]

# Numbers, because orders to workers are numbers.
STEP, STEP_AND_RESET, RESET, RESET_ON_DATA, RESET_BY_MASKS = 1, 2, 3, 4, 5


def perform(shard: Shard, op: int, rows: list[int] | None) -> int:
    """Step or reset rows of storage, all of them if ``rows`` is None; return how many ended and were reset."""
    if rows is not None and not rows:
        return 0  # another process may have all rows of a partial step
    if op in (STEP, STEP_AND_RESET):
        return shard.step(rows, reset=op == STEP_AND_RESET)
    every = list(range(len(shard.envs)))
    shard.reset(every if rows is None else rows, on_data=op == RESET_ON_DATA, by_masks=op == RESET_BY_MASKS)
    return 0


def ask_rows(envs: dict[int, Any], path: tuple[str, ...], calls: dict[int, Any]) -> list[Any]:
    """Read or call an attribute in each environment, in the order of ``calls``."""
    return [ask_row(envs[row], row, path, call) for row, call in calls.items()]


def seed_rows(envs: dict[int, Any], seeds: dict[int, Any]) -> None:
    """Seed some environments.

    Raises:
        ItemError: an environment raised.
    """
    for row, seed in seeds.items():
        try:
            envs[row].set_seed(seed)
        except Exception as error:
            raise ItemError(row, "set_seed") from error
