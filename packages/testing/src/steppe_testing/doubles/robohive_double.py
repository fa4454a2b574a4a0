"""Double of RoboHive 0.7: an arm that reaches for a point, without MuJoCo and its models.

It is built from the sources of RoboHive 0.7 (``envs/env_base.py``, ``envs/arms/reach_base_v0.py``,
``robot/robot.py``, ``utils/import_utils.py``). The arm is two angles in numpy.

Kept from the library: ``reset`` takes a seed and ignores it, ``seed`` seeds ``np_random``; ``obs_dict`` has more
entries than ``obs_keys``, numbers without a dimension among them, and its arrays are written again in the next step;
infos hold dicts, arrays and None; images come from ``get_exteroception`` alone, ``[H, W, 3]``, and depths as
``[1, H, W]``; the import fails if the models are missing.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np

from . import Double

__all__ = ["DOUBLE", "ReachEnv", "register", "robohive_env_suite"]

_CAMERAS = ("left_cam", "top_cam")
robohive_env_suite = {"FrankaReachFixed-v0", "FrankaReachRandom-v0"}


class ReachEnv(gymnasium.Env):  # type: ignore[misc]
    """Reach for a point.

    Args:
        visual_keys: keys of images, ``"rgb:camera:HxW:encoder"``, and of depths.
        obs_keys: the entries of the observation.
        device_id: device on which images are rendered.
        seed: the first seed.
        fixed: the point is always the same.
    """

    def __init__(
        self,
        visual_keys: list[str] | None = None,
        obs_keys: list[str] | None = None,
        device_id: int = 0,
        seed: int | None = None,
        fixed: bool = False,
        **kwargs: Any,
    ) -> None:
        self.visual_keys, self.device_id, self.fixed = visual_keys, device_id, fixed
        self.obs_keys = obs_keys or ["qp", "qv", "reach_err"]
        cameras = [SimpleNamespace(name=name) for name in _CAMERAS]
        model = SimpleNamespace(ncam=len(cameras), camera=cameras.__getitem__)
        self.sim = SimpleNamespace(model=model, data=SimpleNamespace(time=0.0))
        self.seed(seed)
        self.qp, self.qv, self.target = np.zeros(2), np.zeros(2), np.zeros(2)
        self.obs_dict: dict[str, Any] = {"reach_err": np.zeros(2)}
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.observation_space = gymnasium.spaces.Box(-10.0, 10.0, (6,), np.float32)
        self.forward()

    def seed(self, seed: int | None = None) -> list[Any]:
        """Seed the generator."""
        self.np_random, used = gymnasium.utils.seeding.np_random(seed)
        return [used]

    def reset(self, reset_qpos: Any = None, reset_qvel: Any = None, seed: int | None = None, **kwargs: Any) -> Any:
        """Begin an episode; ``seed`` is ignored."""
        self.sim.data.time = 0.0
        self.qp[:] = 0.0 if reset_qpos is None else reset_qpos
        self.qv[:] = 0.0
        self.target[:] = [0.4, -0.3] if self.fixed else self.np_random.uniform(-1, 1, 2)
        return self.get_obs(), {}

    def get_obs(self) -> np.ndarray:
        """Compute ``obs_dict``, and return the observation as one vector."""
        error = self.obs_dict["reach_err"]
        error[:] = self.target - self.qp
        self.obs_dict = {"time": np.array(self.sim.data.time), "qp": self.qp, "qv": self.qv, "reach_err": error}
        return np.concatenate([np.ravel(self.obs_dict[key]) for key in self.obs_keys])

    def step(self, a: Any, **kwargs: Any) -> Any:
        """Step the arm."""
        self.qv[:] = np.clip(a, -1, 1)
        self.qp += 0.1 * self.qv
        self.sim.data.time += 0.1
        return self.forward()

    def forward(self) -> Any:
        """Compute observation, reward and info."""
        obs = self.get_obs()
        distance = float(np.linalg.norm(self.target - self.qp))
        far = distance > 2.2
        rewards = {"dense": -distance, "sparse": -1.0 * (distance > 0.1), "solved": distance < 0.1, "done": far}
        info = {
            "time": self.obs_dict["time"][()],
            "rwd_dense": rewards["dense"],
            "rwd_sparse": rewards["sparse"],
            "solved": rewards["solved"],
            "done": far,
            "obs_dict": self.obs_dict,
            "visual_dict": {},
            "proprio_dict": None,
            "rwd_dict": rewards,
            "state": {"time": self.sim.data.time, "qpos": self.qp, "qvel": self.qv, "act": None},
        }
        return obs, rewards["dense"], bool(far), False, info

    def get_exteroception(self, **kwargs: Any) -> dict[str, Any] | None:
        """Render the visual keys."""
        if self.visual_keys is None:
            return None
        seen: dict[str, Any] = {"time": np.array([self.sim.data.time])}
        for key in self.visual_keys:
            kind, camera, size, encoder = key.split(":")
            height, width = (int(side) for side in size.split("x"))
            shade = int(abs(self.qp).sum() * 60 + 20 * _CAMERAS.index(camera)) % 256
            if kind == "rgb":
                image = np.full((height, width, 3), shade, np.uint8)
                seen[key] = image if encoder == "2d" else image.reshape(-1)[:512].astype(np.float32)
                depth = f"d{key[3:]}"
                if depth in self.visual_keys:
                    seen[depth] = np.full((1, height, width), shade / 10.0)
        return seen


def register() -> None:
    """Register the environments with gymnasium, as the import of ``robohive`` does."""
    for name in sorted(robohive_env_suite):
        if name not in gymnasium.registry:
            gymnasium.register(
                name, entry_point=ReachEnv, max_episode_steps=50, kwargs={"fixed": "Fixed" in name}, order_enforce=True
            )


_MODELS = """
import os
if os.environ.get("STEPPE_DOUBLE_WITHOUT_SIMHIVE"):
    raise ModuleNotFoundError("RoboHive environments requires SimHive for simulation assets. python -m robohive_init")
"""

DOUBLE = Double(
    dists={"robohive": "0.7.0"},
    files={
        "robohive/__init__.py": f"{_MODELS}\nfrom {__name__} import register, robohive_env_suite\nregister()\n",
        "robohive/utils/__init__.py": "import gymnasium as gym\n",
    },
)
