"""Missing entries that are passed over instead of being an error."""

from __future__ import annotations

from typing import Any

from torch import nn

__all__ = ["Tolerance", "set_missing_tolerance"]


class Tolerance:
    """A change of ``missing_tolerance``, made at once; as a context manager it takes the change back.

    Args:
        transform: a transform; those in it follow.
        mode: whether missing entries are passed over.
    """

    def __init__(self, transform: nn.Module, mode: bool) -> None:
        parts: list[Any] = [module for module in transform.modules() if hasattr(module, "_missing_tolerance")]
        self._before: list[tuple[Any, bool]] = [(part, part.missing_tolerance) for part in parts]
        for part, _ in self._before:
            part._missing_tolerance = bool(mode)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc_info: object) -> None:
        for part, mode in self._before:
            part._missing_tolerance = mode


def set_missing_tolerance(transform: Any, mode: bool) -> Tolerance:
    """The same as ``transform.set_missing_tolerance(mode)``, for the ``_reset`` of a transform::

        def _reset(self, tensordict, tensordict_reset):
            with set_missing_tolerance(self, True):
                return self._call(tensordict_reset)

    Args:
        transform: a transform.
        mode: whether entries that are missing are passed over.

    Returns:
        A context manager that takes the change back.
    """
    tolerance: Tolerance = transform.set_missing_tolerance(mode)
    return tolerance
