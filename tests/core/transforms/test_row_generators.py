"""Random numbers of transforms, for each row."""

from __future__ import annotations

import pickle

import torch

from steppe import SerialEnv, TransformedEnv
from steppe.specs import Unbounded
from steppe.transforms import RowGenerators, Transform
from steppe_testing import CountingEnv


class Noisy(Transform):
    """A number for each row at a reset."""

    writes_done = False

    def __init__(self):
        super().__init__()
        self.draws = RowGenerators()

    def _set_seed(self, seed):
        self.draws.seed(seed)

    def _reset(self, tensordict, tensordict_reset):
        rows = self.draws.of(tensordict_reset.numel())
        noise = torch.stack([torch.rand(1, generator=generator) for generator in rows])
        return tensordict_reset.set("noise", noise.reshape(*tensordict_reset.batch_size, 1))

    def _step(self, tensordict, next_tensordict):
        return next_tensordict.set("noise", tensordict["noise"])

    def transform_specs(self, specs):
        specs = specs.copy()
        for spec in (specs.observation, specs.state):
            spec["noise"] = Unbounded((*specs.batch_size, 1))
        return specs


def test_a_transform_around_a_batch_draws_what_those_inside_draw():
    inside = SerialEnv(3, lambda: TransformedEnv(CountingEnv(4), Noisy()))
    around = TransformedEnv(SerialEnv(3, lambda: CountingEnv(4)), Noisy())
    for env in (inside, around):
        env.set_seed(5)

    noise = inside.reset()["noise"]

    assert torch.equal(around.reset()["noise"], noise)
    assert noise.unique().numel() == 3


def test_an_unpickled_copy_draws_on():
    draws = RowGenerators()
    draws.seed(3)
    torch.rand(2, generator=draws.of(2)[1])
    other = pickle.loads(pickle.dumps(draws))

    assert torch.equal(torch.rand(2, generator=other.of(2)[1]), torch.rand(2, generator=draws.of(2)[1]))


def test_without_a_seed_the_global_generator_is_drawn_from():
    draws = RowGenerators()
    draws.seed(3)
    draws.seed(None)

    assert draws.of(2) == [None, None]
