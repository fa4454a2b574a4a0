"""Segment: the part of a request that the lanes of one process run."""

from __future__ import annotations

from dataclasses import dataclass

from tensordict import TensorDict

__all__ = ["Segment"]


@dataclass(frozen=True)
class Segment:
    """The part of a request that the lanes of one process run.

    Attributes:
        rows: indices of the rows in the request; None for a slice, in which all live lanes continue.
        n_steps: the length of a slice.
        agent_info, env_info: infos of these rows; in a slice, of all lanes. None for no infos.
        finishes: a lane leaves the slice at the end of its episode, even with ``auto_reset``.
    """

    rows: list[int] | None
    n_steps: int | None
    agent_info: TensorDict | None
    env_info: TensorDict | None
    finishes: bool = False
