"""Base classes of wrappers around the environments of a library."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from steppe.envs.base import EnvBase
from steppe.errors import ArgumentError, NotSupported

__all__ = ["LibraryWrapper", "MadeByName", "base_arguments", "set_in_wrappers"]

_BASE_ARGUMENTS = tuple(inspect.signature(EnvBase).parameters)


class LibraryWrapper(EnvBase):
    """Base of wrappers around an environment of a library, ``_env``.

    Attributes that the class does not have are looked up on ``_env``, and ``close`` closes it. ``frame_skip`` is
    refused; a subclass that repeats actions takes the argument itself.

    Attributes:
        git_url: the repository of the library.
        libname: the name of the library.
        available_envs: the names of its environments; see :class:`~steppe.registry.AvailableEnvs`.
    """

    git_url: str = ""
    libname: str = ""
    available_envs: Any = {}

    def __init__(self, *, frame_skip: int | None = None, **kwargs: Any) -> None:
        if frame_skip not in (None, 1):
            instead = f"TransformedEnv(env, FrameSkipTransform({frame_skip!r}))"
            raise NotSupported(f"{type(self).__name__} does not repeat actions: write {instead}, of steppe-time.")
        super().__init__(**kwargs)

    def wrap_library(self, env: Any) -> None:
        """Keep the library's environment as ``_env``; if it is an ``nn.Module``, it is not a submodule of this one."""
        object.__setattr__(self, "_env", env)

    def find_elsewhere(self, name: str) -> Any:
        env = vars(self).get("_env")
        return super().find_elsewhere(name) if env is None or name.startswith("__") else getattr(env, name)

    def set_elsewhere(self, name: str, value: object) -> bool:
        return set_in_wrappers(vars(self).get("_env"), name, value)

    def close(self, *, raise_if_closed: bool = False) -> None:
        """Close the library's environment, if it has a method ``close``."""
        was_closed = self.is_closed
        super().close(raise_if_closed=raise_if_closed)
        close = getattr(vars(self).get("_env"), "close", None)
        if not was_closed and close is not None:
            close()


class MadeByName(LibraryWrapper):
    """Base of wrappers that make an environment by its name; ``num_workers=n`` makes a batch of n instead.

    >>> env = DMControlEnv("cheetah", "run", num_workers=4)  # doctest: +SKIP
    >>> type(env).__name__, env.batch_size  # doctest: +SKIP
    ('ParallelEnv', torch.Size([4]))

    All other arguments are passed to each environment, which is made in a worker process. A subclass needs a keyword
    argument ``num_workers`` in its ``__init__``, which gets 0, 1 or None and can ignore it.

    Raises:
        ArgumentError: ``num_workers`` is not a whole number, or below 0.
    """

    def __new__(cls, *args: Any, num_workers: int | None = None, **kwargs: Any) -> Any:
        """Make the environment, or a batch if there are several workers."""
        workers = 1 if num_workers is None else num_workers
        if isinstance(workers, bool) or not isinstance(workers, int) or workers < 0:
            raise ArgumentError(f"num_workers is a whole number >= 0, found {num_workers!r}.")
        if workers < 2:
            return super().__new__(cls, *args, **kwargs)
        return cls.make_parallel(functools.partial(cls, *args, **kwargs), num_envs=workers)


def set_in_wrappers(env: object, name: str, value: object) -> bool:
    """Set an attribute of a library's environment, on the wrapper or the environment inside that has it.

    Wrappers show the attributes of what they wrap, but an assignment to a wrapper stays there.

    Args:
        env: the outermost wrapper; each has the next one at ``env``.
        name: the attribute.
        value: its value.

    Returns:
        Whether one of them has it.
    """
    for _ in range(64):
        if name in getattr(env, "__dict__", ()) or hasattr(type(env), name):
            setattr(env, name, value)
            return True
        env = getattr(env, "__dict__", {}).get("env")
    return False


def base_arguments(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Remove the arguments of :class:`~steppe.envs.EnvBase` from ``kwargs``, and return them.

    For classes that make an environment by its name, and pass all other keyword arguments to the library.

    Args:
        kwargs: changed in place.
    """
    return {name: kwargs.pop(name) for name in _BASE_ARGUMENTS if name in kwargs}
