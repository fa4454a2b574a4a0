"""EnvMeta: the metaclass of environments, which adds arguments to every class and finishes the construction."""

from __future__ import annotations

import inspect
from abc import ABCMeta
from typing import Any

__all__ = ["EnvMeta"]

#: Taken by every class, even if its ``__init__`` neither names them nor passes further keywords on.
_FOR_ALL = frozenset({"spec_locked", "auto_reset", "auto_reset_replace", "policy", "compile"})


class EnvMeta(ABCMeta):
    """The metaclass of :class:`~steppe.envs.EnvBase`.

    At the end of the outermost ``__init__`` it calls ``_finish_construction``, which locks the specs: until then a
    class and its subclasses can edit them in place. Copies and pickles of an environment are not made by the metaclass;
    their specs are locked if the original's are.

    It is an ABCMeta, so that an environment can also be an abstract class.
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
        env = super().__call__(*args, **kwargs)
        return env._finish_construction(**options) if isinstance(type(env), EnvMeta) else env

    @property
    def __signature__(cls) -> inspect.Signature:
        """The signature of ``__init__``, for ``inspect.signature`` and ``help``."""
        _self, *others = inspect.signature(cls.__init__).parameters.values()  # type: ignore[misc]
        return inspect.Signature(others)


def _taken(cls: type, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Remove from ``kwargs`` the arguments that every class takes, unless ``__init__`` names them, and return them."""
    parameters = inspect.signature(cls.__init__).parameters  # type: ignore[misc]
    return {name: kwargs.pop(name) for name in _FOR_ALL if name in kwargs and name not in parameters}
