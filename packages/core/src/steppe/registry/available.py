"""AvailableEnvs: the environments of a library as a property of a class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import BackendError

__all__ = ["AvailableEnvs"]


class AvailableEnvs:
    """A class property with the names of a library's environments; empty if the library is not installed.

    With ``available_envs = AvailableEnvs(list_names)`` in the class, ``TheEnv.available_envs`` returns
    ``list_names()``, without an instance of the class.

    Args:
        names: returns the names; it may import the library.
    """

    def __init__(self, names: Callable[[], list[Any]]) -> None:
        self._names = names

    def __get__(self, instance: object, owner: type) -> list[Any]:
        try:
            return self._names()
        except (ImportError, BackendError):
            return []
