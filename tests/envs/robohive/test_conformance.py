"""steppe-robohive against the conformance kit, with a double of RoboHive."""

from __future__ import annotations

from typing import ClassVar

import pytest

from steppe_testing import EnvConformance, PluginConformance

pytestmark = [pytest.mark.library, pytest.mark.matrix, pytest.mark.filterwarnings("ignore")]


class TestPlugin(PluginConformance):
    namespace = "robohive"
    smoke = ("FrankaReachRandom-v0",)


class TestReach(EnvConformance):
    env_id = "robohive:FrankaReachRandom-v0"


class TestReachWithPixels(EnvConformance):
    env_id = "robohive:FrankaReachRandom-v0"
    kwargs: ClassVar = {"from_pixels": True, "from_depths": True, "cameras": ["top_cam"], "pixels_only": False}
