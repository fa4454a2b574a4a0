"""PriorityTree: sums of priorities, to draw and change many rows in a few calls of numpy."""

from __future__ import annotations

import numpy as np
import torch
from torch import from_numpy

from steppe.specs import CPU

__all__ = ["PriorityTree"]

#: Children of a node: two cache lines, which are read from memory for each row that is drawn.
_FAN = 16
#: The first level with at most so many nodes is the top: cumsum and searchsorted are faster there than another level,
#: whose dozen calls of numpy cost about 25 us.
_TOP = 4096
_ONES = np.ones(_FAN, np.uint8)
_ADD_UP = torch.ones(_FAN, dtype=torch.float64, device=CPU)


class PriorityTree:
    """Weights of rows, to draw rows in proportion to them.

    A change computes the sums of the nodes above from their children, so rounding errors do not add up.

    Args:
        n: number of rows; the weights are 0.

    Examples:
        >>> import numpy as np
        >>> from steppe_replay import PriorityTree
        >>> tree = PriorityTree(4)
        >>> tree.set(np.array([1, 3]), np.array([1.0, 3.0]))
        >>> tree.total, tree.least, tree.draw(np.array([0.2, 0.3, 0.9]))[0].tolist()
        (4.0, 1.0, [1, 3, 3])
    """

    def __init__(self, n: int) -> None:
        self.n = n
        self._sums: list[np.ndarray] = []
        size = n
        while True:
            nodes = -(-size // _FAN)
            # Filled, unlike zeros(), they are in large pages.
            self._sums.append(np.full((nodes, _FAN), 0.0))
            if nodes * _FAN <= _TOP:
                break
            size = nodes
        self._flat = [sums.reshape(-1) for sums in self._sums]
        self._top = self._flat[-1]
        self._changed = False
        self._cumulated = self._top.cumsum()
        #: The smallest weight above 0, and a lower bound of how many rows have it. At 0 the minimum is searched again:
        #: a tree of minima would cost as much as that of sums at each change.
        self._least, self._n_least = np.inf, 1

    @property
    def total(self) -> float:
        """The sum of all weights."""
        return float(self._sums_of_top()[-1])

    @property
    def least(self) -> float:
        """The smallest weight above 0; infinite if there is none."""
        if self._n_least <= 0:
            weights = self._flat[0]
            self._least = float(weights.min(initial=np.inf, where=weights > 0))
            self._n_least = max(1, int(np.count_nonzero(weights == self._least)))
        return self._least

    def __getitem__(self, index: np.ndarray) -> np.ndarray:
        """Return weights."""
        return self._flat[0].take(index)

    def set(self, index: np.ndarray, weights: np.ndarray | float) -> None:
        """Set weights of at least 0; of a row that stands several times in ``index``, the last one."""
        if not len(index):
            return
        rows = self._flat[0]
        before = rows.take(index)
        rows[index] = weights
        self._follow_least(index, before, weights)
        self._changed = True
        for level in range(1, len(self._sums)):
            index = index // _FAN
            if len(index) > 1024:  # many rows are mostly neighbours
                index = np.unique(index)
            children = from_numpy(self._sums[level - 1].take(index, 0))
            # A product with ones takes less time than sum(); that of numpy would start threads of its own.
            self._flat[level][index] = torch.mv(children, _ADD_UP).numpy()

    def _follow_least(self, index: np.ndarray, before: np.ndarray, weights: np.ndarray | float) -> None:
        """Keep the smallest weight up to date after a change of rows."""
        self._n_least -= int(np.count_nonzero(before == self._least))
        smallest = float(weights.min()) if isinstance(weights, np.ndarray) else weights
        if smallest <= 0:
            positive = np.extract(np.asarray(weights) > 0, weights)
            smallest = float(positive.min(initial=np.inf))
        if smallest > self._least or smallest == np.inf:
            return
        if smallest < self._least:
            self._least, self._n_least = smallest, 0
        # Rows may stand several times in the index, with other weights before the last one.
        smallest_rows = np.unique(index[weights == smallest]) if isinstance(weights, np.ndarray) else np.unique(index)
        self._n_least += int(np.count_nonzero(self[smallest_rows] == smallest))

    def draw(self, uniform: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows at points of the cumulative weights, and their weights.

        Args:
            uniform: ``[n]`` numbers from 0 to 1, without 1.
        """
        sums = self._sums_of_top()
        # In order, searchsorted takes half the time: the processor mispredicts fewer branches.
        order = uniform.argsort()
        mass = uniform.take(order)
        mass *= sums[-1]
        node = sums.searchsorted(mass, "right")
        np.minimum(node, len(sums) - 1, out=node)
        mass -= sums.take(node) - self._top.take(node)
        rows = np.arange(0, len(node) * _FAN, _FAN)
        for level in reversed(self._sums[:-1]):
            children = level.take(node, 0)
            # torch adds up short rows four times as fast as numpy.
            cumulated = torch.cumsum(from_numpy(children), 1).numpy()
            # The number of children before the mass; counted, because branches of a search would be mispredicted.
            child = (cumulated <= mass[:, None]).view(np.uint8) @ _ONES
            # Rounding may leave a mass behind the last child.
            np.minimum(child, _FAN - 1, out=child)
            at = rows + child
            mass -= cumulated.take(at) - children.take(at)
            node *= _FAN
            node += child
        weights = self[node]
        if not weights.all():
            # Rounding has left a rest at the end of a node, or none at its beginning, where children may weigh nothing.
            empty = weights <= 0
            node[empty] = self._nearest(node[empty])
            weights = self[node]
        index, drawn = np.empty_like(node), np.empty_like(weights)
        index[order], drawn[order] = node, weights
        return index, drawn

    def _sums_of_top(self) -> np.ndarray:
        """Return the cumulative sums of the top, computed once after each change."""
        if self._changed:
            self._changed = False
            self._cumulated = torch.cumsum(from_numpy(self._top), 0).numpy()
        return self._cumulated

    def _nearest(self, rows: np.ndarray) -> np.ndarray:
        """Return the last rows with a weight before rows without; or the first after them."""
        filled = np.flatnonzero(self._flat[0])
        at = filled.searchsorted(rows, "right") - 1
        return filled[np.maximum(at, 0)]
