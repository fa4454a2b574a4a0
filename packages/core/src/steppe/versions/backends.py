"""The choice between gymnasium and gym, which one wrapper serves.

The library is, in this order: the choice of the innermost ``with`` or decorator of the current context, the process
default (``.set()``), the first of `GYM_LIBRARIES` that is installed.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Generator
from contextvars import ContextVar
from types import ModuleType, TracebackType
from typing import Any, ParamSpec, TypeVar

from steppe.errors import BackendError
from steppe.versions.libraries import is_installed

__all__ = [
    "apply_backend",
    "effective_backend",
    "gym_backend",
    "gym_backend_name",
    "set_gym_backend",
]

P = ParamSpec("P")
T = TypeVar("T")

Backend = str | ModuleType | Callable[[], ModuleType]

GYM_LIBRARIES: tuple[str, ...] = ("gymnasium", "gym")
"""Import names of the interchangeable libraries, the preferred one first."""

_default: str | None = None
#: The choices of open ``with`` blocks and decorators, the innermost one last.
_choices: ContextVar[tuple[str, ...]] = ContextVar("steppe_gym_backends", default=())


def effective_backend() -> str | None:
    """Return the import name of the chosen library, for workers to use the same; None if none is installed."""
    if choices := _choices.get():
        return choices[-1]
    return _default or next(filter(is_installed, GYM_LIBRARIES), None)


def apply_backend(name: str | None) -> None:
    """Make the result of ``effective_backend`` in another process the default of this one; None changes nothing."""
    global _default
    _default = name or _default


def gym_backend_name() -> str:
    """Return the import name of the chosen library; it is not imported.

    Raises:
        BackendError: neither is installed.
    """
    name = effective_backend()
    if name is None:
        raise BackendError(f"Neither {' nor '.join(GYM_LIBRARIES)} is installed: pip install {GYM_LIBRARIES[0]}")
    return name


def gym_backend(submodule: str | None = None) -> ModuleType:
    """Import and return gymnasium or gym, as chosen; gymnasium is the default if both are installed.

    Args:
        submodule: dotted path of a module inside it, such as ``"wrappers"``; None for the library itself.

    Raises:
        BackendError: neither is installed, or the chosen one is not.
        ModuleNotFoundError: the library has no such submodule.
    """
    name = gym_backend_name()
    try:
        library = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise _not_installed(name) from None
    return library if submodule is None else importlib.import_module(f"{name}.{submodule.lstrip('.')}")


class set_gym_backend:
    """Choose between gymnasium and gym: for a ``with`` block, for a decorated function, or for the process.

    The choice of a ``with`` block or decorator is valid in the current context only (thread or asyncio task).
    ``set()`` sets the default of the process; ``with`` blocks override it.

    Args:
        backend: ``"gymnasium"`` or ``"gym"``, the module itself, or a callable that returns the module (called at each
            use).

    Raises:
        BackendError: the backend is neither; on use, the library is not installed.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        if not callable(backend):
            _checked_name(backend)

    def __enter__(self) -> None:
        _choices.set((*_choices.get(), self._resolve()))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _choices.set(_choices.get()[:-1])

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        """Decorate a function, generator function or class to run with this choice.

        Between two values of a generator, its user has the choice of before.

        Raises:
            TypeError: ``function`` is asynchronous.
        """
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(
                f"{function.__qualname__} is asynchronous, which this decorator does not support: "
                "write 'with set_gym_backend(...):' in it."
            )
        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def generate(*args: P.args, **kwargs: P.kwargs) -> Any:
                return (yield from _Held(function(*args, **kwargs), self))

            return generate

        @functools.wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> T:
            with self:
                return function(*args, **kwargs)

        return run

    def set(self) -> None:
        """Make this choice the default of the process."""
        apply_backend(self._resolve())

    @property
    def backend(self) -> ModuleType:
        """Import and return the library of this choice.

        Raises:
            BackendError: it is not installed.
        """
        return importlib.import_module(self._resolve())

    def _resolve(self) -> str:
        name = _checked_name(self._backend() if callable(self._backend) else self._backend)
        if not is_installed(name):
            raise _not_installed(name)
        return name


class _Held(Generator[object, object, object]):
    """A generator whose body runs with a choice, while its user keeps the choice of before."""

    def __init__(self, generator: Generator[object, object, object], choice: set_gym_backend) -> None:
        self._generator = generator
        self._choice = choice

    def send(self, value: object) -> object:
        with self._choice:
            return self._generator.send(value)

    def throw(self, *error: Any) -> object:
        with self._choice:
            return self._generator.throw(*error)


def _checked_name(backend: object) -> str:
    name = backend.__name__.partition(".")[0] if isinstance(backend, ModuleType) else backend
    if not isinstance(name, str):
        raise BackendError(f"A backend is a name, a module or a callable that returns a module, not {backend!r}.")
    if name not in GYM_LIBRARIES:
        raise BackendError(f"{name!r} is not a gym backend. Choose one of: {', '.join(GYM_LIBRARIES)}.")
    return name


def _not_installed(name: str) -> BackendError:
    return BackendError(f"The gym backend {name!r} is not installed: pip install {name}")
