"""PoolRows: the arrays of a pool, written into rows that the caller owns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from steppe.envs import Ended, Progress, RowLayout, Rows
from steppe.errors import NotSupported

from .pool import NO_PARTIAL_STEP, Pool

__all__ = ["PoolRows"]

#: Observations of more bytes are not copied once more to go through rows: TensorDicts of the pool's own arrays are
#: faster then.
_MOST_COPIED = 128 * 1024


class PoolRows:
    """A :class:`steppe.envs.RowWriter` whose rows are the environments of one pool: they are stepped in one call.

    Args:
        pool: the pool.
        n: how many environments it has.
        layout: what each row holds.
    """

    def __init__(self, pool: Pool, n: int, layout: RowLayout) -> None:
        self.pool, self.n, self.layout = pool, n, layout
        self.inverts = False
        observed = sum(int(np.prod(shape)) * dtype.itemsize for _, shape, dtype in layout.observations)
        self.on_arrays = n * observed <= _MOST_COPIED

    def decode(self, actions: dict[Any, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
        """Turn actions ``{key: [k, *shape]}`` into the ``k`` that the pool takes, one array."""
        return self.pool.native(actions[self.layout.action_keys[0]])

    def bind(self, rows: Rows, progress: Progress) -> BoundPool:
        """Prepare to write these rows. What fails in the pool fails for all of them: no row is noted."""
        return BoundPool(self, rows)


class BoundPool:
    """The pool, and the rows that its arrays are written into."""

    def __init__(self, writer: PoolRows, rows: Rows) -> None:
        self.pool, self.n, self.rows = writer.pool, writer.n, rows
        self._next = [(key, rows.next[key]) for key, _, _ in writer.layout.observations]
        self._root = [(key, rows.root[key]) for key, _, _ in writer.layout.observations]
        self._reward = rows.next["reward"]

    def step(self, actions: Any, at: Sequence[int] | None = None) -> Ended:
        """Step all environments; ``at`` may not leave one out."""
        if at is not None and len(at) != self.n:
            raise NotSupported(NO_PARTIAL_STEP)
        observations, reward, terminated, truncated = self.pool.step(actions)
        for key, target in self._next:
            target[...] = observations[key]
        self._reward[...] = reward[:, None]
        ended = terminated | truncated
        any_ended = bool(ended.any())
        if any_ended or self.rows.flagged:
            flags = {"done": ended, "terminated": terminated, "truncated": truncated}
            for name, (_, target) in self.rows.done.items():
                target[...] = flags[name][:, None]
            self.rows.flagged = any_ended
        if not any_ended:
            return []
        at_end = ended.nonzero()[0]
        return list(zip(at_end.tolist(), terminated[at_end].tolist(), truncated[at_end].tolist(), strict=True))

    def reset(self, at: Sequence[int], env_info: Sequence[dict[str, Any] | None] | None = None) -> None:
        """Begin episodes in some rows; a pool has no ``env_info``."""
        self.pool.send_reset(at)
        ids, fresh = self.pool.receive_reset()
        for key, target in self._root:
            target[ids] = fresh[key]
        self.rows.begin(at)
