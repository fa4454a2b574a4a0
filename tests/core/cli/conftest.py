"""Commands run in this process, on fake packages."""

from __future__ import annotations

import pytest
from packaging.version import Version

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
