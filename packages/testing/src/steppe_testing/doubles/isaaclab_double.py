"""Double of Isaac Lab 2: its two kinds of environments with one agent.

It is built from the published sources of Isaac Lab (``envs/manager_based_env.py``, ``envs/manager_based_rl_env.py``,
``envs/direct_rl_env.py``, ``scene/interactive_scene.py``, ``sensors``, ``app/app_launcher.py``,
``isaaclab_tasks/utils/parse_cfg.py``). The physics is a point on a line in torch, on the CPU.

Kept from the library: nothing of it can be imported before ``AppLauncher`` has run; ended rows are reset in their last
step, and observations are computed afterwards, so the last one is lost; flags and observations are buffers, which the
next step overwrites; only environments of managers take ``env_ids`` at a reset, and continue from a state of the
scene, whose rows must be those that are reset; observations are dicts of groups; the action space has no bounds; all
draws come from torch's global generator; one process has one simulation, unless the environment variable
``STEPPE_LENIENT_DOUBLES`` is set.
"""

from __future__ import annotations

import os
import weakref
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import torch

from . import Double

__all__ = [
    "DOUBLE",
    "AppLauncher",
    "DirectMARLEnv",
    "DirectRLEnv",
    "ManagerBasedEnv",
    "ManagerBasedRLEnv",
    "PinholeCameraCfg",
    "TiledCameraCfg",
]

_simulation: weakref.ref[Any] | None = None
_LENGTH = 25
_INF = float("inf")


class AppLauncher:
    """Start the application, once in a process."""

    running: list[Any] = []

    def __init__(self, launcher_args: Any = None, **kwargs: Any) -> None:
        if self.running:
            raise RuntimeError("Isaac Sim is already running in this process.")
        self.settings = {**(launcher_args or {}), **kwargs}
        self.app = SimpleNamespace(is_running=lambda: True, close=self.running.clear)
        self.running.append(self)


def require_app() -> None:
    """Raise as the library does if Isaac Sim does not run."""
    if not AppLauncher.running:
        raise ModuleNotFoundError("No module named 'omni.kit'", name="omni.kit")


class PinholeCameraCfg(SimpleNamespace):
    """The lens of a camera."""


class TiledCameraCfg(SimpleNamespace):
    """A camera in each environment, an attribute of the configuration of a scene."""

    class OffsetCfg(SimpleNamespace):
        """Position and orientation of a camera."""


class _Env(gymnasium.Env):  # type: ignore[misc]
    """What both kinds share: a point on a line, drawn to the origin and pushed by the action."""

    metadata = {"render_modes": [None, "human", "rgb_array"]}

    def __init__(self, cfg: Any, render_mode: str | None = None, **kwargs: Any) -> None:
        global _simulation
        if _simulation is not None and _simulation() is not None and not os.environ.get("STEPPE_LENIENT_DOUBLES"):
            raise RuntimeError("Simulation context already exists. Cannot create a new one.")
        _simulation = weakref.ref(self)
        self.cfg, self.render_mode = cfg, render_mode
        self.num_envs, self.device = cfg.scene.num_envs, cfg.sim.device
        n, device = self.num_envs, self.device
        self.max_episode_length = getattr(cfg, "max_episode_length", _LENGTH)
        self.point = torch.zeros((n, 2), device=device)
        self.command = torch.zeros((n, 1), device=device)
        self.episode_length_buf = torch.zeros(n, device=device, dtype=torch.long)
        self.reset_terminated = torch.zeros(n, device=device, dtype=torch.bool)
        self.reset_time_outs = torch.zeros(n, device=device, dtype=torch.bool)
        self.reward_buf = torch.zeros(n, device=device)
        self.extras: dict[str, Any] = {}
        self.obs_buf = self._buffers()
        self.writes = 0
        self.scene = SimpleNamespace(
            num_envs=n,
            sensors=self._sensors(),
            write_data_to_sim=self._write,
            get_state=self._scene_state,
            reset_to=self._set_scene,
        )
        self.sim = SimpleNamespace(forward=self._forward, device=device)
        self._is_closed = False
        box = gymnasium.spaces.Box(-_INF, _INF, (3,), np.float32)
        self.single_observation_space = gymnasium.spaces.Dict(policy=box)
        self.single_action_space = gymnasium.spaces.Box(-_INF, _INF, (1,), np.float32)
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, n)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, n)

    def _buffers(self) -> dict[str, Any]:
        return {"policy": torch.zeros((self.num_envs, 3), device=self.device)}

    def _sensors(self) -> dict[str, Any]:
        cameras = {name: cfg for name, cfg in vars(self.cfg.scene).items() if isinstance(cfg, TiledCameraCfg)}
        cameras = cameras or {"tiled_camera": TiledCameraCfg(height=8, width=12, data_types=["rgb"])}
        sensors = {}
        for name, cfg in cameras.items():
            image = torch.zeros((self.num_envs, cfg.height, cfg.width, 4), device=self.device, dtype=torch.uint8)
            sensors[name] = SimpleNamespace(data=SimpleNamespace(output={cfg.data_types[0]: image}), cfg=cfg)
        return sensors

    def _scene_state(self, is_relative: bool = False) -> dict[str, Any]:
        body = {"joint_position": self.point[:, :1].clone(), "joint_velocity": self.point[:, 1:].clone()}
        return {"articulation": {"robot": body}}

    def _set_scene(self, state: Any, env_ids: Any = None, is_relative: bool = False) -> None:
        body = state["articulation"]["robot"]
        self.point[env_ids] = torch.cat([body["joint_position"], body["joint_velocity"]], -1)
        self._write()

    def _write(self) -> None:
        self.writes += 1

    def _forward(self) -> None:
        # Observations after a reset without it would be of the state before.
        self.writes = 0

    def _fill(self) -> dict[str, Any]:
        rows = torch.cat([self.point, self.command], -1)
        self.obs_buf["policy"].copy_(rows)
        for sensor in self.scene.sensors.values():
            for image in sensor.data.output.values():
                image.copy_((self.point[:, :1, None, None].abs() * 40).clamp(0, 255).to(torch.uint8).expand_as(image))
        return self.obs_buf

    def _reset_idx(self, env_ids: torch.Tensor) -> None:
        if len(env_ids) == 0:
            return
        self.point[env_ids] = torch.rand((len(env_ids), 2), device=self.device) - 0.5
        self.command[env_ids] = torch.rand((len(env_ids), 1), device=self.device)
        self.episode_length_buf[env_ids] = 0
        self.extras["log"] = {"Episode_Reward/alive": torch.tensor(float(len(env_ids)))}

    def _advance(self, action: torch.Tensor) -> None:
        action = action.to(self.device)
        speed = self.point[:, 1] + 0.3 * action[:, 0].clamp(-5, 5) - 0.1 * self.point[:, 0]
        self.point = torch.stack([self.point[:, 0] + 0.3 * speed, speed], -1)
        self.episode_length_buf += 1
        self.reset_terminated[:] = self.point[:, 0].abs() > 2.0
        self.reset_time_outs[:] = self.episode_length_buf >= self.max_episode_length
        self.reward_buf[:] = 1.0 - (self.point[:, 0] - self.command[:, 0]).abs()

    def step(self, action: torch.Tensor) -> Any:
        """Simulate, reset ended rows, then observe."""
        self._advance(action)
        ended = (self.reset_terminated | self.reset_time_outs).nonzero(as_tuple=False).squeeze(-1)
        if len(ended) > 0:
            self._reset_idx(ended)
        return self._observe(), self.reward_buf, self.reset_terminated, self.reset_time_outs, self.extras

    def _observe(self) -> Any:
        raise NotImplementedError

    @staticmethod
    def seed(seed: int = -1) -> int:
        """Seed the global generators."""
        torch.manual_seed(seed)
        return seed

    def render(self, recompute: bool = False) -> Any:
        """Return an image, with ``render_mode="rgb_array"``."""
        return np.zeros((24, 32, 3), np.uint8) if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        """End the simulation; a second call does nothing."""
        global _simulation
        if not self._is_closed:
            self._is_closed = True
            _simulation = None


class ManagerBasedEnv(_Env):
    """Environments made of managers; this base class has no rewards."""

    def __init__(self, cfg: Any, render_mode: str | None = None, **kwargs: Any) -> None:
        super().__init__(cfg, render_mode, **kwargs)
        self.observation_manager = SimpleNamespace(compute=self._compute)

    def _compute(self, update_history: bool = False) -> dict[str, Any]:
        return self._fill()

    def _observe(self) -> dict[str, Any]:
        return self._compute(update_history=True)

    def reset(self, seed: int | None = None, env_ids: Any = None, options: Any = None) -> Any:
        """Reset some rows, or all, and observe all."""
        if env_ids is None:
            env_ids = torch.arange(self.num_envs, dtype=torch.int64, device=self.device)
        if seed is not None:
            self.seed(seed)
        self._reset_idx(env_ids)
        self.scene.write_data_to_sim()
        self.sim.forward()
        return self._compute(update_history=True), self.extras

    def reset_to(self, state: Any, env_ids: Any = None, seed: int | None = None, is_relative: bool = False) -> Any:
        """Reset some rows, set the scene of these rows to a state, and observe all."""
        if env_ids is None:
            env_ids = torch.arange(self.num_envs, dtype=torch.int64, device=self.device)
        if seed is not None:
            self.seed(seed)
        self._reset_idx(env_ids)
        self.scene.reset_to(state, env_ids, is_relative=is_relative)
        self.sim.forward()
        return self._compute(update_history=True), self.extras


class ManagerBasedRLEnv(ManagerBasedEnv):
    """Environments made of managers, with a group whose terms are not concatenated."""

    def _buffers(self) -> dict[str, Any]:
        n = self.num_envs
        critic = {"position": torch.zeros((n, 1)), "far": torch.zeros((n, 1), dtype=torch.bool)}
        return {**super()._buffers(), "critic": critic}

    def _fill(self) -> dict[str, Any]:
        super()._fill()
        self.obs_buf["critic"]["position"].copy_(self.point[:, :1])
        self.obs_buf["critic"]["far"].copy_(self.point[:, :1].abs() > 1.0)
        return self.obs_buf


class DirectRLEnv(_Env):
    """Environments written as one class, whose ``reset`` takes all rows."""

    def _get_observations(self) -> dict[str, Any]:
        if self.writes:
            raise RuntimeError("The state was changed and not simulated: call sim.forward() first.")
        return self._fill()

    def _observe(self) -> dict[str, Any]:
        return self._get_observations()

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        """Reset all rows."""
        if seed is not None:
            self.seed(seed)
        self._reset_idx(torch.arange(self.num_envs, dtype=torch.int64, device=self.device))
        self.scene.write_data_to_sim()
        self.sim.forward()
        return self._get_observations(), self.extras


class DirectMARLEnv(gymnasium.Env):  # type: ignore[misc]
    """Environments of several agents, which have spaces by agent."""

    def __init__(self, cfg: Any = None, **kwargs: Any) -> None:
        self.num_envs, self.device = 2, "cpu"
        self.observation_spaces: dict[str, Any] = {}
        self.action_spaces: dict[str, Any] = {}


_TASKS = {
    "Isaac-Cartpole-v0": ManagerBasedRLEnv,
    "Isaac-Cartpole-Direct-v0": DirectRLEnv,
}


def register() -> None:
    """Register the tasks with gymnasium, as the import of ``isaaclab_tasks`` does."""
    require_app()
    for name, kind in _TASKS.items():
        if name not in gymnasium.registry:
            gymnasium.register(id=name, entry_point=kind, disable_env_checker=True)


def parse_env_cfg(task_name: str, device: str = "cuda:0", num_envs: int | None = None, use_fabric: Any = None) -> Any:
    """Return the registered configuration of a task, with another device and number of environments."""
    if not isinstance(task_name, str) or task_name not in _TASKS:
        raise ValueError(f"Could not find configuration for the environment: {task_name!r}.")
    n = 4096 if num_envs is None else num_envs
    return SimpleNamespace(scene=SimpleNamespace(num_envs=n), sim=SimpleNamespace(device=device))


_CLASSES = "DirectMARLEnv, DirectRLEnv, ManagerBasedEnv, ManagerBasedRLEnv"

DOUBLE = Double(
    dists={"isaaclab": "2.3.0", "isaaclab_tasks": "0.11.6"},
    files={
        "isaaclab/__init__.py": "",
        "isaaclab/app.py": f"from {__name__} import AppLauncher\n",
        "isaaclab/sensors.py": f"from {__name__} import TiledCameraCfg, require_app\nrequire_app()\n",
        "isaaclab/sim.py": f"from {__name__} import PinholeCameraCfg, require_app\nrequire_app()\n",
        "isaaclab/envs.py": f"from {__name__} import {_CLASSES}, require_app\nrequire_app()\n",
        "isaaclab_tasks/__init__.py": f"from {__name__} import register\nregister()\n",
        "isaaclab_tasks/utils.py": f"from {__name__} import parse_env_cfg\n",
    },
)
