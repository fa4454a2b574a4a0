"""Installs the doubles of Isaac Gym and Isaac Lab for the tests of this folder."""

from __future__ import annotations

import os

import pytest

from steppe_testing.doubles import installed


@pytest.fixture(autouse=True, scope="session")
def isaac():
    """Install both libraries, with several simulations in a process, and torch imported before them."""
    os.environ["STEPPE_LENIENT_DOUBLES"] = "1"
    with installed("isaacgym"), installed("isaaclab"):
        yield
    del os.environ["STEPPE_LENIENT_DOUBLES"]
