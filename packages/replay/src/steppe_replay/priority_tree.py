"""PriorityTree: sums and minima of priorities, to draw and change many rows in a few calls of numpy and torch."""

from __future__ import annotations

import numpy as np
import torch

__all__ = ["PriorityTree"]

#: Children of a node: few at the bottom, where each row is read from memory, more above, because each level costs the
#: same calls however many children there are.
_FAN, _FAN_ABOVE = 16, 64
#: The first level with at most so many nodes is the top: cumsum and searchsorted are faster there.
_TOP = 1024


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
        self._minima: list[np.ndarray] = []
        size, fan = n, _FAN
        while True:
            nodes = -(-size // fan)
            # Filled, unlike zeros(), they are in large pages.
            self._sums.append(np.full((nodes, fan), 0.0))
            #: The least weight below each node of a level; that of rows is the first, which is not kept.
            self._minima.append(np.full((nodes, fan) if self._minima else (0, fan), np.inf))
            if nodes * fan <= _TOP:
                break
            size, fan = nodes, _FAN_ABOVE
        self._changed = True
        self._top = self._sums[-1].ravel()
        self._cumulated, self._least = self._top, np.inf

    def _look(self) -> None:
        """Add up the top after changes."""
        if self._changed:
            self._changed = False
            self._cumulated = self._top.cumsum()
            top = self._minima[-1] if len(self._minima) > 1 else _or_infinite(torch.from_numpy(self._top))
            self._least = float(top.min())

    @property
    def total(self) -> float:
        """The sum of all weights."""
        self._look()
        return float(self._cumulated[-1])

    @property
    def least(self) -> float:
        """The smallest weight above 0; infinite if there is none."""
        self._look()
        return self._least

    def __getitem__(self, index: np.ndarray) -> np.ndarray:
        """Return weights."""
        return self._sums[0].take(index)

    def set(self, index: np.ndarray, weights: np.ndarray | float) -> None:
        """Set weights of at least 0; of a row that stands several times in ``index``, the last one."""
        self._changed = True
        sums, minima = self._sums, self._minima
        sums[0].reshape(-1)[index] = weights
        for level in range(1, len(sums)):
            index = index // sums[level - 1].shape[1]
            if len(index) > 1024:  # many rows are mostly neighbours
                index = np.unique(index)
            # torch reduces rows of few numbers five times as fast as numpy.
            children = torch.from_numpy(sums[level - 1].take(index, 0))
            sums[level].reshape(-1)[index] = children.sum(1).numpy()
            # Rows have no minima of their own: one array less to read from memory.
            least = _or_infinite(children) if level == 1 else torch.from_numpy(minima[level - 1].take(index, 0))
            minima[level].reshape(-1)[index] = least.amin(1).numpy()

    def draw(self, uniform: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows at points of the cumulative weights, and their weights.

        Args:
            uniform: numbers from 0 to 1, without 1.
        """
        self._look()
        mass = uniform * self._cumulated[-1]
        top = self._cumulated.searchsorted(mass, "right")
        np.minimum(top, len(self._top) - 1, out=top)
        weight = self._top.take(top)
        mass -= self._cumulated.take(top) - weight
        node, rest = torch.from_numpy(top), torch.from_numpy(mass).unsqueeze(1)
        weights = torch.from_numpy(weight)
        for sums in reversed(self._sums[:-1]):
            children = torch.from_numpy(sums.take(node.numpy(), 0))
            cumulated = children.cumsum(1)
            child = torch.searchsorted(cumulated, rest, right=True).clamp_(max=sums.shape[1] - 1)
            chosen = children.gather(1, child)
            rest -= cumulated.gather(1, child) - chosen
            node, weights = node * sums.shape[1] + child.squeeze(1), chosen.squeeze(1)
        rows, values = node.numpy(), weights.numpy()
        if not values.all():
            # Rounding has left a rest at the end of a node, or none at its beginning, where children may weigh nothing.
            empty = values <= 0
            rows[empty] = self._nearest(rows[empty])
            values = self[rows]
        return rows, values

    def _nearest(self, rows: np.ndarray) -> np.ndarray:
        """Return the last rows with a weight before rows without; or the first after them."""
        filled = np.flatnonzero(self._sums[0])
        at = filled.searchsorted(rows, "right") - 1
        return filled[np.maximum(at, 0)]


def _or_infinite(weights: torch.Tensor) -> torch.Tensor:
    """Return weights, infinite instead of 0."""
    return weights.masked_fill(weights <= 0, torch.inf)
