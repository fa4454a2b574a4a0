"""RunningRow: a row of a request that a lane runs."""

from __future__ import annotations

from dataclasses import dataclass, field

from tensordict import TensorDictBase

__all__ = ["RunningRow"]


@dataclass(slots=True)
class RunningRow:
    """A row of a request that a lane runs.

    Attributes:
        place: index in the segment that this process runs.
        number: index in the whole request; in a slice, the number of the lane.
        lane: number of the lane, counted over all workers.
        local_lane: number of the lane in this process.
        episode: number of the first episode of the row.
        start: number of steps that the lanes had taken when the row began.
        begun_at: in slots, the position in the current block of its first step that is not in the log.
        has_entry: in slots, whether the log has an entry of the row.
        length: without slots, the number of steps; set when the row ends.
        state: without slots, the state of the agent at the first step, or None.
        frames: without slots, for each step its index in the ``FrameStore`` and the index of the row in that step.
    """

    place: int
    number: int
    lane: int
    local_lane: int
    episode: int
    start: int
    begun_at: int = 0
    has_entry: bool = False
    length: int = 0
    state: TensorDictBase | None = None
    frames: list[tuple[int, int]] = field(default_factory=list)
