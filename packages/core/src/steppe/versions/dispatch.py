"""``implement_for``: several implementations of a function, each for a range of versions of a library."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, TypeVar, cast

from steppe.arguments import ignored_argument
from steppe.errors import BackendError, NoImplementation
from steppe.versions import backends, libraries
from steppe.versions.ranges import VersionRange

__all__ = ["implement_for"]

Body = Callable[..., Any]
F = TypeVar("F", bound=Body)

_IMPLEMENTATIONS = "__steppe_implementations__"


def implement_for(
    library: str | ModuleType | Callable[[], ModuleType],
    from_version: str | None = None,
    to_version: str | None = None,
    *,
    class_method: bool = False,
    compilable: bool = False,
) -> Callable[[F], F]:
    """Declare a function as the implementation for a range of versions of a library.

    Definitions of the same name in one scope (module, class, function) are implementations of one function. Each call
    selects one: if all implementations are for one library, by its installed version, whatever the backend; if they are
    for gymnasium and gym, by the backend (``set_gym_backend``) and its version. Versions are ordered as in PEP 440, so
    a pre-release comes before its release.

    Declaring the same range again replaces the implementation; several decorators on one definition give it several
    ranges. Functions, methods, class methods and static methods can be decorated, with ``@classmethod`` above or below.

    The decorated function has a method ``register(from_version=None, to_version=None)``: a decorator that adds an
    implementation for the same library, whatever the name of the function. The first definition is then the fallback.

    Args:
        library: import name of the library, the module, or a callable that returns it (called at once).
        from_version: first version inside the range; None for no lower bound.
        to_version: first version after the range; None for no upper bound.
        class_method: whether to make it a class method, as ``@classmethod`` does.
        compilable: ignored: the implementation is looked up at each call.

    Returns:
        A decorator. The decorated function raises ``NoImplementation`` if no implementation fits the installed version.

    Raises:
        ValueError: a bound is not a version, or the range is empty or overlaps the range of another implementation.
    """
    name = _library_name(library)
    versions = VersionRange.parse(from_version, to_version)

    if compilable:
        ignored_argument("implement_for", "compilable", "the implementation is looked up at each call")

    def declare(function: F) -> F:
        kind: Any = type(function) if isinstance(function, classmethod | staticmethod) else None
        if kind is None and class_method:
            kind = classmethod
            function = classmethod(function)  # type: ignore[assignment]
        body: Body = function.__func__ if kind is not None else function  # type: ignore[attr-defined]
        declared = _implementations_of(body)
        if declared is not None and declared.dispatcher is body:
            # Two decorators over one definition: the same body for one more range.
            declared.add(name, versions, declared.latest)
        else:
            # Two local functions of one name can only be told apart by the scope that is being executed.
            declared = _declared_before(sys._getframe(1).f_locals, body) or _Implementations(body)
            declared.add(name, versions, body)
        return cast(F, declared.dispatcher if kind is None else kind(declared.dispatcher))

    return declare


class _Implementations:
    """The implementations of one function, the dispatching function, and a cache of choices by library."""

    def __init__(self, first: Body) -> None:
        self.name = first.__qualname__.rpartition("<locals>.")[2]
        self.bodies: dict[tuple[str, VersionRange], Body] = {}
        self.latest = first
        #: The implementation that runs if no registered one fits.
        self.base: tuple[str, VersionRange] | None = None
        self.dispatcher = _make_dispatcher(self, first)
        self._chosen: dict[str | None, Body] = {}

    def add(self, library: str, versions: VersionRange, body: Body) -> None:
        for other, other_versions in self.bodies:
            if (other, other_versions) == self.base:
                continue
            if other == library and other_versions != versions and other_versions.overlaps(versions):
                raise ValueError(
                    f"{self.name} is implemented for {_requirement(library, other_versions)} already; one for "
                    f"{_requirement(library, versions)} would overlap it. Narrow one of the two."
                )
        self.bodies[library, versions] = self.latest = body
        self._libraries = {library for library, _ in self.bodies}
        self._single = library if len(self._libraries) == 1 else None
        self._chosen.clear()

    def register(self, from_version: str | None = None, to_version: str | None = None) -> Callable[[Body], Body]:
        """Add an implementation for the library of the first definition, which becomes the fallback."""
        versions = VersionRange.parse(from_version, to_version)

        def declare(function: Body) -> Body:
            if self.base is None:
                self.base = next(iter(self.bodies))
            self.add(self.base[0], versions, function)
            return self.dispatcher

        return declare

    def select(self) -> Body:
        library = self._single or backends.effective_backend()
        chosen = self._chosen.get(library)
        if chosen is None:
            chosen = self._chosen[library] = self._search(library)
        return chosen

    def _search(self, library: str | None) -> Body:
        if self._single is None and not self._libraries.issubset(backends.GYM_LIBRARIES):
            raise BackendError(
                f"{self.name} is implemented for {_and(sorted(self._libraries))}. A function can have implementations "
                f"for several libraries only if these are {_and(backends.GYM_LIBRARIES)}."
            )
        if library is None:
            raise self._nothing_for(f"{_and(backends.GYM_LIBRARIES)}, of which none is installed")
        version = libraries.library_version(library)
        if version is None:
            raise self._nothing_for(f"{library}, which is not installed")
        # Registered implementations come before the fallback.
        for key, body in sorted(self.bodies.items(), key=lambda item: item[0] == self.base):
            candidate, versions = key
            if candidate == library and version in versions:
                return body
        raise self._nothing_for(f"{library} {version}")

    def _nothing_for(self, what: str) -> NoImplementation:
        declared = "; ".join(_requirement(library, versions) for library, versions in self.bodies)
        return NoImplementation(f"{self.name} has no implementation for {what}. Implemented for {declared}.")


def _make_dispatcher(declared: _Implementations, first: Body) -> Body:
    select = declared.select

    @functools.wraps(first)
    def dispatcher(*args: Any, **kwargs: Any) -> Any:
        return select()(*args, **kwargs)

    setattr(dispatcher, _IMPLEMENTATIONS, declared)
    dispatcher.register = declared.register  # type: ignore[attr-defined]
    return dispatcher


def _declared_before(scope: Mapping[str, object], body: Body) -> _Implementations | None:
    declared = _implementations_of(scope.get(body.__name__))
    if declared is None:
        return None
    # An imported function of the same name is another function.
    same = (declared.dispatcher.__module__, declared.dispatcher.__qualname__) == (body.__module__, body.__qualname__)
    return declared if same else None


def _implementations_of(function: Any) -> _Implementations | None:
    """Find the implementations of a function inside wrappers: classmethod, property, other decorators."""
    while function is not None:
        declared = getattr(function, _IMPLEMENTATIONS, None)
        if isinstance(declared, _Implementations):
            return declared
        inner = [getattr(function, name, None) for name in ("__func__", "fget", "__wrapped__")]
        function = next(filter(None, inner), None)
    return None


def _library_name(library: str | ModuleType | Callable[[], ModuleType]) -> str:
    if isinstance(library, str):
        return library
    if not isinstance(library, ModuleType):
        try:
            library = library()
        except ModuleNotFoundError as error:
            if error.name is None:
                raise
            return error.name.partition(".")[0]
    return library.__name__.partition(".")[0]


def _requirement(library: str, versions: VersionRange) -> str:
    return f"{library}{versions}" if str(versions) else f"any {library}"


def _and(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"
