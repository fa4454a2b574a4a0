"""Commands run in this process, on fake packages."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from packaging.version import Version

from steppe.cli import main

PLUGIN = """
from steppe import hookimpl
from steppe.registry import LibraryInfo


@hookimpl
def steppe_make_env(name):
    return name


@hookimpl
def steppe_env_names():
    return ["HalfCheetah-v5", "HalfCheetah-v4", "Pendulum-v1"]


@hookimpl
def steppe_library():
    return LibraryInfo("acme-engine", "3.0")
"""


class Result(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture
def steppe(capsys, steppe_registry):
    """Runs ``steppe ARGUMENTS`` and returns its status, stdout and stderr."""

    def run(*arguments: str) -> Result:
        return Result(main(arguments), *capsys.readouterr())

    return run


@pytest.fixture
def saved_time():
    """The name of the time dimension in a saved TensorDict: tensordict keeps names since 0.15."""
    tensordict = pytest.importorskip("tensordict")
    return "time" if Version(tensordict.__version__) >= Version("0.15") else None


@pytest.fixture
def acme(fake_dist):
    fake_dist("acme-engine", "3.0")
    fake_dist(
        "acme-sim",
        "2.1",
        envs={"acme": "acme_sim.plugin"},
        requires=["acme-engine<4,>=3", "steppe"],
        files={"acme_sim/plugin.py": PLUGIN},
    )
