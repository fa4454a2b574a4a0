"""Data of the tests of replay buffers: transitions that tell where they come from."""

from __future__ import annotations

import torch
from tensordict import TensorDict, TensorDictBase

__all__ = ["numbered", "trajectories"]


def numbered(n: int, first: int = 0) -> TensorDict:
    """Return ``n`` rows with the numbers from ``first`` on, in several dtypes and in a group."""
    number = torch.arange(first, first + n)
    following = TensorDict({"reward": number.float().unsqueeze(-1), "done": number.unsqueeze(-1) % 10 == 9}, [n])
    pixels = number.to(torch.uint8).reshape(n, 1, 1).expand(n, 2, 3)
    return TensorDict({"number": number, "pixels": pixels, "next": following}, [n])


def trajectories(*lengths: int, first_id: int = 0, open_end: bool = False) -> TensorDictBase:
    """Return trajectories of these lengths, one after the other; each step knows its trajectory and its place in it."""
    ids = torch.cat([torch.full((n,), first_id + i) for i, n in enumerate(lengths)])
    step = torch.cat([torch.arange(n) for n in lengths])
    done = torch.cat([torch.arange(n) == n - 1 for n in lengths])
    if open_end:
        done[-1] = False
    done = done.unsqueeze(-1)
    n = len(ids)
    following = TensorDict({"done": done, "terminated": done, "truncated": torch.zeros_like(done)}, [n])
    return TensorDict({"step": step, "collector": TensorDict({"traj_ids": ids}, [n]), "next": following}, [n])
