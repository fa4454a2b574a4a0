"""EnvMeta: the metaclass of environments, which adds arguments to every class and finishes the construction."""

from __future__ import annotations

import inspect
from abc import ABCMeta
from types import FunctionType
from typing import Any

from steppe.errors import SpecError

__all__ = ["EnvMeta", "check_takes_one"]

#: Taken by every class, even if its ``__init__`` neither names them nor passes further keywords on.
_FOR_ALL = frozenset({"spec_locked", "auto_reset", "auto_reset_replace", "policy", "compile"})

#: Signatures of the methods that authors write.
_SIGNATURES = {
    "_reset": "def _reset(self, tensordict, **kwargs)",
    "_step": "def _step(self, tensordict)",
    "_set_seed": "def _set_seed(self, seed)",
}


class EnvMeta(ABCMeta):
    """The metaclass of :class:`~steppe.envs.EnvBase`.

    At the end of the outermost ``__init__`` it calls ``_finish_construction``, which locks the specs: until then a
    class and its subclasses can edit them in place. Copies and pickles of an environment are not made by the metaclass;
    their specs are locked if those of the original are.

    It is an ABCMeta, so that an environment can also be an abstract class.

    Raises:
        SpecError: an environment is made whose ``_reset`` or ``_step`` has no parameter for the data. Defining the
            class raises no error, because a subclass may override the method. ``set_seed`` checks ``_set_seed``.
    """

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **kwargs: Any) -> Any:
        locked = namespace.get("batch_locked")
        if isinstance(locked, bool):
            # A class attribute would hide the property, which all checks read.
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
        """The signature of ``__init__``, for ``inspect.signature`` and ``help``."""
        _self, *others = inspect.signature(cls.__init__).parameters.values()  # type: ignore[misc]
        return inspect.Signature(others)


def check_takes_one(owner: type, name: str) -> None:
    """Raise a SpecError if a method that authors write has no parameter for its argument.

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
            f"{owner.__name__}.{name}{inspect.signature(function)} has no parameter for its argument: write "
            f"{_SIGNATURES[name]}."
        )


def _taken(cls: type, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Remove from ``kwargs`` the arguments that every class takes, unless ``__init__`` names them, and return them."""
    parameters = inspect.signature(cls.__init__).parameters  # type: ignore[misc]
    return {name: kwargs.pop(name) for name in _FOR_ALL if name in kwargs and name not in parameters}
