"""Metaclasses of specs: errors for unknown arguments, and classes that stand for one domain of another class."""

from __future__ import annotations

import inspect
from abc import ABCMeta
from typing import TYPE_CHECKING, Any

from steppe.arguments import unknown_argument

__all__ = ["OfDomain", "SpecMeta"]


class SpecMeta(ABCMeta):
    """Metaclass of all specs: the TypeError for an unknown argument suggests the right name."""

    if not TYPE_CHECKING:  # type checkers read the constructors themselves

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            try:
                return super().__call__(*args, **kwargs)
            except TypeError:
                parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
                if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
                    raise
                known = [parameter.name for parameter in parameters]
                for name in kwargs:
                    if name not in known:
                        raise unknown_argument(cls.__name__, name, known) from None
                raise


class OfDomain(SpecMeta):
    """Metaclass of ``BoundedDiscrete`` and the like, which stand for specs of their base class with one domain.

    ``isinstance`` compares the domain, and a call makes a spec of the base class.
    """

    _named_domain: str
    _defaults: dict[str, object]

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.__base__ or ()) and getattr(instance, "domain", None) == cls._named_domain

    if not TYPE_CHECKING:

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            names = list(inspect.signature(cls.__base__.__init__).parameters)[1:]
            passed = {*names[: len(args)], *kwargs}
            return cls.__base__(*args, **kwargs, **{k: v for k, v in cls._defaults.items() if k not in passed})
