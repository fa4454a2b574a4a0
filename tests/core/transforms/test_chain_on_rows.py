"""Transforms on rows of arrays: the same data as on TensorDicts, and a way back to these."""

from __future__ import annotations

import itertools
import pickle

import pytest
import torch

from steppe.batched import ParallelEnv, SerialEnv
from steppe.transforms import (
    Compose,
    DoubleToFloat,
    DTypeCastTransform,
    ExcludeTransform,
    InitTracker,
    RewardSum,
    SelectTransform,
    StepCounter,
    TransformedEnv,
    UnaryTransform,
)
from steppe_testing import ArrayCountingEnv, assert_equal_data


class OnTensorDicts(TransformedEnv):
    """The same environment, off the array path."""

    row_writer = None
    no_row_writer_reason = "this test asks for it"

    @classmethod
    def join_rows(cls, envs):
        return None


PARTS = {
    "count": lambda: StepCounter(),
    "limit": lambda: StepCounter(4),
    "sum": lambda: RewardSum(),
    "mark": lambda: InitTracker(),
    "cast": lambda: DoubleToFloat(),
    "exclude": lambda: ExcludeTransform("total"),
    "select": lambda: SelectTransform("observation", "is_init"),
}


CHAINS = [
    *[(name,) for name in PARTS],
    *itertools.permutations(("limit", "sum", "mark", "cast"), 4),
    ("cast", "exclude", "limit"),
    ("mark", "sum", "limit", "select"),
    ("sum", "exclude", "mark"),
]


def base(**kwargs):
    return ArrayCountingEnv(6, info=True, dtype=torch.float64, action="continuous", noise=True, **kwargs)


def chain(names):
    return Compose(*(PARTS[name]() for name in names))


def play(env, actions, *, stepwise):
    env.set_seed(3)
    if not stepwise:
        return env.rollout(len(actions), actions=actions, break_when_any_done=False)
    td, frames = env.reset(), []
    for action in actions:
        frame, td = env.step_and_maybe_reset(td.set("action", action))
        frames.append(frame)
    return torch.stack(frames, len(env.batch_size))


@pytest.mark.parametrize("names", CHAINS, ids="-".join)
@pytest.mark.parametrize("stepwise", [False, True], ids=["rollout", "steps"])
def test_both_paths_give_equal_data(names, stepwise):
    fast, slow = TransformedEnv(base(), chain(names)), OnTensorDicts(base(), chain(names))
    assert fast.row_writer is not None
    actions = list(fast.full_action_spec.rand((15,))["action"])

    first, second = play(fast, actions, stepwise=stepwise), play(slow, actions, stepwise=stepwise)

    assert_equal_data(first, second)
    assert first["next", "done"].sum() >= 2
    fast.check_env_specs()


@pytest.mark.parametrize("names", [("limit", "sum", "mark", "cast"), ("sum", "exclude", "mark")], ids="-".join)
def test_a_batch_of_them_is_the_batch_transformed(names):
    inside = SerialEnv(3, lambda: TransformedEnv(base(), chain(names)))
    slow = SerialEnv(3, lambda: OnTensorDicts(base(), chain(names)))
    outside = TransformedEnv(SerialEnv(3, base), chain(names))
    actions = list(inside.full_action_spec.rand((15,))["action"])

    expected = play(slow, actions, stepwise=False)
    for env in (inside, outside):
        data = play(env, actions, stepwise=False)
        assert_equal_data(data, expected)


@pytest.mark.parametrize(
    "parts",
    [
        lambda: (RewardSum(), DoubleToFloat()),
        lambda: (UnaryTransform(["total"], ["twice"], fn=lambda x: 2 * x), DoubleToFloat()),
        lambda: (DoubleToFloat(), DTypeCastTransform(torch.float32, torch.float64)),
        lambda: (
            DoubleToFloat(),
            RewardSum(),
            DTypeCastTransform(torch.float32, torch.float64, ["observation"], in_keys_inv=[]),
        ),
    ],
    ids=["sum, cast", "read, cast", "cast, cast", "cast, sum, cast"],
)
def test_a_value_may_be_read_before_it_is_cast(parts):
    assert_equal_ways(*parts())


def assert_equal_ways(*parts):
    fast, slow = (kind(base(), Compose(*(part.clone() for part in parts))) for kind in (TransformedEnv, OnTensorDicts))
    assert fast.no_row_writer_reason is None
    actions = list(fast.full_action_spec.rand((15,))["action"])
    first, second = (play(env, actions, stepwise=False) for env in (fast, slow))
    assert_equal_data(first, second)
    inside = SerialEnv(2, lambda: TransformedEnv(base(), Compose(*(part.clone() for part in parts))))
    slow = SerialEnv(2, lambda: OnTensorDicts(base(), Compose(*(part.clone() for part in parts))))
    actions = list(inside.full_action_spec.rand((15,))["action"])
    assert_equal_data(*(play(env, actions, stepwise=True) for env in (inside, slow)))


@pytest.mark.parametrize("batch", [SerialEnv, ParallelEnv])
@pytest.mark.parametrize(
    "names", [("count",), ("limit", "sum", "mark", "cast"), ("sum", "exclude", "limit")], ids="-".join
)
def test_transforms_behind_a_batch_run_on_its_storage(names, batch):
    with TransformedEnv(batch(3, base), chain(names)) as fast, OnTensorDicts(SerialEnv(3, base), chain(names)) as slow:
        data = []
        for env in (fast, slow):
            env.set_seed(3)
            td, frames = env.reset(), []
            for t in range(14):
                if t == 7:
                    td["step_count" if "step_count" in td.keys() else "episode_reward"] += 2  # what a caller edits
                frame, td = env.step_and_maybe_reset(td.set("action", torch.full_like(env.action_spec.zero(), t / 14)))
                frames.append(frame.clone())
            data.append(torch.stack(frames, 1))
        assert fast.row_steps is not None
        assert slow.row_steps is None
    assert_equal_data(*data)
    assert data[0]["next", "done"].sum() > 3


def test_an_overridden_step_is_called():
    class Louder(TransformedEnv):
        def _step(self, tensordict):
            following = super()._step(tensordict)
            return following.set("reward", following["reward"] + 100)

    env = Louder(base(), StepCounter())

    assert env.row_writer is None
    assert (env.rollout(3)["next", "reward"] > 90).all()


def test_a_plan_follows_the_data_from_wherever_it_comes():
    env = TransformedEnv(base(), Compose(RewardSum(), StepCounter()))
    first, second = env.reset(), env.reset()
    for _ in range(3):
        first = env.step_mdp(env.rand_step(first))
    second = env.step_mdp(env.rand_step(second))

    assert (first["step_count"].item(), second["step_count"].item()) == (3, 1)


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("batch", [lambda make: make(), lambda make: SerialEnv(2, make)], ids=["alone", "serial"])
def test_an_episode_that_an_outer_transform_ends_ends_once(batch, depth):
    """Nested environments are reset once when the outermost ends an episode."""

    def make():
        env = TransformedEnv(ArrayCountingEnv(max_steps=100), RewardSum())
        for level in range(1, depth):
            env = TransformedEnv(env, StepCounter(step_count_key=f"count_{level}"), auto_unwrap=False)
        return TransformedEnv(env, StepCounter(max_steps=3), auto_unwrap=False)

    env = batch(make)
    expected = [step % 3 == 2 for step in range(10)]
    done = env.rollout(10, break_when_any_done=False)["next", "done"].reshape(-1, 10)
    assert all(row == expected for row in done.tolist())
    root, found = env.reset(), []
    for _ in range(10):
        td, root = env.step_and_maybe_reset(env.rand_action(root))
        found.append(td["next", "done"].flatten().tolist())
    assert [row[0] for row in found] == expected
    assert all(len(set(row)) == 1 for row in found)
    env.close()


def test_a_pickle_is_on_the_array_path_too():
    env = pickle.loads(pickle.dumps(TransformedEnv(base(), chain(("limit", "sum", "mark", "cast")))))

    assert env.row_writer is not None
    assert env.rollout(9)["step_count"].squeeze(-1).tolist() == [0, 1, 2, 3]


def test_gradients_of_a_policy_pass():
    weight = torch.zeros(2, requires_grad=True)
    env = TransformedEnv(base(), chain(("count", "sum", "cast")))

    data = env.rollout(3, lambda td: td.set("score", weight.sum() + 1).set("action", weight.detach()))
    data["score"].sum().backward()

    assert weight.grad.tolist() == [3, 3]
