"""Loop: a row writer and the rows that it writes, for rollouts, batches, workers and collectors."""

from __future__ import annotations

from collections.abc import Sequence

from steppe.envs.array.row_writer import RowWriter
from steppe.envs.array.rows import Progress, Rows
from steppe.storage import copy_rows

__all__ = ["Loop"]


class Loop:
    """Step rows through a writer.

    The driver brings the rows and the actions. Rows that ended are reset into the root of the same rows. A driver whose
    next step begins from ``next``, rather than from a root of its caller, calls :meth:`copy_root_inputs` in between.

    Args:
        writer: steps the environments and runs their transforms.
        rows: the rows that it writes.
        progress: notes which row is being stepped.
    """

    def __init__(self, writer: RowWriter, rows: Rows, progress: Progress | None = None) -> None:
        self.writer, self.rows = writer, rows
        self.progress = progress or Progress()
        bound = writer.bind(rows, self.progress)
        #: Step some rows or all, and write ``next``: see :class:`~steppe.envs.BoundWriter`.
        self.step = bound.step
        #: Begin episodes in some rows, and write their roots.
        self.reset = bound.reset
        #: Step all rows, and begin episodes in those that ended.
        self.step_and_reset = bound.step_and_reset
        layout = writer.layout
        keys = (*layout.root_inputs, *(layout.done_keys if layout.flags_every_step else ()))
        self._root_inputs = [(rows.root[key], rows.next[key]) for key in keys]

    def copy_root_inputs(self, began: Sequence[int] = ()) -> None:
        """Copy the entries that a step reads of its root from ``next`` to the root.

        Args:
            began: rows that have begun an episode since the step, whose roots are not overwritten.
        """
        if not began:
            for root, following in self._root_inputs:
                root[...] = following
            return
        for root, following in self._root_inputs if len(began) < self.rows.n else ():
            first = root.copy()
            root[...] = following
            copy_rows(root, first, began)
