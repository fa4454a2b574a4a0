"""steppe-dm-control and a few of its environments against the conformance kit."""

from __future__ import annotations

from typing import ClassVar

import pytest

pytest.importorskip("dm_control")

from steppe_testing import EnvConformance, PluginConformance

# Skipped are set_state (the state of the physics is no entry of data) and pixels where they are not asked for.
pytestmark = [pytest.mark.matrix, pytest.mark.timeout(300)]


class TestPlugin(PluginConformance):
    namespace = "dm"
    smoke = ("cheetah-run", "cartpole-swingup")


class TestCheetahRun(EnvConformance):
    env_id = "dm:cheetah-run"
    kwargs: ClassVar = {"time_limit": 0.2}  # 20 steps


class TestPixels(EnvConformance):
    env_id = "dm:cartpole/balance"
    kwargs: ClassVar = {"time_limit": 0.2, "render_kwargs": {"height": 24, "width": 32}}
    supports_pixels = True


class TestFrameSkip(EnvConformance):
    env_id = "dm:hopper-hop"  # observes a number without dimensions
    kwargs: ClassVar = {"frame_skip": 4, "time_limit": 0.5}


@pytest.mark.slow
class TestBallInCup(EnvConformance):
    env_id = "dm:ball_in_cup-catch"
    kwargs: ClassVar = {"time_limit": 0.4}


@pytest.mark.slow
class TestManipulation(EnvConformance):
    env_id = "dm:manipulation/reach_site_features"
    max_steps = 300  # ten seconds; arms rarely reach the site by chance before
