"""ConditionalSkip, AutoResetTransform and BatchSizeTransform."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from steppe.batched import SerialEnv
from steppe.errors import SpecError
from steppe.transforms import (
    AutoResetEnv,
    AutoResetTransform,
    BatchSizeTransform,
    Compose,
    ConditionalSkip,
    InitTracker,
    RewardSum,
    StepCounter,
    TransformedEnv,
)
from steppe_testing import (
    ArrayCountingEnv,
    AutoResettingCountingEnv,
    AutoResettingHeterogeneousEnv,
    CountingEnv,
    NestedCountingEnv,
    StatelessCountingEnv,
    assert_equal_data,
)


def squeezed(data, key):
    return data[key].squeeze(-1).tolist()


# -- skipping ----------------------------------------------------------------------------------------------------------

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


def test_a_row_that_is_skipped_is_skipped_by_step_at_too():
    env = TransformedEnv(SerialEnv(3, lambda: ArrayCountingEnv(9)), ConditionalSkip(lambda td: td["observation"] >= 1))
    td = env.reset()[torch.tensor([0, 2])]
    for _ in range(3):
        td["action"] = torch.tensor([[True, False, False]] * 2)
        td = env.step_mdp(env.step_at(td, [0, 2]))

    assert squeezed(td, "observation") == [1, 1]


def test_a_condition_says_which_rows():
    with pytest.raises(SpecError, match="cond is a function"):
        ConditionalSkip(True)
    env = TransformedEnv(CountingEnv(9, batch_size=(2,)), ConditionalSkip(lambda td: torch.ones(3, dtype=torch.bool)))
    with pytest.raises(SpecError, match=r"a bool tensor of shape \(2,\); found torch.bool of shape \(3,\)"):
        env.rollout(1)


# -- environments that reset themselves --------------------------------------------------------------------------------


def self_resetting(**kwargs):
    return AutoResettingCountingEnv(3, auto_reset=False, **kwargs)


def test_the_first_observation_goes_to_the_next_root():
    base = self_resetting(start=5)
    env = TransformedEnv(base, Compose(AutoResetTransform(), StepCounter(), InitTracker()))

    data = env.rollout(7, break_when_any_done=False)

    assert base.resets == 1
    assert squeezed(data, "observation") == [5, 6, 7, 5, 6, 7, 5]
    assert data["next", "observation"].isnan().squeeze(-1).tolist() == [False, False, True, False, False, True, False]
    assert squeezed(data, "step_count") == [0, 1, 2, 0, 1, 2, 0]
    assert squeezed(data, "is_init") == [True, False, False, True, False, False, True]


def test_it_is_what_the_flag_of_an_environment_does():
    flagged = AutoResettingCountingEnv(3, start=5, batch_size=(2,))
    transformed = TransformedEnv(self_resetting(start=5, batch_size=(2,)), AutoResetTransform())

    first, second = (env.rollout(7, break_when_any_done=False) for env in (flagged, transformed))

    assert torch.equal(first["next", "done"], second["next", "done"])
    for data in (first, second):
        data["next", "observation"] = data["next", "observation"].nan_to_num(-9.0)
    assert torch.equal(first["observation"], second["observation"])
    assert torch.equal(first["next", "observation"], second["next", "observation"])


def test_fillings():
    env = TransformedEnv(self_resetting(dtype=torch.int64), AutoResetTransform(fill_int=-7))
    assert squeezed(env.rollout(3)["next"], "observation") == [1, 2, -7]
    env = TransformedEnv(self_resetting(), AutoResetTransform(replace=False))
    assert squeezed(env.rollout(3)["next"], "observation") == [1, 2, 0]
    env = TransformedEnv(self_resetting(), AutoResetTransform(fill_float=0.5))
    assert squeezed(env.rollout(3)["next"], "observation") == [1, 2, 0.5]


def test_it_comes_first():
    env = TransformedEnv(self_resetting(), Compose(StepCounter(), AutoResetTransform()))
    with pytest.raises(SpecError, match=r"insert_transform\(0"):
        env.reset()


def test_an_unfinished_episode_is_really_reset():
    base = self_resetting()
    env = TransformedEnv(base, AutoResetTransform())
    env.rollout(2)
    env.reset()

    assert base.resets == 2
    assert squeezed(env.rollout(3)["next"], "observation")[:2] == [1, 2]


# -- batch sizes -------------------------------------------------------------------------------------------------------


def test_a_stateless_environment_is_given_a_batch_size():
    env = TransformedEnv(StatelessCountingEnv(3), Compose(StepCounter(2), BatchSizeTransform([5])))

    assert env.batch_size == (5,)
    assert env.action_spec.shape == (5, 3)
    env.check_env_specs()
    data = env.rollout(4, break_when_any_done=False)
    assert data.batch_size == (5, 4)
    assert squeezed(data[3], "step_count") == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("size", "reshape", "expected"),
    [((6,), lambda data: data.reshape(2, 3), (2, 3)), ((2, 3), lambda data: data.reshape(-1), (6,))],
)
def test_a_batch_is_reshaped(size, reshape, expected):
    base = CountingEnv(3, batch_size=size)
    env = TransformedEnv(base, Compose(StepCounter(), BatchSizeTransform(reshape_fn=reshape), RewardSum()))

    assert env.batch_size == expected
    assert env.observation_spec["observation"].shape == (*expected, 1)
    env.check_env_specs()
    data = env.rollout(5, break_when_any_done=False)
    assert data.batch_size == (*expected, 5)
    assert squeezed(data.reshape(6, 5)[4], "step_count") == [0, 1, 2, 0, 1]

    td = env.step_mdp(env.rand_step(env.reset()))
    mask = torch.zeros(expected, dtype=torch.bool)
    mask.view(-1)[1] = True
    td["_reset"] = mask.unsqueeze(-1)
    env.reset(td)
    assert torch.equal(td["step_count"].squeeze(-1) == 0, mask)
    assert torch.equal(td["observation"].squeeze(-1) == 0, mask)
    env.rand_action(td)["_step"] = mask
    assert (env.step(td)["next", "observation"] == 1).all()


def test_a_batch_may_be_unsqueezed():
    env = TransformedEnv(CountingEnv(3), BatchSizeTransform(reshape_fn=lambda data: data.unsqueeze(0)))

    assert env.batch_size == (1,)
    env.check_env_specs()


def test_a_function_may_make_the_batch_at_the_reset():
    def repeat(td, fresh):
        return fresh.expand(4).clone()

    env = TransformedEnv(StatelessCountingEnv(3), BatchSizeTransform([4], reset_func=repeat))

    assert env.reset().batch_size == (4,)
    assert env.reset(TensorDict(batch_size=[4])).batch_size == (4,)


def test_one_of_the_two_is_given():
    for wrong in ({}, {"batch_size": [2], "reshape_fn": lambda data: data}):
        with pytest.raises(SpecError, match="give batch_size or reshape_fn"):
            BatchSizeTransform(**wrong)
    with pytest.raises(SpecError, match="Use reshape_fn"):
        TransformedEnv(CountingEnv(3, batch_size=(2,)), BatchSizeTransform([4]))
    with pytest.raises(SpecError, match="keep the number of rows"):
        TransformedEnv(CountingEnv(3, batch_size=(2,)), BatchSizeTransform(reshape_fn=lambda data: data[:1]))


def test_groups_are_reshaped_with_their_batch():
    env = TransformedEnv(
        NestedCountingEnv(3, batch_size=(4,), root_done="any"),
        Compose(BatchSizeTransform(reshape_fn=lambda data: data.reshape(2, 2)), StepCounter()),
    )

    env.check_env_specs()
    assert env.rollout(2)["agents", "step_count"].shape == (2, 2, 2, 2, 1)


def test_agents_that_differ_are_moved_to_the_next_root_too():
    flagged = AutoResettingHeterogeneousEnv(2)
    transformed = AutoResettingHeterogeneousEnv(2, auto_reset=False).append_transform(AutoResetTransform())
    for env in (flagged, transformed):
        env.set_seed(0)

    assert_equal_data(transformed.rollout(5, break_when_any_done=False), flagged.rollout(5, break_when_any_done=False))


def test_an_auto_reset_env_of_torchrls_is_a_transformed_env_of_this_name():
    base = self_resetting(start=5)
    env = AutoResetEnv(base, AutoResetTransform())
    env.append_transform(StepCounter())

    env.check_env_specs()
    env.set_seed(0)
    before = base.resets
    data = env.rollout(7, break_when_any_done=False)

    assert isinstance(env, TransformedEnv)
    assert env.base_env is base
    assert base.resets == before + 1
    assert squeezed(data, "observation") == [5, 6, 7, 5, 6, 7, 5]
    assert squeezed(data, "step_count") == [0, 1, 2, 0, 1, 2, 0]
