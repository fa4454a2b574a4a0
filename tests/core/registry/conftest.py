"""A registry whose steppe version and known names do not move with the real ones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from steppe.registry import Registry, use
from steppe.registry.known import Known

TABLE = Known(
    names={
        "env": {
            "gym": "steppe-gym",
            "vmas": "steppe-vmas",
        },
        "env class": {"Den": "steppe-den"},
        "transform": {"Resize": "steppe-vision"},
        "collector": {"Herd": "steppe-herd"},
        "function": {"howl": "steppe-wolf"},
        "logger": {"StoneLogger": "steppe-quarry"},
        "command": {"film": "steppe-film"},
    },
    alternatives={"steppe-gym": ("gymnasium", "gym")},
)

PLUGIN = """
from steppe import hookimpl
from steppe.registry import LibraryInfo, env_not_found

CALLS = []


@hookimpl
def steppe_make_env(name, kwargs):
    if name not in steppe_env_names():
        raise env_not_found("gym", name)
    CALLS.append((name, kwargs))
    return [name, kwargs]


@hookimpl
def steppe_env_names():
    return ["Pendulum-v1", "CartPole-v1", "ALE/Pong-v5", "my.module:Env-v0"]


@hookimpl
def steppe_library():
    return LibraryInfo("gymnasium", "1.4.0")


@hookimpl
def steppe_worker_setup(worker):
    CALLS.append(worker)


@hookimpl
def steppe_register(id, make, options):
    CALLS.append((id, make, options))
    return True
"""


@pytest.fixture
def registry(fake_dist, steppe_registry) -> Iterator[Registry]:
    pinned = Registry(path=[str(fake_dist.path)], steppe_version="0.1.0", table=TABLE, checks_envs=False)
    with use(pinned):
        yield pinned


@pytest.fixture
def gym(registry, fake_dist):
    """steppe-gym 0.1.0 with gymnasium 1.4.0, both fake."""
    fake_dist("gymnasium", "1.4.0")
    fake_dist(
        "steppe-gym",
        "0.1.0",
        envs={"gym": "fake_steppe_gym.plugin"},
        requires=[
            "steppe<0.2,>=0.1",
            "gym<0.27,>=0.13; extra == 'any-of'",
            "gymnasium>=0.28; extra == 'any-of'",
            "gym<0.27,>=0.13; extra == 'gym'",
            "gymnasium>=0.28; extra == 'gymnasium'",
        ],
        extras=["any-of", "gym", "gymnasium"],
        files={"fake_steppe_gym/plugin.py": PLUGIN},
    )
    return registry
