"""Families of transforms, written with public methods of the base class.

See docs/guides/write-a-transform.md.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from steppe import EnvBase, OneHot, SerialEnv, TransformedEnv
from steppe.transforms import Transform
from steppe_testing import ArrayCountingEnv, CountingEnv

LENGTHS = (4, 6)
BASES = {"arrays": ArrayCountingEnv, "tensordicts": CountingEnv}


class Twice(Transform):
    """Acts a second time in the rows that have not ended, and adds up the rewards."""

    writes_done = True

    def _step(self, tensordict: Any, next_tensordict: Any) -> Any:
        tensordict["_step"] = ~next_tensordict["done"].squeeze(-1)
        if not tensordict["_step"].any():
            return next_tensordict
        acting = tensordict["_step"].unsqueeze(-1)
        again = self.parent.step(tensordict)["next"]
        for key in ("observation", "done", "terminated"):
            next_tensordict[key] = torch.where(acting, again[key], next_tensordict[key])
        return next_tensordict.set("reward", next_tensordict["reward"] + torch.where(acting, again["reward"], 0.0))


class Warm(Transform):
    """Acts twice at random when an episode begins."""

    def _reset(self, tensordict: Any, tensordict_reset: Any) -> Any:
        mask, data = tensordict.get("_reset", None), tensordict_reset.copy()
        for _ in range(2):
            data = self.parent.rand_action(data)
            if mask is not None:
                data["_step"] = mask.squeeze(-1)
            data = self.parent.step_mdp(self.parent.step(data))
        return tensordict_reset.update(data.select(*tensordict_reset.keys()))


def rollout(kind: str, transform: Any, where: str) -> Any:
    rows = [partial(BASES[kind], length, action="continuous") for length in LENGTHS]
    if where == "inside":
        env: EnvBase = SerialEnv(2, [lambda row=row: TransformedEnv(row(), transform()) for row in rows])
    else:
        env = TransformedEnv(SerialEnv(2, rows), transform())
    return env.rollout(9, break_when_any_done=False)


@pytest.mark.parametrize("where", ["inside", "around"])
@pytest.mark.parametrize("kind", BASES)
class TestInAndAroundABatch:
    def test_repeated_actions_stop_at_the_episode_end(self, kind, where):
        data = rollout(kind, Twice, where)

        assert data["observation"][..., 0].tolist() == [[0, 2] * 4 + [0], [0, 2, 4] * 3]
        assert data["next", "done"].sum(1).flatten().tolist() == [4, 3]

    def test_random_actions_at_a_reset_leave_other_rows_alone(self, kind, where):
        data = rollout(kind, Warm, where)

        assert data["observation"][..., 0].tolist() == [[2, 3] * 4 + [2], [2, 3, 4, 5] * 2 + [2]]


@pytest.mark.parametrize("kind", BASES.values())
def test_a_mask_in_the_data_decides_which_actions_are_drawn(kind):
    class Masked(Transform):
        writes_done = False

        def transform_action_spec(self, spec: Any) -> Any:
            spec["action"] = OneHot(3, mask=torch.ones(3, dtype=torch.bool))
            return spec

        def _call(self, data: Any) -> Any:
            even = data["observation"].flatten()[:1] % 2 == 0
            self.container.action_spec.update_mask(torch.cat([even, ~even, torch.tensor([False])]))
            return data

        def _reset(self, tensordict: Any, data: Any) -> Any:
            return self._call(data)

    env = TransformedEnv(kind(6, action="one_hot"), Masked())

    assert env.rollout(6)["action"].int().argmax(-1).tolist() == [0, 1, 0, 1, 0, 1]
