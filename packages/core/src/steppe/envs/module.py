"""Module: an ``nn.Module`` whose properties raise what they raise."""

from __future__ import annotations

from typing import Any

from torch import nn

__all__ = ["Module", "has_class_attribute"]


class Module(nn.Module):
    """An ``nn.Module`` in which an AttributeError inside a property arrives as it was raised.

    Where a property raises an AttributeError, Python asks ``__getattr__`` next, and the one of ``nn.Module`` says that
    there is no such attribute: a typo deep inside seems to be a missing property, and code that looks elsewhere for
    missing attributes silently finds something else. A subclass that does so asks :func:`has_class_attribute` first.
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if not has_class_attribute(self, name):
                raise
        # What it raised is lost by now, so it is read again.
        own = next(vars(cls)[name] for cls in type(self).__mro__ if name in vars(cls))
        return own.__get__(self, type(self))


def has_class_attribute(module: nn.Module, name: str) -> bool:
    """Tell whether the class of ``module`` has an attribute ``name``, which then is not to be looked for elsewhere."""
    return any(name in vars(cls) for cls in type(module).__mro__)
