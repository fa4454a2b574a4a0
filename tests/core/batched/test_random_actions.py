"""Random actions of a batch whose environments allow other actions at each step."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from tensordict import TensorDict, TensorDictBase

from steppe import AsyncEnvPool, EnvBase, ParallelEnv, SerialEnv, StepCounter, TransformedEnv
from steppe.errors import ActionError
from steppe.specs import Binary, Categorical, Unbounded
from steppe_testing import CountingEnv

BATCHES = {
    "serial": SerialEnv,
    "parallel": partial(ParallelEnv, num_processes=2),
    "threads": lambda n, make: AsyncEnvPool([make] * n, backend="threading"),
}
EACH = pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES.keys())


class MaskedEnv(EnvBase):
    """Allows one of five actions, the number of steps so far plus ``first``, and refuses all others."""

    def __init__(self, first: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.action_spec = Categorical(5)
        self.observation_spec["mask"] = Binary(5, dtype=torch.bool)
        self.reward_spec = Unbounded((1,))
        self.first, self.steps = first, 0

    def _data(self) -> TensorDict:
        mask = torch.zeros(5, dtype=torch.bool)
        mask[(self.first + self.steps) % 5] = True
        return TensorDict({"mask": mask, "done": torch.zeros(1, dtype=torch.bool)})

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        self.steps = 0
        return self._data()

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        if tensordict["action"] != (self.first + self.steps) % 5:
            raise ActionError("not allowed")
        self.steps += 1
        return self._data().set("reward", torch.zeros(1))

    def _set_seed(self, seed: int | None) -> None:
        pass

    def rand_action(self, tensordict: TensorDictBase | None = None) -> TensorDictBase:
        tensordict = super().rand_action(tensordict)
        mask = tensordict.get("mask", None)
        return tensordict.set(
            "action", torch.tensor(self.first + self.steps if mask is None else int(mask.int().argmax()))
        )


@EACH
@pytest.mark.parametrize(
    "around", [lambda env: env, lambda env: TransformedEnv(env, StepCounter())], ids=["bare", "transformed"]
)
def test_random_actions_keep_to_the_masks_of_the_environments(batch, around):
    env = around(batch(2, MaskedEnv))

    data = env.rollout(7)

    assert data["action"].tolist() == [[t % 5 for t in range(7)]] * 2
    env.close()


@EACH
def test_random_actions_use_the_masks_in_the_data(batch):
    env = batch(2, MaskedEnv)
    root = env.reset()
    root["mask"] = torch.eye(5, dtype=torch.bool)[[3, 4]]

    assert env.rand_action(root)["action"].tolist() == [3, 4]
    assert env.rand_action(root) is root
    assert env.rand_action()["action"].tolist() == [0, 0]
    env.close()


def test_each_environment_of_a_batch_uses_its_own_mask():
    env = SerialEnv(2, [MaskedEnv, partial(MaskedEnv, first=2)])

    assert env.rollout(3)["action"].tolist() == [[0, 1, 2], [2, 3, 4]]


@EACH
def test_rows_of_a_batch_are_asked_alone(batch):
    env = batch(3, MaskedEnv)
    root = env.reset()
    root["mask"] = torch.eye(5, dtype=torch.bool)[[3, 4, 1]]

    assert env.rand_action_at(root[1:], [2, 0])["action"].tolist() == [4, 1]
    assert env[1:].chooses_random_actions
    assert env[1:].rand_action(root[:2])["action"].tolist() == [3, 4]
    assert env[[2]].rand_action()["action"].tolist() == [0]
    env.close()


def test_actions_of_some_rows_are_those_drawn_for_all():
    one, other = SerialEnv(4, CountingEnv), SerialEnv(4, CountingEnv)
    one.set_seed(3), other.set_seed(3)
    rows = torch.tensor([3, 1])

    for _ in range(4):
        expected = one.rand_action()["action"]
        assert torch.equal(other.rand_action_at(TensorDict(batch_size=[2]), rows)["action"], expected[rows])


def test_a_batch_reports_environments_that_choose_actions():
    """chooses_random_actions is true if environments choose their random actions."""
    assert SerialEnv(2, MaskedEnv).chooses_random_actions
    assert TransformedEnv(SerialEnv(2, MaskedEnv), StepCounter()).chooses_random_actions
    assert not SerialEnv(2, CountingEnv).chooses_random_actions
