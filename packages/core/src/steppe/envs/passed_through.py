"""Values that a policy writes under ``next`` for states that an environment only passes through."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tensordict import TensorDictBase

__all__ = ["written_by_policy"]


def written_by_policy(tensordict: TensorDictBase, keys: Iterable[Any]) -> TensorDictBase | None:
    """Select what a policy has written under ``next`` for the states that an environment passes through.

    Args:
        tensordict: data ``[*B]`` that is to be stepped.
        keys: ``env.passed_through_keys``.

    Returns:
        The part of ``next`` with these keys, or None if there is none.
    """
    following: TensorDictBase | None = tensordict.get("next", None)
    if following is None or not keys:
        return None
    written: TensorDictBase = following.select(*keys, strict=False)
    return None if written.is_empty() else written
