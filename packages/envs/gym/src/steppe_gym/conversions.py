"""Which function converts which class of spaces: the registry behind ``space_to_spec``.

A space is converted by the first conversion that is registered for a class in the MRO of its own class, so a
third-party subclass of ``Box`` needs none.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from steppe.errors import NotSupported
from steppe.specs import Spec

__all__ = ["Conversion", "conversion_of", "register_gym_spec_conversion"]

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Conversion:
    """How one class of spaces is converted.

    Attributes:
        to_spec: makes the spec.
        encode: turns a value of the space into an array of the spec's shape and dtype; None where the value is one.
        decode: turns an action of the spec's layout into one of the space; None where it is one.
    """

    to_spec: Callable[..., Spec]
    encode: Callable[[Any, Any], Any] | None = None
    decode: Callable[[Any, Any], Any] | None = None


_by_class: dict[type, Conversion] = {}
_by_name: dict[str, Conversion] = {}


def register_gym_spec_conversion(
    space: type | str,
    *,
    encode: Callable[[Any, Any], Any] | None = None,
    decode: Callable[[Any, Any], Any] | None = None,
) -> Callable[[F], F]:
    """Register the decorated function as the conversion of a class of spaces to specs.

    The function receives the space and those of the keyword arguments ``device``, ``categorical_action_encoding``,
    ``remap_state_to_observation``, ``dtype`` and ``batch_size`` that it names (the last two are None), and returns a
    spec. Subclasses inherit a conversion; registering a class again replaces it.

    >>> @register_gym_spec_conversion("spaces.Box")  # doctest: +SKIP
    ... def convert_box(space, *, device=None):
    ...     return Unbounded(space.shape, device=device)

    Args:
        space: the class, or its dotted name, which is looked up when it is first needed, so that nothing is imported
            for it. A name that begins with ``"spaces."`` means that path inside gym and inside gymnasium, and so does
            one without, such as ``"Box"`` or ``"discrete.Discrete"``.
        encode: ``encode(space, value)`` turns what the environment returns into an array of the spec's shape and
            dtype. None: values are arrays already.
        decode: ``decode(space, action)`` turns an action of the spec's layout into what the environment takes.

    Raises:
        TypeError: ``space`` is neither a class nor a string.
    """
    if not isinstance(space, type | str):
        raise TypeError(f"A space is named by its class or its dotted name, not by {space!r}.")

    def register(function: F) -> F:
        conversion = Conversion(_with_wanted_arguments(function), encode, decode)
        if isinstance(space, str):
            _by_name.pop(space, None)
            _by_name[space] = conversion
            # A class that a name stood for before would hide the new conversion.
            for known in _classes_named(space):
                _by_class[known] = conversion
        else:
            _by_class[space] = conversion
        return function

    return register


def conversion_of(space: Any) -> Conversion:
    """The conversion that is registered for the class of a space, or for the nearest of its base classes.

    Raises:
        NotSupported: there is none.
    """
    mro = type(space).__mro__
    for _ in range(2):
        for cls in mro:
            found = _by_class.get(cls)
            if found is not None:
                return found
        # Names are resolved only now: the library that has the class is loaded, as there is an instance of it.
        for name, conversion in reversed(_by_name.items()):
            for cls in _classes_named(name):
                _by_class.setdefault(cls, conversion)
    named = f"{type(space).__module__}.{type(space).__qualname__}"
    raise NotSupported(
        f"There is no conversion from the space {named} to a spec. "
        f"Write one with @steppe_gym.register_gym_spec_conversion({named!r})."
    )


def _classes_named(name: str) -> list[type]:
    """The classes that a dotted name stands for among the modules that are loaded."""
    inside = name.removeprefix("spaces.")
    roots = [*([name] if inside == name else []), *(f"{library}.spaces.{inside}" for library in ("gymnasium", "gym"))]
    found: list[type] = []
    for path in roots:
        parts = path.split(".")
        for cut in range(len(parts) - 1, 0, -1):
            value = sys.modules.get(".".join(parts[:cut]))
            if value is None:
                continue
            for part in parts[cut:]:
                value = getattr(value, part, None)
            if isinstance(value, type):
                found.append(value)
                break
    return found


def _with_wanted_arguments(function: Callable[..., Any]) -> Callable[..., Any]:
    """Call a conversion with those arguments only that it names."""
    parameters = list(inspect.signature(function).parameters.values())
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
    names = {p.name for p in parameters[1:]}

    def call(space: Any, *, categorical_action_encoding: bool, device: Any) -> Any:
        given = {
            "dtype": None,
            "device": device,
            "categorical_action_encoding": categorical_action_encoding,
            "remap_state_to_observation": False,
            "batch_size": None,
        }
        return function(space, **{name: value for name, value in given.items() if takes_all or name in names})

    return call
