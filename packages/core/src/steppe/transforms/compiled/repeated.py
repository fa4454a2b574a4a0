"""Repeated: rows that are stepped several times with the same actions in one step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from steppe.envs import BoundWriter, Ended, EnvInfos

__all__ = ["Repeated"]

_Array = np.ndarray[Any, Any]


class Repeated(BoundWriter):
    """A bound writer that steps another one several times with the same actions, and adds up the rewards.

    A row whose episode ends is left alone from then on. The root is as the caller gave it when a step returns.

    Args:
        inner: steps the rows once.
        counts: how often for each row, >= 1.
        carried: arrays ``[n, *shape]`` of the root and of ``next``, for each entry that a step of ``inner`` reads from
            its root.
        rewards: arrays ``[n, *shape]`` of the rewards in ``next``.
    """

    def __init__(
        self,
        inner: BoundWriter,
        counts: Sequence[int],
        carried: Iterable[tuple[_Array, _Array]],
        rewards: Iterable[_Array],
    ) -> None:
        self._inner, self._step = inner, inner.step
        self._counts, self._rows = list(counts), range(len(counts))
        self._most, self._alike = max(counts), len(set(counts)) == 1
        self._carried = [(root, following, np.empty_like(root)) for root, following in carried]
        self._rewards = [(reward, np.empty_like(reward)) for reward in rewards]

    def step(self, actions: Any, at: Sequence[int] | None = None) -> Ended:
        """Act, several times; see :class:`~steppe.envs.BoundWriter`."""
        ended = self._step(actions, at)
        if ended and len(ended) == len(self._rows if at is None else at):
            return ended
        for root, _, kept in self._carried:
            kept[...] = root
        for reward, total in self._rewards:
            total[...] = reward
        taken = 1
        try:
            if self._alike and at is None:
                # Nothing has ended and nothing is left out: no row has to be looked at by itself.
                while not ended and taken < self._most:
                    self._go_on()
                    ended = self._step(actions, None)
                    for reward, total in self._rewards:
                        total += reward
                    taken += 1
            if taken < self._most:
                ended = self._step_some(actions, at, ended, taken)
        finally:
            for root, _, kept in self._carried:
                root[...] = kept
        for reward, total in self._rewards:
            reward[...] = total
        return ended

    def reset(self, at: Sequence[int], env_info: EnvInfos = None) -> None:
        """Begin episodes; see :class:`~steppe.envs.BoundWriter`."""
        self._inner.reset(at, env_info)

    def _go_on(self) -> None:
        """Write what the next of the steps reads from its root, from the ``next`` of the last one."""
        for root, following, _ in self._carried:
            root[...] = following

    def _step_some(self, actions: Any, at: Sequence[int] | None, ended: Ended, taken: int) -> Ended:
        """The rest of the steps, each of those rows that go on."""
        rows = self._rows if at is None else at
        ended = list(ended)
        over = {row for row, _, _ in ended}
        while taken < self._most:
            places = [place for place, row in enumerate(rows) if taken < self._counts[row] and row not in over]
            if not places:
                break
            self._go_on()
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
    """Those of ``n`` native actions that stand at some places."""
    if hasattr(actions, "shape"):
        return actions[places]
    if len(actions) != n:
        return actions  # not one for each row: their writer steps all rows or none, and says so
    return [actions[place] for place in places]
