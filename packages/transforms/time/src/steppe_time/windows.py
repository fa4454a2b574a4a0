"""Windows over time in stored data that end at the borders of episodes."""

from __future__ import annotations

import torch
from tensordict import TensorDictBase

from steppe.errors import SpecError

__all__ = ["episode_windows", "time_dim_of"]


def time_dim_of(data: TensorDictBase, owner: str) -> int:
    """Return the batch dimension named ``time``, or the last one.

    Raises:
        SpecError: the data has no batch dimension.
    """
    if not data.batch_dims:
        raise SpecError(
            f"{owner} needs data [*B, T] of steps over time, found data without a batch dimension. Pass data of a "
            "rollout, or a slice from a buffer."
        )
    return int(data.names.index("time")) if "time" in data.names else int(data.batch_dims) - 1


def episode_windows(done: torch.Tensor, n: int, *, future: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the indices of the steps in the window of each step.

    Args:
        done: ``[*B, T]`` bool, whether a step is the last of its episode.
        n: number of steps in a window.
        future: the window starts at the step instead of ending there.

    Returns:
        The indices ``[*B, T, n]`` int64, and a bool mask of the steps outside the episode, which are replaced by its
        first (or last) step.
    """
    steps = torch.arange(done.shape[-1], device=done.device).expand(done.shape)
    if future:
        # Index of the end of each step's episode, or of the last step of the data.
        ends = torch.where(done, steps, done.shape[-1] - 1)
        edge = ends.flip(-1).cummin(-1).values.flip(-1)
        steps_in_window = steps.unsqueeze(-1) + torch.arange(n, device=done.device)
        return torch.minimum(steps_in_window, edge.unsqueeze(-1)), steps_in_window > edge.unsqueeze(-1)
    begins = torch.zeros_like(steps)
    begins[..., 1:] = torch.where(done[..., :-1], steps[..., 1:], 0)
    edge = begins.cummax(-1).values
    steps_in_window = steps.unsqueeze(-1) + torch.arange(1 - n, 1, device=done.device)
    return torch.maximum(steps_in_window, edge.unsqueeze(-1)), steps_in_window < edge.unsqueeze(-1)
