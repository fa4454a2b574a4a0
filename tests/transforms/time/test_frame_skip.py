"""FrameSkipTransform on rows: among other transforms, in batches, and from edited roots, as on TensorDicts."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from steppe import Composite, ParallelEnv, SerialEnv, TransformedEnv, Unbounded
from steppe.transforms import (
    Compose,
    DoubleToFloat,
    InitTracker,
    ObservationTransform,
    RewardSum,
    StepCounter,
    Transform,
)
from steppe_testing import ArrayCountingEnv, ArrayDataEnv, CountingEnv, DataEnv, assert_equal_data
from steppe_time import CatFrames, FrameSkipTransform, RandomTruncationTransform, TimeMaxPool

WAYS = (ArrayDataEnv, DataEnv)
DOUBLE = {"observation": Unbounded((3,), dtype=torch.float64)}
GROUPS = Composite({"reward": Unbounded((1,)), ("agents", "reward"): Unbounded((2, 1), dtype=torch.float64)})


class Recalled(Transform):
    """A transform that adds an entry of the step's root."""

    writes_done = False

    def transform_observation_spec(self, spec):
        spec["recalled"] = spec["observation"].clone()
        return spec

    def _step(self, tensordict, following):
        return following.set("recalled", tensordict["observation"] + 0.5 * tensordict["action"].sum())

    def _reset(self, tensordict, fresh):
        return fresh.set("recalled", torch.zeros_like(fresh["observation"]))


class Doubled(ObservationTransform):
    def _apply_transform(self, value):
        return 2 * value


class Clipped(Transform):
    """The reward within bounds."""

    def __init__(self, most):
        super().__init__(["reward"])
        self.most = most

    def _apply_transform(self, reward):
        return reward.clamp(-self.most, self.most)


class Shaken(Transform):
    """A transform that adds new noise to each action."""

    def __init__(self):
        super().__init__(in_keys_inv=["action"])

    def _inv_apply_transform(self, action):
        return action + 0.01 * torch.randn_like(action)


CHAINS = {
    "alone": lambda: [FrameSkipTransform(3)],
    "between counts": lambda: [StepCounter(), FrameSkipTransform(2), StepCounter(), RewardSum()],
    "behind a limit": lambda: [StepCounter(4), FrameSkipTransform(3), RewardSum()],
    "before a limit": lambda: [InitTracker(), FrameSkipTransform(2), StepCounter(2)],
    "nested": lambda: [
        StepCounter(11),
        FrameSkipTransform(2),
        RewardSum(),
        FrameSkipTransform(3),
        RewardSum(out_keys=["returns"]),
    ],
    "nested at once": lambda: [FrameSkipTransform(2), FrameSkipTransform(2), InitTracker()],
    "frames": lambda: [CatFrames(3, -1, ["observation"]), FrameSkipTransform(2), TimeMaxPool(T=2)],
    "frames behind": lambda: [TimeMaxPool(T=2), FrameSkipTransform(2), CatFrames(3, -1, ["observation"])],
    "sums of doubles": lambda: [FrameSkipTransform(4), DoubleToFloat()],
    "sums of floats": lambda: [DoubleToFloat(), FrameSkipTransform(4), Clipped(1.0)],
    "clipped each time": lambda: [Clipped(0.5), FrameSkipTransform(3), Clipped(1.0)],
    "the whole root": lambda: [Recalled(), FrameSkipTransform(3), RewardSum()],
    "by torch": lambda: [Doubled(["observation"]), FrameSkipTransform(2), Doubled(["observation"])],
    "lengths": lambda: [StepCounter(), RandomTruncationTransform(2, 4, prob=0.5), FrameSkipTransform(3)],
}


def made(base, chain, reward=None, steps=13, specs=DOUBLE):
    env = TransformedEnv(base(dict(specs), max_steps=steps, reward=reward), Compose(*CHAINS[chain]()))
    env.set_seed(3)
    return env


def stepped(env, steps=12, edit=None):
    """Steps in a loop, one of which begins at a root with another count."""
    td, frames = env.reset(), []
    actions = env.full_action_spec.rand((steps,), generator=torch.Generator().manual_seed(1))
    for t in range(steps):
        if t == edit:
            td["step_count"] = td["step_count"] + 2
        if env.batch_size and t % 3 == 1:
            td["_step"] = torch.arange(env.batch_size[0]) != 1
        frame, td = env.step_and_maybe_reset(td.update(actions[t]))
        frames.append(frame.clone())
    return torch.stack(frames, len(env.batch_size))


@pytest.mark.parametrize("chain", CHAINS)
def test_steps_are_repeated_on_rows_as_on_tensordicts(chain):
    reward = Unbounded((1,), dtype=torch.float64)
    rows, tensordicts = (made(base, chain, reward) for base in WAYS)
    assert rows.no_row_writer_reason is None

    assert_equal_data(stepped(rows), stepped(tensordicts), "a loop of steps")
    for env in (rows, tensordicts):
        env.set_seed(3)
    assert_equal_data(*(env.rollout(20, break_when_any_done=False) for env in (rows, tensordicts)), "a rollout")


@pytest.mark.parametrize("chain", CHAINS)
def test_rows_of_a_batch_are_repeated_until_each_of_them_ends(chain):
    rows, tensordicts = (
        SerialEnv(3, [partial(made, base, chain, None, steps) for steps in (4, 9, 13)]) for base in WAYS
    )

    for env in (rows, tensordicts):
        env.set_seed(5)
    assert_equal_data(stepped(rows), stepped(tensordicts))


#: Chains with a transform that is not written for blocks of rows.
ON_TENSORDICTS = ("the whole root", "by torch", "clipped each time", "sums of floats")


def around(base, chain, inside=()):
    """A batch of which some rows end sooner, and a chain around it."""
    parts = [partial(one, base, chain, steps, inside) for steps in (4, 9, 13)]
    env = TransformedEnv(SerialEnv(3, parts), Compose(*CHAINS[chain]()))
    env.set_seed(5)
    return env


def one(base, chain, steps, inside):
    env = base(dict(DOUBLE), max_steps=steps)
    return TransformedEnv(env, Compose(*(make() for make in inside))) if inside else env


@pytest.mark.parametrize("inside", [(), (lambda: StepCounter(7), RewardSum)], ids=["", "counted inside"])
@pytest.mark.parametrize("chain", CHAINS)
def test_frame_skip_around_a_batch_repeats_until_each_row_ends(chain, inside):
    rows, tensordicts = (around(base, chain, inside) for base in WAYS)

    assert_equal_data(stepped(rows), stepped(tensordicts), "a loop of steps")
    assert (rows.row_steps is not None) is (not inside and chain not in ON_TENSORDICTS)
    for env in (rows, tensordicts):
        env.set_seed(5)
    assert_equal_data(*(env.rollout(20, break_when_any_done=False) for env in (rows, tensordicts)), "a rollout")


def test_environments_of_a_batch_repeat_as_often_as_each_says():
    def make(base, times):
        return TransformedEnv(base(dict(DOUBLE), max_steps=10), Compose(StepCounter(), FrameSkipTransform(times)))

    rows, tensordicts = (SerialEnv(3, [partial(make, base, times) for times in (1, 4, 3)]) for base in WAYS)
    for env in (rows, tensordicts):
        env.set_seed(5)
    data = stepped(rows)

    assert data["next", "step_count"][:, 0, 0].tolist() == [1, 4, 3]
    assert_equal_data(data, stepped(tensordicts))


@pytest.mark.parametrize("base", [ArrayCountingEnv, CountingEnv])
def test_frame_skip_in_and_around_workers_gives_the_same_data(base):
    def chain():
        return Compose(StepCounter(), FrameSkipTransform(3), RewardSum())

    def inside():
        return TransformedEnv(base(7, action="continuous"), chain())

    expected = stepped(SerialEnv(2, inside))
    with ParallelEnv(2, inside) as env:
        assert_equal_data(stepped(env), expected, "inside")
    with TransformedEnv(ParallelEnv(2, partial(base, 7, action="continuous")), chain()) as env:
        assert_equal_data(stepped(env), expected, "around")


def test_rewards_of_groups_are_added_up_in_their_own_dtype():
    rows, tensordicts = (made(base, "between counts", GROUPS) for base in WAYS)
    assert rows.no_row_writer_reason is None

    data = stepped(rows)
    assert data["next", "agents", "reward"].dtype is torch.float64
    assert_equal_data(data, stepped(tensordicts))


def test_a_step_that_begins_at_an_edited_root_repeats_from_there():
    rows, tensordicts = (made(base, "behind a limit") for base in WAYS)

    assert_equal_data(stepped(rows, edit=2), stepped(tensordicts, edit=2))


def test_frame_skip_starts_at_the_state_of_env_info():
    """An episode that env_info begins elsewhere is repeated from there."""

    def skipping(env):
        return TransformedEnv(env, Compose(StepCounter(), FrameSkipTransform(3)))

    found = []
    for base in (ArrayCountingEnv, CountingEnv):
        make = partial(base, 9, env_info=True, action="continuous")
        for batch in (SerialEnv(2, lambda make=make: skipping(make())), skipping(SerialEnv(2, make))):
            td = batch.reset(env_info={"start": torch.tensor([[4], [0]])})
            found.append(stepped_from(batch, td))
    assert found[0]["next", "observation"][:, 0, 0].tolist() == [7, 3]
    for data in found[1:]:
        assert_equal_data(data, found[0])


def stepped_from(env, td):
    frames = []
    for _ in range(5):
        frame, td = env.step_and_maybe_reset(td.update(env.full_action_spec.zero()))
        frames.append(frame.clone())
    return torch.stack(frames, 1)


def test_a_failed_repeated_step_leaves_the_root_unchanged():
    class Failing(ArrayCountingEnv):
        def step_into(self, action, out):
            if self.count == 2 and not self.forgiven:
                self.forgiven = True
                raise RuntimeError("lost")
            return super().step_into(action, out)

    base = Failing(9)
    base.forgiven = False
    env = SerialEnv(1, lambda: TransformedEnv(base, Compose(StepCounter(), FrameSkipTransform(4))))
    td = env.rand_action(env.reset())
    with pytest.raises(RuntimeError, match="lost"):
        env.step(td)

    assert env.step(td)["next", "step_count"].item() == 4


def test_steps_are_repeated_without_tensordicts():
    env = TransformedEnv(ArrayCountingEnv(9), Compose(StepCounter(), FrameSkipTransform(3), RewardSum()))
    assert env.row_writer.on_arrays
    assert env.rollout(2)["next", "step_count"].flatten().tolist() == [3, 6]


def test_random_inverses_are_repeated_on_tensordicts():
    """An inverse that draws anew in each repeated step keeps the chain off the rows."""
    env = TransformedEnv(ArrayDataEnv(dict(DOUBLE)), Compose(Shaken(), FrameSkipTransform(2)))

    assert env.no_row_writer_reason == "Shaken inverts the action again in each step that FrameSkipTransform repeats."
