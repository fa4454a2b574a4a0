"""steppe-isaac against the conformance kit, with doubles of Isaac Gym and Isaac Lab."""

from __future__ import annotations

from typing import ClassVar

import pytest
import torch

from steppe_testing import EnvConformance, PluginConformance

pytestmark = [pytest.mark.library, pytest.mark.matrix, pytest.mark.filterwarnings("ignore")]

_SMALL: dict = {"num_envs": 3, "device": "cpu"}


class TestIsaacGymPlugin(PluginConformance):
    namespace = "isaacgym"
    smoke = ("Cartpole", "Ant")
    smoke_kwargs: ClassVar = _SMALL
    wraps_library = False  # no package index has it: the plugin checks it, see test_isaac_gym


class TestIsaacLabPlugin(PluginConformance):
    namespace = "isaaclab"
    smoke = ("Isaac-Cartpole-v0", "Isaac-Cartpole-Direct-v0")
    smoke_kwargs: ClassVar = _SMALL
    wraps_library = False


class TestIsaacGym(EnvConformance):
    env_id = "isaacgym:Cartpole"
    kwargs: ClassVar = _SMALL
    supports_partial_step = False


class TestManagers(EnvConformance):
    env_id = "isaaclab:Isaac-Cartpole-v0"
    kwargs: ClassVar = {**_SMALL, "final_observations": True}
    supports_partial_step = False
    supports_set_state = True

    def test_a_reset_can_begin_at_a_given_state(self, env) -> None:
        """The state is an argument: Isaac Lab keeps it outside of the observations."""
        env.rollout(3)
        state = env.get_state()
        env.rollout(3)

        restored = env.reset_to_state(state)

        assert torch.equal(restored["critic", "position"], state["articulation"]["robot"]["joint_position"])


class TestDirect(EnvConformance):
    env_id = "isaaclab:Isaac-Cartpole-Direct-v0"
    kwargs: ClassVar = {**_SMALL, "missing_obs_value": -1.0}
    supports_partial_step = False
