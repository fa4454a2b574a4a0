from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from steppe.versions import backends, libraries


@pytest.fixture(autouse=True)
def process_default(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run each test without a process default."""
    monkeypatch.setattr(backends, "_default", None)
    yield
    monkeypatch.undo()
    for name in [name for name in sys.modules if name.startswith("acme")]:
        del sys.modules[name]


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put a library on the path: a module that records its import, and its metadata. Again: another version."""
    monkeypatch.syspath_prepend(tmp_path)

    def install(name: str, version: str | None, *, module: str = "", dist: str | None = None) -> None:
        dist = dist or name
        (tmp_path / f"{name}.py").write_text(module)
        for old in tmp_path.glob(f"{dist}-*.dist-info"):
            for part in old.iterdir():
                part.unlink()
            old.rmdir()
        if version is not None:
            info = tmp_path / f"{dist}-{version}.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: {version}\n")
            (info / "top_level.txt").write_text(f"{name}\n")
        importlib.invalidate_caches()
        monkeypatch.setattr(libraries, "_versions", {})

    return install


@pytest.fixture
def choices(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Choose between other libraries than gymnasium and gym."""

    def choose_between(*names: str) -> None:
        monkeypatch.setattr(backends, "GYM_LIBRARIES", names)

    return choose_between
