"""Whether a TransformedEnv of a TransformedEnv is made into one."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["auto_unwrap_transformed_env", "set_auto_unwrap_transformed_env"]

_F = TypeVar("_F", bound=Callable[..., Any])

# An environment variable, so that workers decide as the process does that starts them.
_VARIABLE = "AUTO_UNWRAP_TRANSFORMED_ENV"


class set_auto_unwrap_transformed_env:
    """Decide whether ``TransformedEnv(TransformedEnv(env, a), b)`` becomes ``TransformedEnv(env, Compose(a, b))``.

    A context manager, a decorator, and with ``set`` a decision for the rest of the program; for the whole process and
    the workers that it starts. Without one it does, unless the environment variable ``AUTO_UNWRAP_TRANSFORMED_ENV`` is
    ``0`` or ``False``. ``TransformedEnv(..., auto_unwrap=...)`` comes first.

    Args:
        mode: whether it does.

    Examples:
        >>> with set_auto_unwrap_transformed_env(False):
        ...     auto_unwrap_transformed_env()
        False
        >>> auto_unwrap_transformed_env()
        True
    """

    def __init__(self, mode: bool) -> None:
        self.mode = bool(mode)
        self._before: list[str | None] = []

    def set(self) -> None:
        """Decide for the rest of the program."""
        os.environ[_VARIABLE] = str(self.mode)

    def __enter__(self) -> set_auto_unwrap_transformed_env:
        self._before.append(os.environ.get(_VARIABLE))
        self.set()
        return self

    def __exit__(self, *exc_info: object) -> None:
        before = self._before.pop()
        if before is None:
            os.environ.pop(_VARIABLE, None)
        else:
            os.environ[_VARIABLE] = before

    def __call__(self, function: _F) -> _F:
        """Decorate a function: the decision holds while it runs."""

        @functools.wraps(function)
        def decided(*args: Any, **kwargs: Any) -> Any:
            with type(self)(self.mode):
                return function(*args, **kwargs)

        return decided  # type: ignore[return-value]


def auto_unwrap_transformed_env(allow_none: bool = False) -> bool | None:
    """Tell whether a TransformedEnv of a TransformedEnv is made into one.

    Args:
        allow_none: return None where nobody has decided.
    """
    value = os.environ.get(_VARIABLE)
    if value is None:
        return None if allow_none else True
    return value.lower() not in ("0", "false", "no", "off", "f", "n", "")
