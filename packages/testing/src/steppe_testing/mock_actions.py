"""Kinds of actions of the mock environments, and the number of an action."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from steppe.errors import SpecError
from steppe.specs import Binary, Bounded, Categorical, MultiCategorical, MultiOneHot, OneHot, Spec

__all__ = ["ACTION_KINDS", "action_leaf", "action_number", "decoded_action_number"]

#: Names for the ``action`` argument of the mock environments.
ACTION_KINDS = ("one_hot", "categorical", "continuous", "binary", "multi_categorical", "multi_one_hot")


def action_leaf(kind: str, batch_size: tuple[int, ...] = ()) -> Spec:
    """Return the spec of a kind of action.

    >>> from steppe_testing import action_leaf
    >>> action_leaf("one_hot"), action_leaf("continuous", (4,)).shape
    (OneHot(n=3, shape=(3,), dtype=bool), torch.Size([4, 2]))

    Args:
        kind: one of :data:`ACTION_KINDS`. The last dimension is 3 for ``one_hot``, none for ``categorical``, 2 for
            ``continuous`` (float32 in ``[-1, 1]``), ``binary`` and ``multi_categorical``, 5 for ``multi_one_hot``.
        batch_size: leading dimensions.

    Raises:
        SpecError: ``kind`` is unknown.
    """
    leaves: dict[str, Spec] = {
        "one_hot": OneHot(3),
        "categorical": Categorical(3),
        "continuous": Bounded(-1.0, 1.0, shape=(2,)),
        "binary": Binary(2),
        "multi_categorical": MultiCategorical([3, 2]),
        "multi_one_hot": MultiOneHot([3, 2]),
    }
    if kind not in leaves:
        raise SpecError(f"action must be one of {', '.join(ACTION_KINDS)}, found {kind!r}.")
    leaf = leaves[kind]
    return leaf.expand((*batch_size, *leaf.shape)) if batch_size else leaf


def action_number(kind: str, action: torch.Tensor) -> torch.Tensor:
    """Return the number of an action, ``[*B, 1]`` float32.

    It is the index of a discrete action, or the sum of several indices or entries.

    >>> import torch
    >>> from steppe_testing import action_number
    >>> action_number("one_hot", torch.tensor([[0, 0, 1], [1, 0, 0]])).flatten()
    tensor([2., 0.])
    """
    if kind == "categorical":
        return action.unsqueeze(-1).float()
    if kind == "one_hot":
        return action.int().argmax(-1, keepdim=True).float()
    if kind == "multi_one_hot":
        first, second = action[..., :3].int().argmax(-1, True), action[..., 3:].int().argmax(-1, True)
        return (first + second).float()
    return action.float().sum(-1, keepdim=True)


def decoded_action_number(action: Any) -> float:
    """Return the number of a decoded action, which ``step_into`` receives."""
    return float(action) if isinstance(action, (int, float)) else float(np.asarray(action, np.float32).sum())
