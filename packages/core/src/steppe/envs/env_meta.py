"""What surrounds the ``__init__`` of an environment: arguments that every class takes, and what is done at its end."""

from __future__ import annotations

import inspect
from abc import ABCMeta
from types import FunctionType
from typing import Any

from steppe.errors import SpecError

__all__ = ["EnvMeta", "check_takes_one"]

#: Taken by every class, also where its ``__init__`` neither names them nor hands further keywords on.
_FOR_ALL = frozenset({"spec_locked", "auto_reset", "auto_reset_replace", "policy", "compile"})

#: What authors write, and what it is given in one place.
_GIVEN = {
    "_reset": "def _reset(self, tensordict, **kwargs)",
    "_step": "def _step(self, tensordict)",
    "_set_seed": "def _set_seed(self, seed)",
}


class EnvMeta(ABCMeta):
    """The metaclass of :class:`~steppe.envs.EnvBase`.

    It makes an environment, and when the outermost ``__init__`` has ended calls ``_finish_construction``, which locks
    the specs: until then a class and those below it can edit them in place. Copies and pickles of an environment do not
    come this way; they are as locked as what they were made from.

    It is an ABCMeta, so that an environment can be an abstract class as well.

    Raises:
        SpecError: when an environment is made whose ``_reset`` or ``_step`` has no parameter for the data. Its class
            may be defined, because a subclass may write the method anew. ``set_seed`` says the same of ``_set_seed``.
    """

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **kwargs: Any) -> Any:
        locked = namespace.get("batch_locked")
        if isinstance(locked, bool):
            # As an attribute it would hide the property, which all checks would go past.
            namespace = {**namespace, "_batch_locked": locked}
            del namespace["batch_locked"]
        return super().__new__(mcs, name, bases, namespace, **kwargs)

    def __setattr__(cls, name: str, value: Any) -> None:
        super().__setattr__("_batch_locked" if name == "batch_locked" and isinstance(value, bool) else name, value)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        options = {} if _FOR_ALL.isdisjoint(kwargs) else _taken(cls, kwargs)
        for method in ("_reset", "_step"):
            check_takes_one(cls, method)
        env = super().__call__(*args, **kwargs)
        return env._finish_construction(**options) if isinstance(type(env), EnvMeta) else env

    @property
    def __signature__(cls) -> inspect.Signature:
        """What ``inspect.signature`` and ``help`` show: that of ``__init__``."""
        _self, *others = inspect.signature(cls.__init__).parameters.values()  # type: ignore[misc]
        return inspect.Signature(others)


def check_takes_one(owner: type, name: str) -> None:
    """Raise a SpecError where a method that authors write has no parameter for the one thing that it is given.

    Args:
        owner: the class of the environment.
        name: ``"_reset"``, ``"_step"`` or ``"_set_seed"``.
    """
    method = inspect.getattr_static(owner, name, None)
    bound = 0 if isinstance(method, staticmethod) else 1
    function = getattr(method, "__func__", method)
    if not isinstance(function, FunctionType):
        return
    code = function.__code__
    if code.co_argcount <= bound and not code.co_flags & inspect.CO_VARARGS:
        raise SpecError(
            f"{owner.__name__}.{name}{inspect.signature(function)} has no parameter for what it is given: write "
            f"{_GIVEN[name]}."
        )


def _taken(cls: type, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Take out of ``kwargs`` what every class takes, except what the ``__init__`` of this one names itself."""
    own = inspect.signature(cls.__init__).parameters  # type: ignore[misc]
    return {name: kwargs.pop(name) for name in _FOR_ALL if name in kwargs and name not in own}
