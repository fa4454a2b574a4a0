"""Double of Isaac Gym Preview 4 and of a task of IsaacGymEnvs.

It is built from the published sources of IsaacGymEnvs (``tasks/base/vec_task.py``, ``tasks/cartpole.py``), and from the
error that Isaac Gym raises if torch was imported before it. The physics is a cart with a pole in torch, on the CPU.

Kept from the library: ended rows are reset in the *next* step, after the simulation and before the observations;
``reset()`` returns whatever the buffers contain; ``step`` returns its own buffers of rewards and ended rows, and the
same dict of observations each time; ``timeout_buf`` is True only where a row ended; all draws come from torch's global
generator; one process has one simulation. With the environment variable ``STEPPE_LENIENT_DOUBLES``, a process may have
several, and torch may be imported first, because a test process has torch from the start.
"""

from __future__ import annotations

import os
import weakref
from typing import Any

import torch

from . import Double

__all__ = ["DOUBLE", "Ant", "Cartpole", "VecTask", "isaacgym_task_map", "make"]

_simulation: weakref.ref[Any] | None = None


class VecTask:
    """The base class of tasks: buffers, and the order of a step.

    Args:
        cfg: configuration of the task.
        rl_device: device of what ``step`` returns.
        sim_device: device of the simulation.
        graphics_device_id: ignored.
        headless: without a viewer.
        virtual_screen_capture: ``render`` returns images.
        force_render: ignored.
    """

    num_observations = 4
    num_states = 0
    num_actions = 1
    max_episode_length = 500

    def __init__(
        self,
        cfg: dict[str, Any],
        rl_device: str,
        sim_device: str,
        graphics_device_id: int,
        headless: bool,
        virtual_screen_capture: bool = False,
        force_render: bool = False,
    ) -> None:
        from gym import spaces

        global _simulation
        if _simulation is not None and _simulation() is not None and not os.environ.get("STEPPE_LENIENT_DOUBLES"):
            raise RuntimeError("CUDA error: an illegal memory access was encountered (a second simulation)")
        _simulation = weakref.ref(self)
        self.cfg = cfg
        self.device, self.rl_device, self.headless = sim_device, rl_device, headless
        self.virtual_screen_capture = virtual_screen_capture
        self.num_environments = cfg["env"]["numEnvs"]
        self.max_episode_length = cfg["env"].get("maxEpisodeLength", self.max_episode_length)
        self.clip_obs, self.clip_actions = 5.0, 1.0
        inf = float("inf")
        self.obs_space = spaces.Box(-inf, inf, (self.num_observations,))
        self.act_space = spaces.Box(-1.0, 1.0, (self.num_actions,))
        self.extras: dict[str, Any] = {}
        self.obs_dict: dict[str, torch.Tensor] = {}
        self.allocate_buffers()

    def allocate_buffers(self) -> None:
        """Make the buffers; all rows count as ended, so that the first step resets them."""
        n, device = self.num_envs, self.device
        self.obs_buf = torch.zeros((n, self.num_observations), device=device)
        self.states_buf = torch.zeros((n, self.num_states), device=device)
        self.rew_buf = torch.zeros(n, device=device)
        self.reset_buf = torch.ones(n, device=device, dtype=torch.long)
        self.timeout_buf = torch.zeros(n, device=device, dtype=torch.long)
        self.progress_buf = torch.zeros(n, device=device, dtype=torch.long)

    @property
    def observation_space(self) -> Any:
        return self.obs_space

    @property
    def action_space(self) -> Any:
        return self.act_space

    @property
    def num_envs(self) -> int:
        return int(self.num_environments)

    def zero_actions(self) -> torch.Tensor:
        """Return actions of zeros."""
        return torch.zeros((self.num_envs, self.num_actions), dtype=torch.float32, device=self.rl_device)

    def step(self, actions: torch.Tensor) -> tuple[dict[str, torch.Tensor], torch.Tensor, torch.Tensor, dict[str, Any]]:
        """Simulate, reset the rows that had ended before, then observe."""
        self.pre_physics_step(torch.clamp(actions, -self.clip_actions, self.clip_actions))
        self.simulate()
        self.post_physics_step()
        self.timeout_buf = (self.progress_buf >= self.max_episode_length - 1) & (self.reset_buf != 0)
        self.extras["time_outs"] = self.timeout_buf.to(self.rl_device)
        self._observe()
        return self.obs_dict, self.rew_buf.to(self.rl_device), self.reset_buf.to(self.rl_device), self.extras

    def _observe(self) -> None:
        self.obs_dict["obs"] = torch.clamp(self.obs_buf, -self.clip_obs, self.clip_obs).to(self.rl_device)
        if self.num_states > 0:
            self.obs_dict["states"] = torch.clamp(self.states_buf, -self.clip_obs, self.clip_obs).to(self.rl_device)

    def reset(self) -> dict[str, torch.Tensor]:
        """Return the buffers; nothing is reset or observed."""
        self._observe()
        return self.obs_dict

    def render(self, mode: str = "rgb_array") -> Any:
        """Return an image of the viewer; None without ``virtual_screen_capture``."""
        import numpy as np

        if self.headless or not self.virtual_screen_capture or mode != "rgb_array":
            return None
        return np.full((24, 32, 3), int(self.progress_buf[0]) % 256, np.uint8)

    def pre_physics_step(self, actions: torch.Tensor) -> None:
        raise NotImplementedError

    def simulate(self) -> None:
        raise NotImplementedError

    def post_physics_step(self) -> None:
        raise NotImplementedError


class Cartpole(VecTask):
    """Balance a pole: 4 observations, 1 action, a limit of 500 steps."""

    def __init__(self, cfg: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(cfg, **kwargs)
        self.dof = torch.zeros((self.num_envs, 4), device=self.device)
        self.push = torch.zeros(self.num_envs, device=self.device)

    def pre_physics_step(self, actions: torch.Tensor) -> None:
        """Set the forces."""
        self.push = actions.to(self.device)[:, 0] * 10.0

    def simulate(self) -> None:
        """Move cart and pole by one step."""
        position, speed, angle, turn = self.dof.unbind(-1)
        bend = 9.8 * torch.sin(angle) - self.push * torch.cos(angle) * 0.5
        moved = (position + 0.02 * speed, speed + 0.02 * self.push, angle + 0.02 * turn, turn + 0.04 * bend)
        self.dof = torch.stack(moved, -1)

    def reset_idx(self, env_ids: torch.Tensor) -> None:
        """Draw new states for some rows."""
        self.dof[env_ids] = 0.4 * (torch.rand((len(env_ids), 4), device=self.device) - 0.5)
        self.reset_buf[env_ids] = 0
        self.progress_buf[env_ids] = 0

    def post_physics_step(self) -> None:
        """Reset rows that had ended, observe, and compute rewards and ends."""
        self.progress_buf += 1
        ended = self.reset_buf.nonzero(as_tuple=False).squeeze(-1)
        if len(ended) > 0:
            self.reset_idx(ended)
        self.obs_buf[:] = self.dof
        self.states_buf[:] = torch.cat([self.dof, self.dof], -1)[:, : self.num_states]
        fallen = (self.dof[:, 0].abs() > 3.0) | (self.dof[:, 2].abs() > 1.0)
        self.rew_buf[:] = torch.where(fallen, -2.0, 1.0 - self.dof[:, 2] ** 2)
        self.reset_buf[:] = torch.where(fallen, 1, self.reset_buf)
        self.reset_buf[:] = torch.where(self.progress_buf >= self.max_episode_length - 1, 1, self.reset_buf)


class Ant(Cartpole):
    """A task with privileged observations: ``states`` of 6 numbers, and 3 actions, of which the first one acts."""

    num_states = 6
    num_actions = 3


isaacgym_task_map: dict[str, type[VecTask]] = {"Ant": Ant, "Cartpole": Cartpole}


def make(
    seed: int | None,
    task: str,
    num_envs: int,
    sim_device: str,
    rl_device: str,
    graphics_device_id: int = -1,
    headless: bool = False,
    multi_gpu: bool = False,
    virtual_screen_capture: bool = False,
    force_render: bool = True,
    cfg: Any = None,
) -> VecTask:
    """Make a task. As in the library, ``seed`` seeds nothing."""
    settings = {"env": {**dict(cfg or {}).get("env", {}), "numEnvs": num_envs}}
    return isaacgym_task_map[task](
        settings,
        rl_device=rl_device,
        sim_device=sim_device,
        graphics_device_id=graphics_device_id,
        headless=headless,
        virtual_screen_capture=virtual_screen_capture,
        force_render=force_render,
    )


_ORDER = """
import os, sys
if "torch" in sys.modules and not os.environ.get("STEPPE_LENIENT_DOUBLES"):
    raise ImportError("PyTorch was imported before isaacgym modules.  Please import torch after isaacgym modules.")
"""

DOUBLE = Double(
    dists={"isaacgym": "1.0rc4", "isaacgymenvs": "1.5.1"},
    files={
        "isaacgym/__init__.py": _ORDER,
        "isaacgymenvs/__init__.py": f"import isaacgym\nfrom {__name__} import make\nfrom . import tasks\n",
        "isaacgymenvs/tasks/__init__.py": f"import isaacgym\nfrom {__name__} import isaacgym_task_map\n",
    },
)
