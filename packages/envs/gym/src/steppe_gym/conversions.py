"""The registry of conversions of spaces to specs, for ``space_to_spec``.

A space uses the conversion of the first class in its MRO that has one, so a third-party subclass of ``Box`` needs no
separate conversion.
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
    """The conversion of one class of spaces.

    Attributes:
        to_spec: makes the spec.
        encode: converts a value of the space to an array of the spec's shape and dtype. ``None``: they are such arrays.
        decode: converts an action of the spec's layout to a value of the space. ``None``: they are equal.
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

    The function receives the space, and of the keyword arguments ``device``, ``categorical_action_encoding``,
    ``remap_state_to_observation``, ``dtype`` and ``batch_size`` those that it declares (the last two are None). It
    returns a spec. Subclasses inherit a conversion; registering a class again replaces it.

    >>> @register_gym_spec_conversion("spaces.Box")  # doctest: +SKIP
    ... def convert_box(space, *, device=None):
    ...     return Unbounded(space.shape, device=device)

    Args:
        space: the class, or its dotted name. A name is resolved at its first use, so nothing is imported for it. Names
            such as ``"spaces.Box"``, ``"Box"`` and ``"discrete.Discrete"`` are paths inside the ``spaces`` module of
            gym and gymnasium.
        encode: ``encode(space, value)`` converts a value of the environment to an array of the spec's shape and
            dtype. ``None``: values are such arrays.
        decode: ``decode(space, action)`` converts an action of the spec's layout to a value of the space. ``None``:
            they are equal.

    Raises:
        TypeError: ``space`` is neither a class nor a string.
    """
    if not isinstance(space, type | str):
        raise TypeError(f"space must be a class or its dotted name, found {space!r}.")

    def register(function: F) -> F:
        conversion = Conversion(_with_declared_arguments(function), encode, decode)
        if isinstance(space, str):
            _by_name.pop(space, None)
            _by_name[space] = conversion
            # The classes of this name may have an older conversion, which would hide the new one.
            for known in _classes_named(space):
                _by_class[known] = conversion
        else:
            _by_class[space] = conversion
        return function

    return register


def conversion_of(space: Any) -> Conversion:
    """Return the conversion of a space: that of its class or nearest base class.

    Raises:
        NotSupported: no conversion is registered.
    """
    mro = type(space).__mro__
    for _ in range(2):
        for cls in mro:
            registered = _by_class.get(cls)
            if registered is not None:
                return registered
        # Names are resolved only now. The library of the class is imported, because an instance exists.
        for name, conversion in reversed(_by_name.items()):
            for cls in _classes_named(name):
                _by_class.setdefault(cls, conversion)
    class_name = f"{type(space).__module__}.{type(space).__qualname__}"
    raise NotSupported(
        f"No conversion is registered for the space {class_name}. "
        f"Write one with @steppe_gym.register_gym_spec_conversion({class_name!r})."
    )


def _classes_named(name: str) -> list[type]:
    """Return the classes with a dotted name, among imported modules."""
    inside = name.removeprefix("spaces.")
    roots = [*([name] if inside == name else []), *(f"{library}.spaces.{inside}" for library in ("gymnasium", "gym"))]
    classes: list[type] = []
    for path in roots:
        parts = path.split(".")
        for cut in range(len(parts) - 1, 0, -1):
            value = sys.modules.get(".".join(parts[:cut]))
            if value is None:
                continue
            for part in parts[cut:]:
                value = getattr(value, part, None)
            if isinstance(value, type):
                classes.append(value)
                break
    return classes


def _with_declared_arguments(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a conversion so that it receives only arguments that it declares."""
    parameters = list(inspect.signature(function).parameters.values())
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
    names = {p.name for p in parameters[1:]}

    def call(space: Any, *, categorical_action_encoding: bool, device: Any) -> Any:
        arguments = {
            "dtype": None,
            "device": device,
            "categorical_action_encoding": categorical_action_encoding,
            "remap_state_to_observation": False,
            "batch_size": None,
        }
        return function(space, **{name: value for name, value in arguments.items() if takes_all or name in names})

    return call
