"""Tolerance: transforms skip missing entries instead of raising an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steppe.transforms.base import Transform

__all__ = ["Tolerance"]


class Tolerance:
    """Changes ``missing_tolerance`` when it is made; as a context manager it restores the previous mode at its end.

    Args:
        transform: a transform; the transforms in it are changed too.
        mode: whether missing entries are skipped.
    """

    def __init__(self, transform: Transform, mode: bool) -> None:
        parts: list[Any] = [module for module in transform.modules() if hasattr(module, "_missing_tolerance")]
        self._before: list[tuple[Transform, bool]] = [(part, part.missing_tolerance) for part in parts]
        for part, _ in self._before:
            part._missing_tolerance = bool(mode)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc_info: object) -> None:
        for part, mode in self._before:
            part._missing_tolerance = mode
