"""AvailableEnvs: the environments of a library as a property of a class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import BackendError

__all__ = ["AvailableEnvs"]


class AvailableEnvs:
    """A property of a class of environments: those that there are, without one of them; none without the library.

    ``available_envs = AvailableEnvs(list_names)`` in the class makes ``TheEnv.available_envs`` what ``list_names()``
    returns.

    Args:
        names: lists them; it may import the library.
    """

    def __init__(self, names: Callable[[], list[Any]]) -> None:
        self._names = names

    def __get__(self, instance: Any, owner: type) -> list[Any]:
        try:
            return self._names()
        except (ImportError, BackendError):
            return []
