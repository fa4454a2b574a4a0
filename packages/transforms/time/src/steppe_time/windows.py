"""Windows over time in stored data, which do not reach beyond an episode."""

from __future__ import annotations

import torch
from tensordict import TensorDictBase

from steppe.errors import SpecError

__all__ = ["episode_windows", "time_dim_of"]


def time_dim_of(data: TensorDictBase, owner: str) -> int:
    """The batch dimension that is named ``time``, or the last one.

    Raises:
        SpecError: there is none.
    """
    if not data.batch_dims:
        raise SpecError(
            f"{owner} works on steps over time, and this data has no batch dimension. Give it one of [*B, T], such as "
            "data of a rollout, or a slice from a buffer."
        )
    return int(data.names.index("time")) if "time" in data.names else int(data.batch_dims) - 1


def episode_windows(done: torch.Tensor, n: int, *, future: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Which steps are in the window of each step.

    Args:
        done: ``[*B, T]`` bool, whether a step is the last of its episode.
        n: steps in a window.
        future: windows begin with a step instead of ending with it.

    Returns:
        The steps ``[*B, T, n]`` int64, and which of these are beyond the episode, bool: these are its first (or last)
        step.
    """
    steps = torch.arange(done.shape[-1], device=done.device).expand(done.shape)
    if future:
        # The next end at or after each step, or the last step of the data.
        ends = torch.where(done, steps, done.shape[-1] - 1)
        edge = ends.flip(-1).cummin(-1).values.flip(-1)
        wanted = steps.unsqueeze(-1) + torch.arange(n, device=done.device)
        return torch.minimum(wanted, edge.unsqueeze(-1)), wanted > edge.unsqueeze(-1)
    begins = torch.zeros_like(steps)
    begins[..., 1:] = torch.where(done[..., :-1], steps[..., 1:], 0)
    edge = begins.cummax(-1).values
    wanted = steps.unsqueeze(-1) + torch.arange(1 - n, 1, device=done.device)
    return torch.maximum(wanted, edge.unsqueeze(-1)), wanted < edge.unsqueeze(-1)
