"""Which of the public methods that step an environment a subclass or an instance overrides."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["ROOT_METHODS", "STEP_METHODS", "first_overridden", "overridden"]

#: Methods that decide what the root of the next step is, which otherwise is ``next``, or the data of a reset.
ROOT_METHODS = frozenset({"step_and_maybe_reset", "maybe_reset", "any_done", "step_mdp"})

#: The public methods that rollouts, batches and collectors call; a row writer does their work without calling them.
STEP_METHODS = frozenset({"reset", "step", *ROOT_METHODS})

#: A class that defines one of these says how its environments write rows, and stands behind its own methods.
_WRITER_METHODS = ("make_row_writer", "no_rows_reason")


def overridden(env: object, names: Iterable[str] = STEP_METHODS, owner: type | None = None) -> frozenset[str]:
    """Return which methods a subclass of ``owner`` overrides, or this instance.

    Args:
        env: the environment.
        names: the methods to look at.
        owner: by default the class that says how the environment writes rows.
    """
    cls, own = type(env), vars(env)
    if owner is None:
        owner = next(each for each in cls.__mro__ if any(name in vars(each) for name in _WRITER_METHODS))
    return frozenset(
        name for name in names if name in own or getattr(cls, name, None) is not getattr(owner, name, None)
    )


def first_overridden(env: object, names: Iterable[str], owner: type | None = None) -> str | None:
    """Return why an environment is not stepped on rows, if one of these methods is overridden; otherwise None."""
    name = min(overridden(env, names, owner), default=None)
    return None if name is None else f"{name} is overridden."
