"""Commands of steppe-testing run in this process, beside fake packages."""

from __future__ import annotations

import pytest

from tests.core.cli.conftest import acme, saved_time

__all__ = ["acme", "saved_time", "steppe_with_commands"]


@pytest.fixture
def steppe_with_commands(steppe, fake_dist):
    """Runs ``steppe ARGUMENTS`` as the fixture of all tests does, with the commands of steppe-testing."""
    commands = {name: f"steppe_testing.commands.{name}_command" for name in ("check", "collect")}
    fake_dist("steppe-testing", "0.1.0", entry_points={"steppe.commands": commands})
    return steppe
