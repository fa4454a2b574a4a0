"""steppe-habitat against the conformance kit, with a double of Habitat."""

from __future__ import annotations

from typing import ClassVar

import pytest

from steppe_testing import EnvConformance, PluginConformance

pytestmark = [pytest.mark.library, pytest.mark.matrix, pytest.mark.filterwarnings("ignore")]


class TestPlugin(PluginConformance):
    namespace = "habitat"
    smoke = ("HabitatPick-v0",)


class TestPick(EnvConformance):
    env_id = "habitat:HabitatPick-v0"


class TestPickWithPixels(EnvConformance):
    env_id = "habitat:HabitatRenderPick-v0"
    kwargs: ClassVar = {"from_pixels": True}
    supports_pixels = True
