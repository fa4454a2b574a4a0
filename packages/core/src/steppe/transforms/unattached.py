"""Errors of transforms that need an environment and have none."""

from __future__ import annotations

from steppe.errors import NotSupported, StateError

__all__ = ["no_environment", "not_for_data"]


def no_environment(transform: object, does: str) -> StateError:
    """Return the error for a transform that belongs to no environment.

    Args:
        transform: the transform.
        does: verb of the error, which needs an environment: ``"steps its environment"``.
    """
    name = type(transform).__name__
    return StateError(f"{name} {does}, and belongs to none. Append it to one: env.append_transform({name}(...)).")


def not_for_data(transform: object, does: str) -> NotSupported:
    """Return the error for a transform that is called on data that comes from no environment.

    Args:
        transform: the transform.
        does: verb of the error: ``"steps an environment"``.
    """
    return NotSupported(
        f"{type(transform).__name__} {does} and cannot be applied to data that is there already. Append it to the "
        "environment that collects the data."
    )
