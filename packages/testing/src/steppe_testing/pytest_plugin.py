"""The fixtures that every plugin's tests can use. Light at import: it is loaded into each run of pytest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from steppe.registry import Registry

    from .fake_dists import FakeDists


@pytest.fixture
def fake_dist(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDists]:
    """Writes fake installed packages: ``fake_dist("acme-sim", "2.1", envs={"acme": "acme_sim.plugin"})``."""
    from .fake_dists import FakeDists

    folder: Path = tmp_path_factory.mktemp("site-packages")
    monkeypatch.syspath_prepend(str(folder))
    dists = FakeDists(folder)
    yield dists
    dists.forget()


@pytest.fixture
def steppe_registry(fake_dist: FakeDists, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """A registry that sees only what `fake_dist` writes, in the place of the process's own."""
    from steppe.registry import Registry, use

    for variable in ("STEPPE_DISABLE_PLUGINS", "STEPPE_PLUGINS", "STEPPE_TRACE_PLUGINS"):
        monkeypatch.delenv(variable, raising=False)
    with use(Registry(path=[str(fake_dist.path)])) as registry:
        yield registry
