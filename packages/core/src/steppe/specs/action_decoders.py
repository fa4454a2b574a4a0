"""ActionDecoder: how actions of a spec become the ones that a library takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeAlias

import numpy as np
import torch

from .dtypes import torch_to_numpy_dtype_dict

__all__ = [
    "ACTION_TOLIST_LIMIT",
    "ActionDecoder",
    "Refuse",
    "decode_arrays",
    "decode_number",
    "decode_one_hot",
    "decode_one_hot_parts",
]

#: Raises the error of an invalid action.
Refuse: TypeAlias = "Callable[[torch.Tensor], object]"

#: Actions of up to this many numbers are converted with `tolist`, which is faster than a numpy view.
ACTION_TOLIST_LIMIT = 16

#: One-hot vectors of up to this many entries are looked up in a table.
_TABLE_LIMIT = 64

_new_array = np.array


@dataclass(slots=True, eq=False)
class ActionDecoder:
    """Functions that decode the actions of one leaf spec.

    Args:
        one: decodes a tensor ``[*shape]``.
        many: decodes an array ``[k, *shape]`` of valid actions.
        few: decodes nested lists ``[k, *shape]``; returns None if an action is invalid. None if lists are not faster.
        validates: whether ``one`` and ``few`` check that actions are valid choices.
        takes_arrays: whether a decoded action is a copy of the array.
    """

    one: Callable[[torch.Tensor], Any]
    many: Callable[[np.ndarray], list[Any]]
    _: KW_ONLY
    few: Callable[[list[Any]], list[Any] | None] | None = None
    validates: bool = False
    takes_arrays: bool = False


def decode_one_hot(n: int, refuse: Refuse) -> ActionDecoder:
    """Decode a one-hot vector into its category, an int."""
    others = n - 1

    def one(action: torch.Tensor) -> int:
        row: list[float] = action.tolist()
        if row.count(0) != others or 1 not in row:
            refuse(action)
        return row.index(1)

    def many(rows: np.ndarray) -> list[int]:
        categories: list[int] = rows.argmax(-1).tolist()
        return categories

    rows_of = range(n if n <= _TABLE_LIMIT else 0)
    table: dict[tuple[float, ...], int] = {(*[0] * i, 1, *[0] * (others - i)): i for i in rows_of}

    def few(rows: list[list[float]]) -> list[int] | None:
        try:
            return [table[tuple(row)] for row in rows]
        except KeyError:
            return None

    return ActionDecoder(one, many, few=few, validates=True)


def decode_one_hot_parts(sizes: Sequence[int]) -> ActionDecoder:
    """Decode one-hot vectors of these sizes, end to end, into an array of categories."""
    ends = np.cumsum(sizes)[:-1]

    def split(rows: np.ndarray) -> np.ndarray:
        return np.stack([part.argmax(-1) for part in np.split(rows, ends, axis=-1)], -1)

    return ActionDecoder(lambda action: split(action.detach().numpy()), lambda rows: list(split(rows)))


def decode_number(n: int, refuse: Refuse, *, in_lists: bool) -> ActionDecoder:
    """Decode an action of one element into its number.

    Args:
        n: number of categories; -1 if unknown.
        refuse: called for an action that is not a category.
        in_lists: whether the shape is empty and the dtype integer, so that ``tolist`` of rows gives the actions.
    """
    limit = n if n > 0 else float("inf")

    def one(action: torch.Tensor) -> int | float:
        number = action.item()
        if not 0 <= number < limit:
            refuse(action)
        return number

    def many(rows: np.ndarray) -> list[int]:
        numbers: list[int] = rows.reshape(len(rows)).tolist()
        return numbers

    def few(rows: list[int]) -> list[int] | None:
        return rows if min(rows) >= 0 and max(rows) < limit else None

    return ActionDecoder(one, many, few=few if in_lists else None, validates=True)


def decode_arrays(shape: torch.Size, torch_dtype: torch.dtype | None) -> ActionDecoder:
    """Decode actions into arrays of their shape and dtype.

    The arrays are copies: an environment may keep an action or write into it, and the memory of the action may be that
    of a rollout's result, or of a batch, which the next action is written into.
    """

    def one(action: torch.Tensor) -> np.ndarray:
        # detach() makes another tensor, which costs as much again.
        return (action.detach() if action.requires_grad else action).numpy().copy()

    def many(rows: np.ndarray) -> list[np.ndarray]:
        return list(rows.copy())

    dtype = None if torch_dtype is None else torch_to_numpy_dtype_dict.get(torch_dtype)
    if dtype is None or not 0 < shape.numel() <= ACTION_TOLIST_LIMIT:
        return ActionDecoder(one, many, takes_arrays=dtype is not None)
    # `tolist` is faster for a few numbers than a numpy view, for which torch and numpy exchange pointer and strides.
    return ActionDecoder(
        lambda action: _new_array(action.tolist(), dtype),
        many,
        few=lambda rows: list(_new_array(rows, dtype)),
        takes_arrays=True,
    )
