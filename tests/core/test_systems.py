"""What the core asks of the operating system."""

from __future__ import annotations

import os
import sys

import pytest

from steppe.systems import render_without_display

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems always have a display")


def test_rendering_without_a_display_keeps_set_variables(monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYGLET_HEADLESS", "0")

    render_without_display()

    assert os.environ["PYGLET_HEADLESS"] == "0"
    assert os.environ["MUJOCO_GL"] == "egl"


def test_a_display_is_used(monkeypatch):
    monkeypatch.setenv("DISPLAY", ":7")
    for name in ("MUJOCO_GL", "PYGLET_HEADLESS"):
        monkeypatch.delenv(name, raising=False)

    render_without_display()

    assert not {"MUJOCO_GL", "PYGLET_HEADLESS"} & set(os.environ)
