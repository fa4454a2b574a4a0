"""Ways to run the environments of a case: alone, in a SerialEnv, in a ParallelEnv, transforms inside or outside."""

from __future__ import annotations

from functools import partial
from typing import Any

from steppe import EnvBase, ParallelEnv, SerialEnv, TransformedEnv
from tests.reference.cases import CHAINS, N, make
from tests.reference.programs import PROGRAMS, SEED, Play, seeds_of
from tests.reference.record_format import Record, record_of

__all__ = ["WAYS", "Players", "ways_of"]

WAYS = ("alone", "serial, inside", "serial, outside", "parallel, inside", "parallel, outside")


def ways_of(chain: str | None) -> list[str]:
    """The ways that differ for a chain."""
    if chain is None:  # nothing is inside or outside
        return [way for way in WAYS if not way.endswith("outside")]
    if chain == "TensorDictPrimer(random)":  # drawn for all rows together, outside
        return [way for way in WAYS if not way.endswith("outside")]
    return list(WAYS)


class Players:
    """The environments of one case, run in one way; made when they are needed, and again after something failed.

    Args:
        name: of the environment.
        chain: of the transforms.
        way: one of WAYS.
    """

    def __init__(self, name: str, chain: str | None, way: str) -> None:
        self.name, self.chain, self.way = name, chain, way
        self._alone = [make(name, chain, row) for row in range(N)]
        self._batch: EnvBase | None = None

    def run(self, program: str) -> Record:
        """Seed, play a program, and return its data."""
        chosen = PROGRAMS[program]
        seeds = seeds_of(self._alone)
        if self.way == "alone":
            rows = range(1) if chosen.apart else range(N)
            frames = []
            for row in rows:
                env = self._alone[row]
                env.set_seed(seeds[row])
                play = Play(env, row, self.name, self._alone)
                chosen.run(play)
                frames += play.frames
            return record_of(frames)
        if self._batch is None:
            self._batch = self._make_batch()
        batch, self._batch = self._batch, None
        try:
            batch.set_seed(SEED)
            play = Play(batch, None, self.name, self._alone)
            chosen.run(play)
        except BaseException:
            batch.close(raise_if_closed=False)
            raise
        self._batch = batch
        return record_of(play.frames)

    def _make_batch(self) -> EnvBase:
        where = self.chain if self.way.endswith("inside") else None
        rows = [partial(make, self.name, where, row) for row in range(N)]
        kind: Any = SerialEnv if self.way.startswith("serial") else partial(ParallelEnv, num_processes=2)
        batch: EnvBase = kind(N, rows)
        if self.chain is None or where is not None:
            return batch
        return TransformedEnv(batch, CHAINS[self.chain]())

    def close(self) -> None:
        """Close the environments."""
        for env in (*self._alone, *([self._batch] if self._batch is not None else [])):
            env.close(raise_if_closed=False)
