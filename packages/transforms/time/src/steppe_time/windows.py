"""Windows over time in stored data that end at the borders of episodes."""

from __future__ import annotations

import torch
from tensordict import TensorDictBase

__all__ = ["episode_windows", "swapped"]


def swapped(data: TensorDictBase, dim: int) -> TensorDictBase:
    """Return a view in which a batch dimension and the last one have changed places."""
    view: TensorDictBase = data.transpose(dim, -1)  # type: ignore[no-untyped-call]
    return view


def episode_windows(begins: torch.Tensor, n: int, *, future: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the indices of the steps in the window of each step.

    Args:
        begins: ``[*B, T]`` bool, whether a step is the first of its episode. The first of the data counts as one.
        n: number of steps in a window.
        future: the window starts at the step instead of ending there.

    Returns:
        The indices ``[*B, T, n]`` int64, and a bool mask of the steps outside the episode, which are replaced by its
        first (or last) step.
    """
    length = begins.shape[-1]
    steps = torch.arange(length, device=begins.device).expand(begins.shape)
    if future:
        # Index of the end of each step's episode, or of the last step of the data.
        ends = torch.full_like(steps, length - 1)
        ends[..., :-1] = torch.where(begins[..., 1:], steps[..., :-1], length - 1)
        edge = ends.flip(-1).cummin(-1).values.flip(-1)
        steps_in_window = steps.unsqueeze(-1) + torch.arange(n, device=begins.device)
        return torch.minimum(steps_in_window, edge.unsqueeze(-1)), steps_in_window > edge.unsqueeze(-1)
    edge = torch.where(begins, steps, 0).cummax(-1).values
    steps_in_window = steps.unsqueeze(-1) + torch.arange(1 - n, 1, device=begins.device)
    return torch.maximum(steps_in_window, edge.unsqueeze(-1)), steps_in_window < edge.unsqueeze(-1)
