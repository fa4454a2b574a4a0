"""Warnings about arguments of other libraries that have no effect here, and errors about unknown arguments.

An argument without an effect on results (``pin_memory``, ``use_register``) is accepted and ignored, and its first use
warns. An argument that would change results is never ignored.
"""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Iterable

from . import errors

__all__ = ["ignored_argument", "unknown_argument"]

# Arguments that an error lists.
_FEW = 12

# (owner, name) of the warnings that were given in this process.
_warned: set[tuple[str, str]] = set()


def ignored_argument(owner: str, name: str, instead: str, *, kind: str = "argument") -> None:
    """Warn that an argument or method has no effect, once per process for each owner and name.

    The warning points at the first caller outside of steppe and its plugins.

    Args:
        owner: class or function with the argument, such as ``"OneHot"``.
        name: the argument.
        instead: the behaviour instead, a clause without a full stop: ``"rows are always in shared memory"``.
        kind: ``"argument"`` or ``"method"``.
    """
    if (owner, name) in _warned:
        return
    _warned.add((owner, name))
    warnings.warn(
        f"{owner}: the {kind} {name} has no effect: {instead}.", errors.IgnoredArgumentWarning, stacklevel=_outside()
    )


def _outside() -> int:
    """Return the stacklevel, seen from the caller of this function, of the first frame outside of steppe."""
    frame = sys._getframe(1)
    level = 1
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
        level += 1
    return level


def _is_ours(module: str) -> bool:
    package = module.partition(".")[0]
    # A frame of `abc` is in between if a metaclass makes the object.
    return package in ("steppe", "abc") or package.startswith("steppe_")


def unknown_argument(owner: str, name: str, known: Iterable[str]) -> TypeError:
    """Return the error for an unknown argument, with the most similar known one.

    Args:
        owner: class or function that was called.
        name: the unknown argument.
        known: names of its arguments.

    Returns:
        A TypeError, as Python raises for an unknown argument, for the caller to raise.
    """
    names = list(known)
    near = difflib.get_close_matches(name, names, 1) or [known for known in names if name in known.split("_")]
    few = f"it takes {', '.join(names)}." if len(names) <= _FEW else f"help({owner}) lists its arguments."
    hint = f"did you mean {near[0]!r}?" if near else few
    return TypeError(f"{owner} has no argument {name!r}: {hint}")
