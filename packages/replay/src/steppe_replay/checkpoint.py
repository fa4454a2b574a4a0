"""Save and load the state of a buffer, so that a program that is killed leaves the state that was saved before."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import torch

from steppe.errors import StateError
from steppe_replay.lazy_storages import LazyMemmapStorage

__all__ = ["load", "save"]

#: The file that names the folder with the current state.
_CURRENT = "current"


def save(path: Path, state: dict[str, Any]) -> None:
    """Write a state to a folder; the state before is removed when the new one is complete."""
    path.mkdir(parents=True, exist_ok=True)
    before = [entry for entry in path.iterdir() if entry.is_dir() and entry.name.startswith("state-")]
    number = 1 + max((int(entry.name.removeprefix("state-")) for entry in before), default=0)
    folder = path / f"state-{number}"
    folder.mkdir()
    torch.save(state, folder / "state.pt")
    written = path / f"{_CURRENT}-{number}"
    written.write_text(folder.name)
    # One step: until then the file names the folder before.
    os.replace(written, path / _CURRENT)
    for entry in before:
        shutil.rmtree(entry, ignore_errors=True)


def load(path: Path, own: dict[str, Any]) -> dict[str, Any]:
    """Return the state in a folder.

    Args:
        path: the folder.
        own: the state of the buffer that loads it, for what the folder of a storage lacks.
    """
    current = path / _CURRENT
    if current.is_file():
        state: dict[str, Any] = torch.load(path / current.read_text() / "state.pt", weights_only=False)
        return state
    if (path / LazyMemmapStorage.FILE).is_file():
        return {**own, "storage": LazyMemmapStorage.rows_in(path)}
    raise StateError(f"{path} has no replay buffer: neither dumps() nor a LazyMemmapStorage(scratch_dir=) wrote there.")
