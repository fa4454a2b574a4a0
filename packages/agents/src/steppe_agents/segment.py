"""The part of a request that goes to one process."""

from __future__ import annotations

from dataclasses import dataclass

from tensordict import TensorDict

__all__ = ["Segment"]


@dataclass(frozen=True)
class Segment:
    """The part of a request that the lanes of one process run.

    Attributes:
        rows: numbers of the rows in the request; None for a slice: the lanes go on where they are.
        n_steps: the length of a slice.
        agent_info, env_info: of these rows; of a slice, of all lanes. None for nothing.
        finishes: lanes of a slice leave it where their episode ends, also with ``auto_reset``.
    """

    rows: list[int] | None
    n_steps: int | None
    agent_info: TensorDict | None
    env_info: TensorDict | None
    finishes: bool = False
