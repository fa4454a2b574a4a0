"""steppe-safety-gymnasium against the conformance kit."""

from __future__ import annotations

from typing import ClassVar

import pytest

# With MUJOCO_GL=egl, mujoco loads Mesa's LLVM. Loading that of Triton afterwards, as tensordict does with a CUDA build
# of torch, crashes the process.
pytest.importorskip("tensordict")
pytest.importorskip("safety_gymnasium")

from steppe_testing import EnvConformance, PluginConformance

pytestmark = [pytest.mark.library, pytest.mark.matrix, pytest.mark.filterwarnings("ignore")]


class TestPlugin(PluginConformance):
    namespace = "safety"
    smoke = ("SafetyPointGoal1-v0",)


class TestNavigation(EnvConformance):
    env_id = "safety:SafetyPointGoal1-v0"


class TestVelocity(EnvConformance):
    env_id = "safety:SafetyHopperVelocity-v1"
    kwargs: ClassVar = {"frame_skip": 2}
