"""Installs the double of SMACv2 for the tests of this folder."""

from __future__ import annotations

import pytest

from steppe_testing.doubles import installed


@pytest.fixture(autouse=True, scope="session")
def smacv2():
    with installed("smacv2"):
        yield
