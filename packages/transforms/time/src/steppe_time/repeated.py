"""Repeated: take several steps with the same actions in one step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from steppe.envs import BoundWriter, Ended, EnvInfos

__all__ = ["Repeated"]

_Array: TypeAlias = "np.ndarray[Any, Any]"


class Repeated(BoundWriter):
    """A bound writer that repeats the steps of another one and adds up the rewards.

    Rows whose episode ends are not stepped again. After a step, the root has the values that the caller passed.

    Args:
        inner: bound writer of single steps.
        counts: number of steps for each row, >= 1.
        root_inputs: arrays ``[n, *shape]`` of the root and of ``next``, for each entry of the root that ``inner``
            reads.
        rewards: arrays ``[n, *shape]`` of the rewards in ``next``.
    """

    def __init__(
        self,
        inner: BoundWriter,
        counts: Sequence[int],
        root_inputs: Iterable[tuple[_Array, _Array]],
        rewards: Iterable[_Array],
    ) -> None:
        self._inner, self._step = inner, inner.step
        self._counts, self._rows = list(counts), range(len(counts))
        self._most, self._alike = max(counts), len(set(counts)) == 1
        self._root_inputs = [(root, following, np.empty_like(root)) for root, following in root_inputs]
        self._rewards = [(reward, np.empty_like(reward)) for reward in rewards]

    def step(self, actions: Any, at: Sequence[int] | None = None) -> Ended:
        ended = self._step(actions, at)
        if ended and len(ended) == len(self._rows if at is None else at):
            return ended
        for root, _, kept in self._root_inputs:
            kept[...] = root
        for reward, total in self._rewards:
            total[...] = reward
        taken = 1
        try:
            if self._alike and at is None:
                # All rows are stepped until the first one ends, so rows need not be checked separately.
                while not ended and taken < self._most:
                    self._advance()
                    ended = self._step(actions, None)
                    for reward, total in self._rewards:
                        total += reward
                    taken += 1
            if taken < self._most:
                ended = self._step_some(actions, at, ended, taken)
        finally:
            for root, _, kept in self._root_inputs:
                root[...] = kept
        for reward, total in self._rewards:
            reward[...] = total
        return ended

    def reset(self, at: Sequence[int], env_info: EnvInfos = None) -> None:
        self._inner.reset(at, env_info)

    def _advance(self) -> None:
        """Copy the entries that the next step reads from ``next`` to the root."""
        for root, following, _ in self._root_inputs:
            root[...] = following

    def _step_some(self, actions: Any, at: Sequence[int] | None, ended: Ended, taken: int) -> Ended:
        """Take the remaining steps, each in the rows whose episode continues."""
        rows = self._rows if at is None else at
        ended = list(ended)
        over = {row for row, _, _ in ended}
        while taken < self._most:
            places = [place for place, row in enumerate(rows) if taken < self._counts[row] and row not in over]
            if not places:
                break
            self._advance()
            if len(places) == len(rows):
                now = self._step(actions, at)
            else:
                now = self._step(_of_places(actions, places, len(rows)), [rows[place] for place in places])
            acted = [rows[place] for place in places]
            for reward, total in self._rewards:
                total[acted] += reward[acted]
            ended += now
            over.update(row for row, _, _ in now)
            taken += 1
        ended.sort()
        return ended


def _of_places(actions: Any, places: list[int], n: int) -> Any:
    """Return the library actions of some of ``n`` rows."""
    if hasattr(actions, "shape"):
        return actions[places]
    if len(actions) != n:
        return actions  # the writer takes whole batches only, and raises its own error
    return [actions[place] for place in places]
