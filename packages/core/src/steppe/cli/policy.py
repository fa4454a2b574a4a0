"""A policy that the command line names: ``--policy module:callable``."""

from __future__ import annotations

import os
import sys
from typing import Any

from .output import UsageError, one_line


def import_policy(text: str) -> Any:
    """The policy behind ``module:callable``; the current folder is searched too.

    Raises:
        UsageError: it cannot be imported, or is not callable.
    """
    module_name, colon, attributes = text.partition(":")
    if not colon or not module_name or not attributes:
        raise UsageError(f"--policy takes module:callable, got {text!r}")
    from importlib import import_module

    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # a console script has its own folder there, `python -m` has this one
    try:
        policy: Any = import_module(module_name)
        for attribute in attributes.split("."):
            policy = getattr(policy, attribute)
    # The module is the user's: whatever it raises means that it cannot be imported.
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"the policy {text!r} cannot be imported: {type(error).__name__}: {one_line(error)}"
        ) from error
    if not callable(policy):
        raise UsageError(f"the policy {text!r} is not callable: it is of type {type(policy).__name__}")
    return policy


def checked_policy(policy: Any, env: Any, name: str) -> Any:
    """The policy as one on tensordicts, after one action that the environment accepts."""
    from steppe.envs import as_policy

    adapted = as_policy(policy, env)
    data = env.reset()
    try:
        data = adapted(data)
    except Exception as error:
        raise UsageError(f"the policy {name!r} failed: {type(error).__name__}: {one_line(error)}") from error
    for key in env.action_keys:
        spec = env.full_action_spec[key]
        action = data.get(key, None)
        if action is None:
            raise UsageError(f"the policy {name!r} gives no {key!r}")
        if not spec.is_in(action, exact=True):
            found = f"shape {tuple(action.shape)}, {action.dtype}"
            raise UsageError(
                f"the policy {name!r} gives a wrong {key!r}: expected {one_line(repr(spec))}, found {found}"
            )
    return adapted
