"""Module: an ``nn.Module`` whose properties raise what they raise."""

from __future__ import annotations

from typing import Any

from torch import nn

__all__ = ["Module"]


class Module(nn.Module):
    """An ``nn.Module`` in which an AttributeError inside a property arrives as it was raised.

    Where a property raises an AttributeError, Python asks ``__getattr__`` next, and the one of ``nn.Module`` says that
    there is no such attribute: a typo deep inside seems to be a missing property, and code that looks elsewhere for
    missing attributes silently finds something else. A subclass that looks elsewhere writes :meth:`find_elsewhere`.
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            pass
        for cls in type(self).__mro__:
            if name in vars(cls):
                # What it raised is lost by now, so it is read again.
                return vars(cls)[name].__get__(self, type(self))
        return self.find_elsewhere(name)

    def find_elsewhere(self, name: str) -> Any:
        """Return an attribute that neither the object nor its class has: for objects that stand for others.

        Raises:
            AttributeError: there is none, as always here: a subclass calls this method where it finds nothing.
        """
        return super().__getattr__(name)
