"""Gathering: copy entries of rows into parts of one entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["Gathering"]


class Gathering:
    """Implement CatTensors and Stack on rows: the ``bind`` of their RowHooks.

    Args:
        copies: function of the arrays of the root or of ``next`` that returns pairs of arrays: target and source.
    """

    def __init__(self, copies: Callable[[Any], list[tuple[Any, Any]]]) -> None:
        self.copies = copies

    def __call__(self, root: Any, following: Any) -> Any:
        after, at_root = self.copies(following), self.copies(root)

        def step() -> bool:
            for target, source in after:
                target[...] = source
            return False

        def reset(at: Any) -> None:
            for target, source in at_root:
                for row in at:
                    target[row] = source[row]

        return step, reset if at_root else None
