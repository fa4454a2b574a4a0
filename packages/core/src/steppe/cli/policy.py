"""Policies for the command line: ``--policy module:callable``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from .output import UsageError, one_line

Act = Callable[..., Any]
"""A policy, as `steppe.envs.as_policy` accepts it."""


def import_policy(text: str) -> Act:
    """Import the policy ``module:callable``, from the current folder too.

    Raises:
        UsageError: it cannot be imported, or is not callable.
    """
    module_name, colon, attributes = text.partition(":")
    if not colon or not module_name or not attributes:
        raise UsageError(f"--policy takes module:callable, got {text!r}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # `python -m` adds it, a console script does not
    try:
        policy: object = import_module(module_name)
        for attribute in attributes.split("."):
            policy = getattr(policy, attribute)
    # The user's module may raise any exception.
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"the policy {text!r} cannot be imported: {type(error).__name__}: {one_line(error)}"
        ) from error
    if not callable(policy):
        raise UsageError(f"the policy {text!r} is not callable: it is of type {type(policy).__name__}")
    return policy
