"""Skipping what an environment says that it cannot do, so that it is counted."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest

__all__ = ["CAPABILITY", "GATE", "require", "skip_gated"]

#: How the reason of a skip by a flag begins; the summary at the end of a run counts these.
CAPABILITY = "capability "
#: How the reason of a skip begins where an earlier test has to be fixed first.
GATE = "blocked by "


def require(case: Any, flag: str, expected: bool = True) -> None:
    """Skip the running test unless a conformance class says that it has a capability.

    Args:
        case: the instance of the conformance class.
        flag: name of the attribute.
        expected: the value with which the test runs.
    """
    value = getattr(case, flag)
    if bool(value) is not expected:
        pytest.skip(f"{CAPABILITY}{type(case).__name__}.{flag}={value!r}")


def skip_gated(case: Any, test: str, problem: str) -> NoReturn:
    """Skip a test that says nothing as long as another one fails."""
    pytest.skip(f"{GATE}{type(case).__name__}.{test}: {problem.splitlines()[0]}")
