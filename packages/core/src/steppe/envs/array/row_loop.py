"""Loop: steps of some rows, whoever asks for them: a rollout, a batch, a worker or a collector."""

from __future__ import annotations

from collections.abc import Sequence

from steppe.envs.array.row_writer import RowWriter
from steppe.envs.array.rows import Progress, Rows

__all__ = ["Loop"]


class Loop:
    """Steps rows through a writer.

    The driver owns the memory and brings the actions. What ended is reset into the root of the same rows; a driver that
    goes on from ``next``, and not from a root that its caller gives, calls :meth:`carry` in between.

    Args:
        writer: steps the environments, and runs the transforms behind them.
        rows: what it writes.
        progress: notes which row is at work.
    """

    def __init__(self, writer: RowWriter, rows: Rows, progress: Progress | None = None) -> None:
        self.writer, self.rows = writer, rows
        self.progress = progress or Progress()
        bound = writer.bind(rows, self.progress)
        #: Act in rows, and write ``next``: see :class:`~steppe.envs.BoundWriter`.
        self.step = bound.step
        #: Begin episodes in rows, and write their roots.
        self.reset = bound.reset
        #: Both, for all rows.
        self.step_and_reset = bound.step_and_reset
        layout = writer.layout
        keys = (*layout.carried, *(layout.done_keys if layout.flags_every_step else ()))
        self._carried = [(rows.root[key], rows.next[key]) for key in keys]

    def carry(self, began: Sequence[int] = ()) -> None:
        """Write what the next step reads from its root, from the ``next`` of this one.

        Args:
            began: rows that have begun an episode since; their root stays.
        """
        for root, following in self._carried:
            if not began:
                root[...] = following
                continue
            kept = root[began]
            root[...] = following
            root[began] = kept
