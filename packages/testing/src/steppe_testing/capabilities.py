"""Skip tests of capabilities that a conformance class declares as missing."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest

__all__ = ["CAPABILITY", "GATE", "require", "skip_gated"]

#: Prefix of the reason of a skip by a capability flag. The summary at the end of a run counts these skips.
CAPABILITY = "capability "
#: Prefix of the reason of a skip because another test has to pass first.
GATE = "blocked by "


def require(case: Any, flag: str, expected: bool = True) -> None:
    """Skip the running test unless a capability flag has the expected value.

    Args:
        case: the instance of the conformance class.
        flag: name of the attribute of the class.
        expected: value of the flag with which the test runs.
    """
    value = getattr(case, flag)
    if bool(value) is not expected:
        pytest.skip(f"{CAPABILITY}{type(case).__name__}.{flag}={value!r}")


def skip_gated(case: Any, test: str, problem: str) -> NoReturn:
    """Skip a test whose result means nothing while another test fails."""
    pytest.skip(f"{GATE}{type(case).__name__}.{test}: {problem.splitlines()[0]}")
