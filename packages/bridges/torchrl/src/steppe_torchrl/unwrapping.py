"""set_auto_unwrap_transformed_env: whether nested TransformedEnvs are joined."""

from __future__ import annotations

import os
from contextlib import ContextDecorator

__all__ = ["auto_unwrap_transformed_env", "set_auto_unwrap_transformed_env"]

# An environment variable, so that workers inherit the setting of the process that starts them.
_VARIABLE = "AUTO_UNWRAP_TRANSFORMED_ENV"


class set_auto_unwrap_transformed_env(ContextDecorator):
    """Choose whether ``TransformedEnv(TransformedEnv(env, a), b)`` becomes ``TransformedEnv(env, Compose(a, b))``.

    Use it as a context manager or a decorator, or call ``set`` for the rest of the program. The setting holds for the
    whole process and the workers that it starts. By default they are joined, unless the environment variable
    ``AUTO_UNWRAP_TRANSFORMED_ENV`` is ``0`` or ``False``. ``TransformedEnv(..., auto_unwrap=...)`` overrides the
    setting.

    Args:
        mode: whether nested environments are joined.

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
        """Set the mode for the rest of the program."""
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


def auto_unwrap_transformed_env() -> bool:
    """Return whether nested TransformedEnvs are joined."""
    value = os.environ.get(_VARIABLE, "True")
    return value.lower() not in ("0", "false")
