"""Transforms behind a pool: on rows of arrays, with the data that they give on TensorDicts."""

from __future__ import annotations

import pytest
import torch

from steppe import Collector
from steppe.batched import SerialEnv
from steppe.errors import ActionError, ClosedError, NotSupported
from steppe.specs import Unbounded
from steppe.transforms import (
    CallableTransform,
    Compose,
    DoubleToFloat,
    InitTracker,
    RewardSum,
    StepCounter,
    Transform,
    TransformedEnv,
)
from steppe_envpool import MultiThreadedEnv

STEPS = 40


class OnTensorDicts(TransformedEnv):
    """The same environment, off the array path."""

    row_writer = None
    no_row_writer_reason = "this test asks for it"


CHAINS = {
    "count": lambda: (StepCounter(),),
    "limit": lambda: (StepCounter(7),),
    "sum": lambda: (RewardSum(), InitTracker()),
    "all": lambda: (InitTracker(), RewardSum(), StepCounter(9)),
    "cast": lambda: (DoubleToFloat(), StepCounter(6)),
}


def make(cls: type[TransformedEnv], chain: str, name: str = "CartPole-v1", n: int = 3, **kwargs: object):
    env = cls(MultiThreadedEnv(n, name, **kwargs), Compose(*CHAINS[chain]()))
    env.set_seed(5)
    return env


def play(env: TransformedEnv, steps: int = STEPS, edit: int | None = None) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    actions = env.full_action_spec.rand((steps,), generator=generator)["action"]
    td, frames = env.reset(), []
    for t, action in enumerate(actions):
        if t == edit:
            td["step_count"] = td["step_count"] + torch.tensor([[2], [0], [1]])
        frame, td = env.step_and_maybe_reset(td.set("action", action))
        frames.append(frame.clone())
    return torch.stack(frames, 1)


def assert_equal(first, second) -> None:
    assert set(first.keys(True, True)) == set(second.keys(True, True))
    for key in first.keys(True, True):
        assert first[key].dtype is second[key].dtype, key
        assert torch.equal(first[key], second[key]), key


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "HalfCheetah-v4"])
def test_a_transformed_pool_gives_the_same_data_on_rows(chain, name):
    """The data on rows is that on TensorDicts."""
    fast, slow = make(TransformedEnv, chain, name), make(OnTensorDicts, chain, name)
    assert fast.no_row_writer_reason is None
    assert fast.row_writer.n == 3

    first, second = play(fast), play(slow)

    assert_equal(first, second)
    if chain in ("limit", "all", "cast") or name == "CartPole-v1":
        assert first["next", "done"].sum() >= 3


def test_frame_skip_repeats_pools_whose_rows_end_together():
    """A FrameSkipTransform steps on rows around a pool that ends all rows at once."""
    skipping = pytest.importorskip("steppe_time").FrameSkipTransform
    datas = []
    for cls in (TransformedEnv, OnTensorDicts):
        env = cls(MultiThreadedEnv(2, "Pendulum-v1"), Compose(StepCounter(), skipping(3), RewardSum()))
        env.set_seed(5)
        datas.append((env.no_row_writer_reason, play(env, 70)))
    (problem, first), (_, second) = datas

    assert problem is None
    assert first["next", "step_count"][0, 65:68].flatten().tolist() == [198, 200, 3]
    assert_equal(first, second)


def test_dict_observations_and_integer_actions_use_rows():
    arguments = {"name": "MiniGrid-Empty-5x5-v0", "categorical_action_encoding": True}
    fast, slow = make(TransformedEnv, "all", **arguments), make(OnTensorDicts, "all", **arguments)

    first = play(fast)

    assert {"image", "direction"} <= set(first.keys())
    assert fast.no_row_writer_reason is None
    assert_equal(first, play(slow))


def test_a_step_count_that_is_edited_in_the_data_counts_on():
    fast, slow = make(TransformedEnv, "limit"), make(OnTensorDicts, "limit")

    data = play(fast, 12, edit=3)

    assert data["next", "step_count"][:, 3].flatten().tolist() == [6, 4, 5]
    assert_equal(data, play(slow, 12, edit=3))


def test_pool_rollouts_and_masked_resets_are_the_same_on_rows():
    """Rollouts and masked resets of a transformed pool equal those on TensorDicts."""
    datas = []
    for cls in (TransformedEnv, OnTensorDicts):
        env = make(cls, "all")
        actions = env.full_action_spec.rand((20,), generator=torch.Generator().manual_seed(1))["action"]
        data = env.rollout(20, actions=list(actions), break_when_any_done=False)
        td = data[:, -1].clone().exclude("next").set("_reset", torch.tensor([[True], [False], [True]]))
        datas.append((data, env.reset(td)))

    assert_equal(datas[0][0], datas[1][0])
    assert_equal(datas[0][1], datas[1][1])


def test_earlier_steps_of_a_transformed_pool_do_not_change():
    env = make(TransformedEnv, "all")
    td = env.reset()
    _, td = env.step_and_maybe_reset(env.rand_action(td))
    step, root = env.step_and_maybe_reset(env.rand_action(td))
    held, held_root = step.clone(), root.clone()

    for _ in range(12):
        _, root = env.step_and_maybe_reset(env.rand_action(root))

    assert_equal(step, held)
    assert held_root["step_count"].tolist() == [[2]] * 3


def test_the_data_of_a_pool_step_is_the_same_through_its_rows():
    """``step`` of the pool itself goes through rows, ``step_and_maybe_reset`` does not."""
    one, other = MultiThreadedEnv(3, "CartPole-v1"), MultiThreadedEnv(3, "CartPole-v1")
    actions = one.full_action_spec.rand((STEPS,), generator=torch.Generator().manual_seed(0))["action"]
    one.set_seed(2), other.set_seed(2)
    td, root = one.reset(), other.reset()

    for action in actions:
        td = one.step(td.set("action", action))
        step, root = other.step_and_maybe_reset(root.set("action", action))
        assert_equal(td, step)
        td = one.maybe_reset(one.step_mdp(td))


def test_actions_on_rows_are_validated():
    env = make(TransformedEnv, "all")
    _, td = env.step_and_maybe_reset(env.rand_action(env.reset()))

    with pytest.raises(ActionError, match="no action at 'action'"):
        env.step(td.exclude("action"))
    with pytest.raises(ActionError, match=r"of environment 1 must be one-hot"):
        env.step(td.set("action", torch.tensor([[0, 1], [1, 1], [1, 0]])))
    with pytest.raises(KeyError, match="There is no 'step_count' in the data given to step"):
        env.step(env.rand_action(td.exclude("step_count")))


def test_a_partial_step_of_a_pool_is_refused():
    env = make(TransformedEnv, "all")
    _, td = env.step_and_maybe_reset(env.rand_action(env.reset()))

    with pytest.raises(NotSupported, match="there is no partial step"):
        env.step(env.rand_action(td).set("_step", torch.tensor([True, False, True])))


def test_a_closed_pool_is_not_stepped_through_its_rows():
    env = make(TransformedEnv, "all")
    _, td = env.step_and_maybe_reset(env.rand_action(env.reset()))
    env.close()

    with pytest.raises(ClosedError):
        env.step(env.rand_action(td))


class Wrong(Transform):
    """Says another dtype than it writes."""

    def __init__(self):
        super().__init__(in_keys=["observation"], out_keys=["extra"])

    def _call(self, tensordict):
        return tensordict.set("extra", tensordict["observation"].sum(-1, keepdim=True))

    def transform_observation_spec(self, observation_spec):
        observation_spec["extra"] = Unbounded((*observation_spec.shape, 1), dtype=torch.float32)
        return observation_spec


def test_the_reason_says_why_a_pool_has_no_rows():
    raw = MultiThreadedEnv(2, "CartPole-v1", raw_rows=True)
    elsewhere = MultiThreadedEnv(2, "FrozenLake-v1", device="meta")
    own = TransformedEnv(MultiThreadedEnv(2, "CartPole-v1"), Wrong())
    plain = MultiThreadedEnv(2, "CartPole-v1")

    assert (raw.row_writer, raw.no_row_writer_reason) == (None, "with raw_rows=True, some rows are not transitions.")
    assert (elsewhere.row_writer, elsewhere.no_row_writer_reason) == (None, "its data is on meta.")
    assert (own.row_writer, own.no_row_writer_reason) == (None, "Wrong is not written for rows of a batch.")
    assert plain.no_row_writer_reason is None
    assert plain.row_writer is plain.row_writer
    assert TransformedEnv(raw, StepCounter()).no_row_writer_reason == raw.no_row_writer_reason


def test_other_transforms_of_a_pool_work_on_tensordicts():
    env = TransformedEnv(
        MultiThreadedEnv(2, "CartPole-v1"),
        Compose(StepCounter(5), CallableTransform(lambda td: td.set("twice", 2 * td["observation"]))),
    )

    data = env.rollout(7, break_when_any_done=False)

    assert torch.equal(data["twice"], 2 * data["observation"])
    assert env.row_writer is None


def test_a_batch_of_pools_steps_them_on_tensordicts():
    env = SerialEnv(2, lambda: TransformedEnv(MultiThreadedEnv(3, "CartPole-v1"), StepCounter(4)))

    data = env.rollout(6, break_when_any_done=False)

    assert data.batch_size == (2, 3, 6)
    assert data["next", "step_count"][..., :5].amax() == 4
    assert data["next", "done"][..., 3, :].all()


@pytest.mark.parametrize("transformed", [False, True])
@pytest.mark.parametrize("use", ["rollout", "step", "base"])
def test_a_use_in_between_begins_new_trajectories(transformed: bool, use: str) -> None:
    base = MultiThreadedEnv(3, "Pendulum-v1")
    env = TransformedEnv(base, StepCounter()) if transformed else base
    td = env.rand_action(env.reset())
    with Collector(env, frames_per_batch=12) as collector:
        first = next(collector)
        again = next(collector)
        assert torch.equal(first["next", "observation"][:, -1], again["observation"][:, 0])
        {
            "rollout": lambda: env.rollout(3),
            "step": lambda: env.step_and_maybe_reset(td),
            "base": lambda: base.step_and_maybe_reset(td.select("action")),
        }[use]()
        with pytest.warns(UserWarning, match="an environment of its own"):
            second = next(collector)
    assert not set(again["collector", "traj_ids"].flatten().tolist()) & set(
        second["collector", "traj_ids"].flatten().tolist()
    )
    if transformed:
        assert second["step_count"][:, 0].eq(0).all()
