"""PoolWriter: a row writer that copies the arrays of a pool into the caller's rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from steppe.envs import BoundWriter, Ended, EnvInfos, Progress, RowLayout, Rows, RowWriter
from steppe.errors import NotSupported

from .pool import NO_PARTIAL_STEP, Pool

__all__ = ["PoolWriter"]

#: Maximum number of bytes of observations for single steps on rows. Above it, the additional copy costs more than
#: making TensorDicts of the pool's arrays.
_MAX_COPIED_BYTES = 128 * 1024


class PoolWriter(RowWriter):
    """Row writer whose rows are the environments of one pool, stepped in one call.

    Args:
        pool: the pool.
        n: number of environments in the pool.
        layout: the entries of each row.
    """

    def __init__(self, pool: Pool, n: int, layout: RowLayout) -> None:
        self.pool, self.n, self.layout = pool, n, layout
        observed = sum(int(np.prod(shape)) * dtype.itemsize for _, shape, dtype in layout.observations)
        self.on_arrays = n * observed <= _MAX_COPIED_BYTES

    def decode(self, actions: dict[str | tuple[str, ...], np.ndarray]) -> np.ndarray:
        """Convert actions ``{key: [k, *shape]}`` to one array of k actions of the pool."""
        return self.pool.decode(actions[self.layout.action_keys[0]])

    def bind(self, rows: Rows, progress: Progress) -> BoundPool:
        """Prepare to write these rows.

        ``progress`` is not used: an error in the pool concerns all rows.
        """
        return BoundPool(self, rows)


class BoundPool(BoundWriter):
    """The pool bound to the rows that it writes."""

    def __init__(self, writer: PoolWriter, rows: Rows) -> None:
        self.pool, self.n, self.rows = writer.pool, writer.n, rows
        self._next = [(key, rows.next[key]) for key, _, _ in writer.layout.observations]
        self._root = [(key, rows.root[key]) for key, _, _ in writer.layout.observations]
        self._reward = rows.next["reward"]

    def step(self, actions: np.ndarray, at: Sequence[int] | None = None) -> Ended:
        """Step all environments. ``at`` must name all rows."""
        if at is not None and len(at) != self.n:
            raise NotSupported(NO_PARTIAL_STEP)
        observations, reward, terminated, truncated = self.pool.step(actions)
        for key, target in self._next:
            target[...] = observations[key]
        self._reward[...] = reward[:, None]
        return self.rows.write_flags(terminated | truncated, terminated, truncated)

    def reset(self, at: Sequence[int], env_info: EnvInfos = None) -> None:
        """Reset some rows. ``env_info`` is ignored, because pools accept none."""
        self.pool.send_reset(at)
        ids, fresh = self.pool.receive_reset()
        for key, target in self._root:
            target[ids] = fresh[key]
        self.rows.begin(at)
