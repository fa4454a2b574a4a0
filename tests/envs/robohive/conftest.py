"""Installs the double of the library for the tests of this folder."""

from __future__ import annotations

import pytest

from steppe_testing.doubles import installed


@pytest.fixture(autouse=True, scope="session")
def library():
    with installed("robohive"):
        yield
