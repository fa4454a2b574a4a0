"""Families of interchangeable libraries, and the choice of the library to use.

The library of a family is, in this order: the choice of the innermost ``with`` or decorator of the current context, the
process default (``.set()``), the first library of the family that is installed.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
from collections.abc import Callable, Generator, Mapping
from contextvars import ContextVar
from types import ModuleType, TracebackType
from typing import Any, NamedTuple, ParamSpec, TypeVar

from steppe.errors import BackendError
from steppe.versions.libraries import is_installed

__all__ = [
    "apply_backends",
    "backend_members",
    "backend_module",
    "backend_name",
    "carry_backends",
    "effective_backends",
    "gym_backend",
    "register_backend_family",
    "set_backend",
    "set_gym_backend",
]

P = ParamSpec("P")
T = TypeVar("T")

Backend = str | ModuleType | Callable[[], ModuleType]


class _Overlay(NamedTuple):
    """The choices of open ``with`` blocks and decorators, and the overlay outside of the innermost one."""

    choices: Mapping[str, str]
    outer: _Overlay | None


_families: dict[str, tuple[str, ...]] = {}
_defaults: dict[str, str] = {}
_overlay: ContextVar[_Overlay | None] = ContextVar("steppe_backends", default=None)


def register_backend_family(family: str, libraries: tuple[str, ...]) -> None:
    """Declare interchangeable libraries.

    Args:
        family: name of the family, such as ``"gym"``.
        libraries: their import names, the preferred one first.

    Raises:
        BackendError: the family exists with other libraries, or ``libraries`` is empty.
    """
    if not libraries:
        raise BackendError(f"The backend family {family!r} needs at least one library.")
    known = _families.setdefault(family, tuple(libraries))
    if known != tuple(libraries):
        raise BackendError(
            f"The backend family {family!r} is ({', '.join(known)}) already; it cannot be ({', '.join(libraries)}) too."
        )


def backend_members(family: str) -> tuple[str, ...]:
    """Return the import names of a family's libraries, the preferred one first; they need not be installed.

    Raises:
        BackendError: the family is unknown.
    """
    try:
        return _families[family]
    except KeyError:
        raise BackendError(f"{family!r} is not a backend family. Families: {', '.join(sorted(_families))}.") from None


def family_of(libraries: set[str]) -> str | None:
    """Return the family that has all these libraries, or None."""
    return next((family for family, members in _families.items() if libraries.issubset(members)), None)


def backend_name(family: str) -> str:
    """Return the import name of the library that is chosen for a family; it is not imported.

    Raises:
        BackendError: the family is unknown, or none of its libraries is installed.
    """
    overlay = _overlay.get()
    if overlay is not None and (name := overlay.choices.get(family)) is not None:
        return name
    name = _defaults.get(family)
    if name is not None:
        return name
    members = backend_members(family)
    for name in members:
        if is_installed(name):
            return name
    raise BackendError(
        f"No library of the backend family {family!r} is installed ({', '.join(members)}): pip install {members[0]}"
    )


def backend_module(family: str, submodule: str | None = None) -> ModuleType:
    """Import and return the library that is chosen for a family, or a module in it.

    Args:
        family: name of the family.
        submodule: dotted path of a module inside it, such as ``"wrappers"``; None for the library itself.

    Raises:
        BackendError: the family is unknown, or its library is not installed.
        ModuleNotFoundError: the library has no such submodule.
    """
    name = backend_name(family)
    try:
        library = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise _not_installed(family, name) from None
    return library if submodule is None else importlib.import_module(f"{name}.{submodule.lstrip('.')}")


def effective_backends() -> dict[str, str]:
    """Return the chosen library of each family, for workers and threads to use the same.

    Families without an installed library are left out.
    """
    overlay = _overlay.get()
    chosen = {**_defaults, **(overlay.choices if overlay is not None else {})}
    for family, members in _families.items():
        if family not in chosen and (library := next(filter(is_installed, members), None)) is not None:
            chosen[family] = library
    return chosen


def apply_backends(backends: Mapping[str, str]) -> None:
    """Make the result of ``effective_backends`` the defaults of this process.

    The names are not checked: a worker calls this before it imports the plugin that declares the family.
    """
    _defaults.update(backends)


def carry_backends(function: Callable[P, T]) -> Callable[P, T]:
    """Return a function that runs with the caller's current choices, in another thread for example.

    A new thread starts with the process defaults; ``Thread(target=carry_backends(work))`` starts with the choices of
    the thread that creates it.
    """
    choices = effective_backends()

    @functools.wraps(function)
    def carried(*args: P.args, **kwargs: P.kwargs) -> T:
        _push(choices)
        try:
            return function(*args, **kwargs)
        finally:
            _pop()

    return carried


class set_backend:
    """Choose the library of a family: for a ``with`` block, for a decorated function, or for the process.

    >>> with set_backend("gym", "gymnasium"):
    ...     pass

    The choice of a ``with`` block or decorator is valid in the current context only (thread or asyncio task).
    ``set()`` sets the default of the process; ``with`` blocks override it.

    Args:
        family: name of the family.
        backend: the library: its import name, the module itself, or a callable that returns the module (called at
            each use).

    Raises:
        BackendError: the family is unknown or has no such library; on use, the library is not installed.
    """

    def __init__(self, family: str, backend: Backend) -> None:
        self.family = family
        self._backend = backend
        backend_members(family)
        if not callable(backend):
            _check_member(family, _name_of(backend))

    def __enter__(self) -> None:
        _push({self.family: self._resolve()})

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _pop()

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        """Decorate a function, generator function, coroutine function or class to run with this choice.

        Between two values of a generator, its user has the choice of before.

        Raises:
            TypeError: ``function`` is an asynchronous generator function.
        """
        if inspect.isasyncgenfunction(function):
            raise TypeError(
                f"{function.__qualname__} is an asynchronous generator, which this decorator does not support: "
                f"write 'with {type(self).__name__}(...):' between its yields."
            )
        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def generate(*args: P.args, **kwargs: P.kwargs) -> Any:
                return (yield from _Held(function(*args, **kwargs), self))

            return generate
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def run_async(*args: P.args, **kwargs: P.kwargs) -> Any:
                with self:
                    return await function(*args, **kwargs)

            return run_async  # type: ignore[return-value]

        @functools.wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> T:
            with self:
                return function(*args, **kwargs)

        return run

    def set(self) -> None:
        """Make this choice the default of the process."""
        _defaults[self.family] = self._resolve()

    @property
    def backend(self) -> ModuleType:
        """Import and return the library of this choice.

        Raises:
            BackendError: it is not installed.
        """
        return importlib.import_module(self._resolve())

    def _resolve(self) -> str:
        backend = self._backend() if callable(self._backend) else self._backend
        name = _check_member(self.family, _name_of(backend))
        if not is_installed(name):
            raise _not_installed(self.family, name)
        return name


class set_gym_backend(set_backend):
    """Choose between gymnasium and gym: ``set_backend`` for the family ``"gym"``.

    >>> with set_gym_backend("gymnasium"):
    ...     print(gym_backend().__name__)
    gymnasium

    Args:
        backend: ``"gymnasium"`` or ``"gym"``, the module itself, or a callable that returns it.
    """

    def __init__(self, backend: Backend) -> None:
        super().__init__("gym", backend)


class _Held(Generator[object, object, object]):
    """A generator whose body runs with a choice, while its user keeps the choice of before."""

    def __init__(self, generator: Generator[object, object, object], choice: set_backend) -> None:
        self._generator = generator
        self._choice = choice

    def send(self, value: object) -> object:
        with self._choice:
            return self._generator.send(value)

    def throw(self, *error: Any) -> object:
        with self._choice:
            return self._generator.throw(*error)


def gym_backend(submodule: str | None = None) -> ModuleType:
    """Import and return gymnasium or gym, as chosen; gymnasium is the default if both are installed.

    Args:
        submodule: a module inside it, such as ``"wrappers"``; None for the library itself.

    Raises:
        BackendError: neither is installed.
        ModuleNotFoundError: the library has no such submodule.
    """
    return backend_module("gym", submodule)


def _push(choices: Mapping[str, str]) -> None:
    outer = _overlay.get()
    _overlay.set(_Overlay({**outer.choices, **choices} if outer is not None else choices, outer))


def _pop() -> None:
    current = _overlay.get()
    assert current is not None, "left a backend that was not entered in this context"
    _overlay.set(current.outer)


def _name_of(backend: object) -> str:
    if isinstance(backend, ModuleType):
        return backend.__name__.partition(".")[0]
    if isinstance(backend, str):
        return backend
    raise BackendError(f"A backend is a name, a module or a callable that returns a module, not {backend!r}.")


def _check_member(family: str, name: str) -> str:
    members = backend_members(family)
    if name not in members:
        near = difflib.get_close_matches(name, members, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise BackendError(f"{name!r} is not a backend of the family {family!r} ({', '.join(members)}).{hint}")
    return name


def _not_installed(family: str, name: str) -> BackendError:
    return BackendError(f"The backend {name!r} of the family {family!r} is not installed: pip install {name}")


# Declared here and not in the plugin, because set_gym_backend must work before the plugin is imported.
register_backend_family("gym", ("gymnasium", "gym"))
