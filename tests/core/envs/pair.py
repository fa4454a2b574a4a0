"""An environment with a row writer, whose agents end by themselves, and no done entry of the whole episode."""

from __future__ import annotations

from typing import ClassVar

import torch
from tensordict import TensorDict

from steppe.envs import BoundWriter, EnvBase, RowLayout, RowWriter
from steppe.specs import Binary, Composite, Unbounded


class Pair(EnvBase):
    """Two agents that end after 2 and after 4 steps, each by itself, and whose row writer has no other end."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        flags = Composite(done=Binary(shape=(1,), dtype=torch.bool))
        self.observation_spec = Composite({name: Composite(count=Unbounded((1,))) for name in ("left", "right")})
        self.reward_spec = Composite({name: Composite(reward=Unbounded((1,))) for name in ("left", "right")})
        self.done_spec = Composite(left=flags, right=flags.clone())
        self.action_spec = Unbounded((1,))
        self.counts = {"left": 0, "right": 0}

    def _reset(self, tensordict=None, **kwargs):
        for name in self.counts:
            mask = None if tensordict is None else tensordict.get((name, "_reset"), None)
            if mask is None or mask.all():
                self.counts[name] = 0
        false = torch.tensor([False])
        entries = lambda count: {"count": torch.tensor([count]).float(), "done": false, "terminated": false}  # noqa: E731
        return TensorDict({name: TensorDict(entries(count)) for name, count in self.counts.items()})

    def no_rows_reason(self):
        return None

    def make_row_writer(self):
        return PairWriter(self)


class PairWriter(RowWriter):
    on_arrays = True
    n = 1

    def __init__(self, env):
        self.env, self.layout = env, RowLayout.of(env)

    def decode(self, actions):
        return self.layout.actions.decode(actions)

    def bind(self, rows, progress):
        return BoundPair(self.env.counts, rows)


class BoundPair(BoundWriter):
    limits: ClassVar = {"left": 2, "right": 4}

    def __init__(self, counts, rows):
        self.counts, self.rows = counts, rows

    def _write(self, arrays):
        for name, count in self.counts.items():
            arrays[name, "count"][0] = count
            for flag in ("done", "terminated"):
                arrays[name, flag][0] = count >= self.limits[name]

    def step(self, actions, at=None):
        for name in self.counts:
            self.counts[name] += 1
            self.rows.next[name, "reward"][0] = actions[0]
        self._write(self.rows.next)
        return [(0, False, False)] if any(self.counts[name] >= limit for name, limit in self.limits.items()) else []

    def reset(self, at, env_info=None):
        for name, limit in self.limits.items():
            if env_info is not None or self.counts[name] >= limit:
                self.counts[name] = 0
        self._write(self.rows.root)


def counts_of_pair(data):
    return [data[name, "count"].flatten().tolist() for name in ("left", "right")]
