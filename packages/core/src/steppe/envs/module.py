"""Module: an ``nn.Module`` that does not hide an AttributeError raised in a property."""

from __future__ import annotations

from typing import Any

from torch import nn

__all__ = ["Module"]


class Module(nn.Module):
    """An ``nn.Module`` in which an AttributeError raised in a property reaches the caller.

    If a property raises an AttributeError, Python calls ``__getattr__`` next, and the one of ``nn.Module`` raises
    another error, about the property: a typo inside the property seems to be a missing property. Worse, a class that
    looks up missing attributes elsewhere returns a wrong one. Such a class overrides :meth:`find_elsewhere`.
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            pass
        for cls in type(self).__mro__:
            if name in vars(cls):
                # The first error is lost by now, so the property is read again to raise it.
                return vars(cls)[name].__get__(self, type(self))
        return self.find_elsewhere(name)

    def find_elsewhere(self, name: str) -> Any:
        """Return an attribute that neither the object nor its class has, for wrappers of other objects.

        Raises:
            AttributeError: the attribute does not exist, always in this class. A subclass that does not find it calls
                this method.
        """
        return super().__getattr__(name)

    def set_elsewhere(self, name: str, value: object) -> bool:
        """Set an attribute where :meth:`find_elsewhere` finds it, which is nowhere in this class.

        Returns:
            Whether it was set there.
        """
        return False
