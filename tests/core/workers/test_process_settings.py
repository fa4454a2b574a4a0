"""ProcessSettings: what an import may depend on, for another process."""

from __future__ import annotations

import os
import sys

import torch

from steppe.workers.process_settings import ProcessSettings


def test_settings_are_read_and_applied(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPPE_TEST_SETTING", "before")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    settings = ProcessSettings.now()
    with monkeypatch.context() as changed:
        changed.setenv("STEPPE_TEST_SETTING", "after")
        changed.chdir(os.sep)
        torch.set_default_dtype(torch.float64)
        settings.apply()

        assert os.environ["STEPPE_TEST_SETTING"] == "before"
        assert os.getcwd() == str(tmp_path)
        assert torch.get_default_dtype() == torch.float32


def test_a_folder_that_was_deleted_is_none(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()

    assert ProcessSettings.now().cwd is None
