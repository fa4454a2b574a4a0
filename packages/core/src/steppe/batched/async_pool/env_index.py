"""Rows of a pool: which environments data is for, and how rows are stacked."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase, lazy_stack

from steppe.batched.unbuffered import stack_rows
from steppe.errors import SpecError

__all__ = ["indices_of", "rows_of", "stack_as"]


def indices_of(value: Any, n: int, what: str) -> list[int]:
    """The environments that an ``env_index`` names.

    Args:
        value: an int, or a list, array, tensor or NonTensorData of ints.
        n: how many environments there are.
        what: the call, for errors.

    Raises:
        SpecError: it names no environment, one that is not there, or one twice.
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    found = [value] if not isinstance(value, (list, tuple, range)) else list(value)
    while found and all(isinstance(one, list) and len(one) == 1 for one in found):
        found = [one[0] for one in found]
    found = [one.item() if isinstance(one, torch.Tensor) and one.numel() == 1 else one for one in found]
    if not found or any(isinstance(one, bool) or not hasattr(one, "__index__") for one in found):
        raise SpecError(f"{what}: env_index is a whole number or a list of them, found {value!r}.")
    rows = [one.__index__() for one in found]
    if any(not 0 <= row < n for row in rows):
        raise SpecError(f"{what}: env_index must lie in 0..{n - 1}, found {rows}.")
    if len(set(rows)) != len(rows):
        raise SpecError(f"{what}: an environment may be named once, found {rows}.")
    return rows


def rows_of(
    tensordict: TensorDictBase | None, env_index: Any, n: int, what: str
) -> tuple[list[int], list[TensorDictBase | None]]:
    """Which environments data is for, and a copy of the data of each, without ``"env_index"`` and masks."""
    index = env_index
    if index is None and tensordict is not None:
        index = tensordict.get("env_index", None)
        if index is None and tensordict.batch_size != (n,):
            raise SpecError(
                f"{what}: data of batch size {tuple(tensordict.batch_size)} does not say which environments it is for. "
                f'Give env_index=..., or write td["env_index"]. Only data of all {n} environments needs neither.'
            )
    rows = list(range(n)) if index is None else indices_of(index, n, what)
    if tensordict is None:
        return rows, [None] * len(rows)
    size = tuple(tensordict.batch_size)
    if size != (len(rows),) and not (size == () and len(rows) == 1):
        raise SpecError(
            f"{what}: data of batch size {size} cannot be divided among {len(rows)} environments, {rows}: it must be "
            f"[{len(rows)}]."
        )
    data = tensordict.exclude("env_index", "_reset", "_step").detach().clone()
    return rows, [data] if size == () else list(data.unbind(0))


def stack_as(stack: str, rows: list[TensorDictBase]) -> TensorDictBase:
    """Stack rows along a new first dimension.

    Raises:
        SpecError: ``stack`` is ``"dense"`` and the rows differ.
    """
    if stack == "maybe_dense":
        return stack_rows(rows)
    join: Any = lazy_stack if stack == "lazy" else torch.stack
    try:
        stacked: TensorDictBase = join(rows, 0)
        return stacked
    except (RuntimeError, KeyError, ValueError) as error:
        raise SpecError(
            f"The rows differ, and cannot become one contiguous TensorDict: {error} Send rows with the same entries, "
            'or make the pool with stack="maybe_dense" or stack="lazy". Nothing is lost: receive them one by one, '
            "with env_index."
        ) from error
