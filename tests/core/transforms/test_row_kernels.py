"""Transforms that write blocks of rows themselves."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from steppe import SerialEnv, TransformedEnv, Unbounded
from steppe.transforms import Hooks, RowHooks, WholeSpecs
from steppe_testing import ArrayCountingEnv, CountingEnv


class Doubled(WholeSpecs):
    """An observation beside itself: a kernel that replaces an entry by one of another shape under the same key."""

    writes_done = False

    def transform_specs(self, specs):
        specs = specs.copy()
        specs.observation["observation"] = Unbounded((*specs.batch_size, 2))
        return specs

    def shared_key(self):
        return type(self)

    def hooks(self, specs):
        def bind(root, following):
            def step():
                np.copyto(following["observation"], following.before["observation"])
                return False

            def reset(at):
                root["observation"][list(at)] = root.before["observation"][list(at)]

            return step, reset

        def double(_, data):
            return data.set("observation", data["observation"].expand(*data.batch_size, 2))

        return Hooks(step=double, reset=double, reads_root=False, rows=RowHooks(bind, reads=["observation"]))


@pytest.mark.parametrize("base", [ArrayCountingEnv, CountingEnv])
def test_a_kernel_finds_what_it_replaces(base):
    inside = SerialEnv(2, lambda: TransformedEnv(base(3), Doubled()))
    around = TransformedEnv(SerialEnv(2, lambda: base(3)), Doubled())
    expected = torch.tensor([0.0, 1, 2, 0, 1]).reshape(1, 5, 1).expand(2, 5, 2)

    for env in (inside, around):
        env.check_env_specs()
        assert torch.equal(env.rollout(5, break_when_any_done=False)["observation"], expected)
