"""ConditionalSkip: rows that are not stepped."""

from __future__ import annotations

import pytest
import torch

from steppe.batched import SerialEnv
from steppe.errors import SpecError
from steppe.transforms import Compose, ConditionalSkip, InitTracker, RewardSum, StepCounter, TransformedEnv
from steppe_testing import ArrayCountingEnv, CountingEnv, StatelessCountingEnv


def squeezed(data, key):
    return data[key].squeeze(-1).tolist()


SKIPPED = {
    "tensordict": lambda: CountingEnv(9),
    "arrays": lambda: ArrayCountingEnv(9),
}
BATCHES = {
    "batch": lambda: CountingEnv(9, batch_size=(2,)),
    "serial": lambda: SerialEnv(2, lambda: ArrayCountingEnv(9)),
    "stateless": lambda: StatelessCountingEnv(9, batch_size=(2,)),
}


@pytest.mark.parametrize("make", SKIPPED.values(), ids=SKIPPED.keys())
def test_a_step_is_skipped(make):
    turns = iter([False, True, True, False, False])
    env = TransformedEnv(make(), Compose(RewardSum(), StepCounter(), ConditionalSkip(lambda td: next(turns))))

    data = env.rollout(5)

    assert squeezed(data["next"], "observation") == [1, 1, 1, 2, 3]
    assert squeezed(data["next"], "step_count") == [1, 1, 1, 2, 3]
    assert squeezed(data["next"], "reward")[1:3] == [0, 0]
    assert "_step" not in data.keys()


@pytest.mark.parametrize("make", BATCHES.values(), ids=BATCHES.keys())
@pytest.mark.parametrize("first", [True, False])
def test_rows_are_skipped(make, first):
    parts = [StepCounter(4), ConditionalSkip(lambda td: td["step_count"] >= torch.tensor([[2], [99]])), InitTracker()]
    env = TransformedEnv(make(), Compose(RewardSum(), *(parts if first else reversed(parts))))
    env.check_env_specs()

    data = env.rollout(3, break_when_any_done=False)

    assert squeezed(data["next"], "step_count") == [[1, 2, 2], [1, 2, 3]]
    key = "observation" if "observation" in data.keys() else "count"
    assert squeezed(data["next"], key) == [[1, 2, 2], [1, 2, 3]]


def test_all_rows_can_be_skipped():
    steps = []

    class Watched(CountingEnv):
        def _step(self, tensordict):
            steps.append(1)
            return super()._step(tensordict)

    env = TransformedEnv(Watched(9, batch_size=(2,)), ConditionalSkip(lambda td: torch.ones(2, dtype=torch.bool)))
    env.rollout(4)

    assert steps == []


def test_a_skip_joins_the_mask_of_the_caller():
    env = TransformedEnv(
        CountingEnv(9, batch_size=(3,)), ConditionalSkip(lambda td: torch.tensor([True, False, False]))
    )
    td = env.rand_action(env.reset())
    td["_step"] = torch.tensor([True, True, False])

    assert squeezed(env.step(td), ("next", "observation")) == [0, 1, 0]


def test_step_at_skips_rows_too():
    env = TransformedEnv(SerialEnv(3, lambda: ArrayCountingEnv(9)), ConditionalSkip(lambda td: td["observation"] >= 1))
    td = env.reset()[torch.tensor([0, 2])]
    for _ in range(3):
        td["action"] = torch.tensor([[True, False, False]] * 2)
        td = env.step_mdp(env.step_at(td, [0, 2]))

    assert squeezed(td, "observation") == [1, 1]


def test_a_condition_says_which_rows():
    with pytest.raises(SpecError, match="cond must be a function"):
        ConditionalSkip(True)
    env = TransformedEnv(CountingEnv(9, batch_size=(2,)), ConditionalSkip(lambda td: torch.ones(3, dtype=torch.bool)))
    with pytest.raises(SpecError, match=r"a bool tensor of shape \(2,\); found torch.bool of shape \(3,\)"):
        env.rollout(1)
