"""Trajectories: what a request comes back as."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase, tensorclass
from tensordict import cat as cat_tds

__all__ = ["Trajectories"]


@tensorclass
class Trajectories:
    """Rows of a request ``[*R]``, each a sequence of steps.

    Attributes:
        steps: ``[*R, T]`` what a rollout holds, zeros behind the end of each row.
        length: ``[*R]`` int64, steps of each row.
        alive: ``[*R]`` bool, True where a row was cut at the end of a slice and can go on.
        row: ``[*R]`` int64, the place in the request, or the lane of a slice.
        lane: ``[*R]`` int64, which environment ran it.
        episode: ``[*R]`` int64, the number of its first episode in the order in which they began.
        policy_version: ``[*R]`` int64, how often the policy had been updated.
        agent_info: ``[*R]`` what the agent was told, or None.
        env_info: ``[*R]`` what the environment was told, or None.
        agent_state: ``[*R]`` the agent's state at the first step, or None.
    """

    steps: TensorDict
    length: torch.Tensor
    alive: torch.Tensor
    row: torch.Tensor
    lane: torch.Tensor
    episode: torch.Tensor
    policy_version: torch.Tensor
    agent_info: TensorDict | None = None
    env_info: TensorDict | None = None
    agent_state: TensorDict | None = None

    def mask(self) -> torch.Tensor:
        """Which steps are there, ``[*R, T]`` bool."""
        time = torch.arange(self.steps.batch_size[-1], device=self.length.device)
        return time < self.length.unsqueeze(-1)

    def at(self, step: Any) -> TensorDict:
        """The data of one step of each row, ``[*R]``.

        Args:
            step: an int, or ``[*R]`` ints, one for each row; negative ones count from the end of the row.
        """
        step = torch.as_tensor(step, device=self.length.device).expand(self.length.shape)
        step = torch.where(step < 0, step + self.length, step)
        if bool(((step < 0) | (step >= self.length)).any()):
            raise IndexError(f"Rows have {self.length.tolist()} steps, asked for {step.tolist()}.")
        flat = self.steps.reshape(-1, self.steps.batch_size[-1])
        rows = torch.arange(len(flat), device=step.device)
        return flat[rows, step.reshape(-1)].reshape(self.length.shape)

    def last(self) -> TensorDict:
        """The last step of each row, ``[*R]``."""
        return self.at(-1)

    def shorten(self) -> Trajectories:
        """The same without the steps that no row has."""
        return self.pad_to(int(self.length.max()))

    def pad_to(self, steps: int) -> Trajectories:
        """The same with ``steps`` steps, zeros behind the end of each row.

        Raises:
            ValueError: a row has more.
        """
        longest, now = int(self.length.max()), self.steps.batch_size[-1]
        if steps < longest:
            raise ValueError(f"A row has {longest} steps, more than {steps}.")
        if steps <= now:
            padded = self.steps[..., :steps]
        else:
            missing = self.steps.new_zeros((*self.steps.batch_size[:-1], steps - now))
            padded = cat_tds([self.steps, missing], -1)
        other = self.copy()
        other.steps = _timed(padded)
        return other

    def episode_return(self, gamma: float = 1.0) -> torch.Tensor:
        """The sum of the rewards of each row, ``[*R]``, over all its agents.

        Args:
            gamma: how much a reward counts less with each step.
        """
        reward = self.steps.get(("next", "reward"))
        reward = reward.reshape(*self.steps.batch_size, -1).sum(-1)
        time = torch.arange(self.steps.batch_size[-1], device=reward.device)
        return torch.where(self.mask(), reward, 0).mul(gamma**time).sum(-1)

    def as_steps(self, *, info: bool = True, state: bool = False) -> TensorDict:
        """Data ``[*R, T]`` for losses and buffers, with what collectors say of frames.

        Args:
            info: with ``agent_info`` and ``env_info``, expanded over time without a copy.
            state: with the agent's first state, likewise.
        """
        steps = self.steps.copy()
        shape = steps.batch_size

        def over_time(value: TensorDictBase) -> TensorDictBase:
            return value.unsqueeze(-1).expand(shape)

        for name in (*(("agent_info", "env_info") if info else ()), *(("agent_state",) if state else ())):
            value = getattr(self, name)
            if value is not None and name not in steps.keys():
                steps.set(name, over_time(value))
        told = {
            "mask": self.mask(),
            "traj_ids": self.episode.unsqueeze(-1).expand(shape),
            "policy_version": self.policy_version.unsqueeze(-1).expand(shape),
        }
        steps.set("collector", TensorDict(told, batch_size=shape))
        return _timed(steps)

    def flat(self) -> TensorDict:
        """All steps that are there, ``[sum of lengths]``, row after row."""
        return self.as_steps().reshape(-1)[self.mask().reshape(-1)]

    @staticmethod
    def join(several: Sequence[Trajectories]) -> Trajectories:
        """Rows one after the other, padded to the longest."""
        longest = max(each.steps.batch_size[-1] for each in several)
        return torch.cat([each.pad_to(longest) for each in several], 0)


def _timed(steps: Any) -> Any:
    steps.names = [None] * (steps.batch_dims - 1) + ["time"]
    return steps
