"""PlainStep: the usual step of a batch, with all that its specs decide decided before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensordict import TensorDictBase

from steppe.batched.operations import STEP_AND_RESET
from steppe.batched.rows import BatchRows
from steppe.envs import PlainRoots

__all__ = ["PlainStep"]


class PlainStep:
    """Steps of data that consists of tensors by name, with one action, in a batch whose data comes out on the host.

    Args:
        rows: of the batch.
        roots: put ``next`` into such data, and make the next root.
        decode: decodes actions that do not have to go through storage; see ``Share.decoder``.
    """

    def __init__(
        self, rows: BatchRows, roots: PlainRoots, decode: Callable[[Any], list[Any] | None] | None = None
    ) -> None:
        self._rows, self._roots = rows, roots
        self._decode = decode if rows.is_plain else None
        self._action: Any = rows.actions[0][0] if rows.is_plain else None
        self._take = rows.next_out.take

    def __call__(
        self, tensordict: TensorDictBase, run: Callable[..., int]
    ) -> tuple[TensorDictBase, TensorDictBase] | None:
        """Take a step, and reset what has ended.

        Args:
            tensordict: root data with the action.
            run: carries out an operation in the environments, with actions that were decoded if there are any; returns
                how many were reset. It is given each time, as the batch holds this and would not be freed at once if
                this held the batch.

        Returns:
            ``tensordict`` with ``"next"``, and the following root; None where the data is another than usual, and
            nothing was done.
        """
        level = self._roots.level_of(tensordict)
        if level is None:
            return None
        rows, decode = self._rows, self._decode
        natives = None if decode is None else decode(level.get(self._action))
        if natives is None and not rows.write_plain(level):
            return None
        n_reset = run(STEP_AND_RESET, None, natives)
        flat = self._take()
        fresh = rows.root_out.overlay(flat, rows.flags.was_reset) if n_reset else None
        return tensordict, self._roots.put(tensordict, level, flat, fresh)
