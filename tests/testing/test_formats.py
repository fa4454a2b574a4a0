"""``steppe collect --format``: the files, the errors before the first step, and the data after a failure."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import PersistentTensorDict, TensorDict

from steppe.cli import UsageError, main
from steppe.errors import ClassNotFound
from steppe_testing.commands.formats import make_target


def arguments(out: Path, **changes: Any) -> argparse.Namespace:
    return argparse.Namespace(**{"id": "gym:CartPole-v1", "out": out, "overwrite": False, "format": "hdf5", **changes})


def test_an_hdf5_file_has_all_transitions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("h5py")
    command = ["collect", "gym:CartPole-v1", "--frames", "64", "--num-envs", "2", "--num-processes", "1", "--out"]
    file = tmp_path / "new" / "data.h5"
    assert main([*command, str(file), "--format", "hdf5"]) == 0
    assert main([*command, str(tmp_path / "folder")]) == 0

    data = PersistentTensorDict(filename=str(file), batch_size=[2, 32], mode="r")
    same = TensorDict.load_memmap(tmp_path / "folder")
    assert set(data.keys(True, True)) == set(same.keys(True, True))
    assert all(torch.equal(data[key], same[key]) for key in same.keys(True, True))
    assert [path.name for path in file.parent.iterdir()] == ["data.h5"]
    assert str(file) in capsys.readouterr().out
    assert main([*command, str(file), "--format", "hdf5"]) == 2
    assert "exists; --overwrite replaces it" in capsys.readouterr().err
    assert main([*command, str(file), "--format", "hdf5", "--overwrite"]) == 0


def test_a_missing_library_is_reported_before_collecting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steppe_testing.commands.formats.find_spec", lambda name: None)
    with pytest.raises(UsageError, match="--format hdf5 needs h5py: pip install h5py"):
        make_target(arguments(tmp_path / "a.h5"))


def test_a_missing_plugin_is_reported_before_collecting(tmp_path: Path, steppe_registry: Any) -> None:
    with pytest.raises(ClassNotFound, match=r"pip install 'steppe\[minari\]'"):
        make_target(arguments(Path("some/data-v0"), format="minari"))


def test_frames_that_cannot_be_converted_are_kept(tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    target = make_target(arguments(tmp_path / "data.h5"))
    folder = target.begin()
    data = TensorDict({"a": torch.arange(6).view(2, 3)}, [2, 3]).memmap(folder)
    (tmp_path / "data.h5").mkdir()  # made by another program meanwhile
    with pytest.raises(UsageError, match=f"they are kept in '{folder}'"):
        target.write(data)
    target.clean()
    assert (TensorDict.load_memmap(folder) == data).all()
