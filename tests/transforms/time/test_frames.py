"""CatFrames and TimeMaxPool: values, wherever episodes begin."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from tensordict import TensorDict

from steppe import SerialEnv, TransformedEnv, check_env_specs
from steppe.errors import NotSupported, SpecError, StateError
from steppe.specs import Bounded
from steppe.transforms import Compose, StepCounter, UnaryTransform
from steppe_testing import ArrayCountingEnv, CountingEnv, MultiAgentCountingEnv
from steppe_time import CatFrames, TimeMaxPool

LENGTHS = (3, 5)
PLACES = {
    "on rows, inside": lambda make: SerialEnv(
        2, [lambda n=n: TransformedEnv(ArrayCountingEnv(n), make()) for n in LENGTHS]
    ),
    "on TensorDicts, inside": lambda make: SerialEnv(
        2, [lambda n=n: TransformedEnv(CountingEnv(n), make()) for n in LENGTHS]
    ),
    "around rows": lambda make: TransformedEnv(SerialEnv(2, [partial(ArrayCountingEnv, n) for n in LENGTHS]), make()),
    "around TensorDicts": lambda make: TransformedEnv(SerialEnv(2, [partial(CountingEnv, n) for n in LENGTHS]), make()),
}
EACH_PLACE = pytest.mark.parametrize("place", PLACES.values(), ids=PLACES.keys())


@EACH_PLACE
@pytest.mark.parametrize("padding", ["same", "constant"])
def test_stacks_restart_with_each_episode_of_each_row(place, padding):
    env = place(lambda: CatFrames(3, -1, ["observation"], ["stack"], padding=padding, padding_value=-7.0))
    check_env_specs(env)
    data = env.rollout(11, break_when_any_done=False)

    for row, length in enumerate(LENGTHS):
        for step in range(11):
            now = step % length
            frames = [n if n >= 0 else (0 if padding == "same" else -7) for n in (now - 2, now - 1, now)]
            assert data["stack"][row, step].tolist() == frames
            # The first frame of the episode is in its first transition, whatever the padding is.
            assert data["next", "stack"][row, step].tolist() == [*frames[1:], now + 1]


def test_two_stacks_of_one_observation_keep_apart():
    parts = Compose(CatFrames(2, -1, ["observation"], ["two"]), CatFrames(3, -1, ["observation"], ["three"]))
    data = TransformedEnv(CountingEnv(9), parts).rollout(4)

    assert data["two"].tolist() == [[0, 0], [0, 1], [1, 2], [2, 3]]
    assert data["three"].tolist() == [[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3]]


def tenfold(value):
    return 10 * value


@pytest.mark.parametrize("base", [ArrayCountingEnv, CountingEnv])
def test_later_transforms_may_rewrite_the_stack(base):
    parts = Compose(CatFrames(2, -1, ["observation"]), UnaryTransform(["observation"], fn=tenfold), StepCounter())
    data = TransformedEnv(base(9), parts).rollout(3)

    assert data["observation"].tolist() == [[0, 0], [0, 10], [10, 20]]


@pytest.mark.parametrize("base", [ArrayCountingEnv, CountingEnv])
def test_rows_that_a_step_leaves_out_keep_their_frames(base):
    for env in (
        TransformedEnv(SerialEnv(2, partial(base, 9)), CatFrames(2, -1, ["observation"])),
        SerialEnv(2, lambda: TransformedEnv(base(9), CatFrames(2, -1, ["observation"]))),
    ):
        td = env.step_mdp(env.step(env.rand_action(env.reset())))
        td["_step"] = torch.tensor([True, False])
        td = env.step(env.rand_action(td))

        assert td["next", "observation"].tolist() == [[1, 2], [0, 1]]


def test_images_are_stacked_along_channels_with_their_bounds():
    env = TransformedEnv(ArrayCountingEnv(9, pixels=(2, 3)), CatFrames(4, -1))
    check_env_specs(env)
    leaf = env.observation_spec["pixels"]

    assert (leaf.shape, leaf.dtype, leaf.space.high.max()) == ((2, 3, 12), torch.uint8, 255)
    assert env.rollout(5)["pixels"][-1, 0, 0].tolist() == [1] * 3 + [2] * 3 + [3] * 3 + [4] * 3


def test_a_value_of_padding_outside_the_bounds_widens_them():
    env = TransformedEnv(
        ArrayCountingEnv(9, noise=True), CatFrames(2, -1, ["noise"], padding="constant", padding_value=-1)
    )

    check_env_specs(env)
    assert env.observation_spec["noise"] == Bounded(-1.0, 1.0, (2,))


def test_each_agent_of_a_group_has_its_own_stack():
    env = TransformedEnv(MultiAgentCountingEnv(4), CatFrames(2, -1, [("agents", "observation")]))
    check_env_specs(env)

    assert env.rollout(3)["agents", "observation"][:, 0].tolist() == [[0, 0], [0, 1], [1, 2]]


def test_one_frame_is_the_observation():
    env = TransformedEnv(ArrayCountingEnv(9), Compose(CatFrames(1, -1, ["observation"]), TimeMaxPool()))

    assert env.rollout(3)["observation"].flatten().tolist() == [0, 1, 2]


# -- stored data -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("padding", ["same", "constant"])
def test_stored_data_is_stacked_as_the_environment_would_have(padding):
    make = partial(CatFrames, 3, -1, padding=padding, padding_value=-1.0)
    env = TransformedEnv(SerialEnv(2, [partial(CountingEnv, n) for n in LENGTHS]), make(["observation"], ["stack"]))
    data = env.rollout(11, break_when_any_done=False)
    stored = data.exclude("stack", ("next", "stack"))
    again = make(["observation", ("next", "observation")], ["stack", ("next", "stack")])(stored)

    assert torch.equal(again["stack"], data["stack"])
    assert torch.equal(again["next", "stack"], data["next", "stack"])


def test_the_stacked_and_the_time_dimension_may_be_any():
    """Time may be any dimension of that name, and images stack in any of theirs."""
    pixels = torch.arange(5.0).reshape(5, 1, 1, 1, 1).expand(5, 2, 1, 2, 2)
    done = torch.zeros(5, 2, 1, dtype=torch.bool)
    done[1, 0] = True
    data = TensorDict({"pixels": pixels, ("next", "done"): done}, [5, 2], names=["time", None])
    stacked = CatFrames(2, -3)(data)["pixels"]

    assert stacked.shape == (5, 2, 2, 2, 2)
    assert stacked[:, 0, :, 0, 0].tolist() == [[0, 0], [0, 1], [2, 2], [2, 3], [3, 4]]
    assert stacked[:, 1, :, 0, 0].tolist() == [[0, 0], [0, 1], [1, 2], [2, 3], [3, 4]]


def test_future_frames_are_stacked_up_to_the_episode_end():
    done = torch.tensor([False, False, True, False, False]).reshape(1, 5, 1)
    data = TensorDict({"action": torch.arange(5.0).reshape(1, 5, 1), ("next", "done"): done}, [1, 5])
    made = CatFrames(3, -1, ["action"], ["chunk"], future=True, mask_key="padded")(data)

    assert made["chunk"].tolist() == [[[0, 1, 2], [1, 2, 2], [2, 2, 2], [3, 4, 4], [4, 4, 4]]]
    pad = [[0, 0, 0], [0, 0, 1], [0, 1, 1], [0, 0, 1], [0, 1, 1]]
    assert made["padded"].int().tolist() == [pad]


def test_a_buffer_may_stack_when_it_is_extended():
    data = TensorDict({"pixels": torch.arange(3.0).reshape(3, 1), ("next", "done"): torch.zeros(3, 1, dtype=bool)}, [3])
    transform = CatFrames(2, -1, as_inverse=True)

    assert transform(data)["pixels"].shape == (3, 1)
    assert transform.inv(data)["pixels"].tolist() == [[0, 0], [0, 1], [1, 2]]
    assert data["pixels"].shape == (3, 1)


class Slices:
    """A sampler of slices, as buffers have them."""

    def __init__(self, slice_len, num_slices):
        self.slice_len, self.num_slices = slice_len, num_slices


def test_a_buffer_may_store_frames_once_and_stack_samples():
    env = TransformedEnv(CountingEnv(9), CatFrames(3, -1, ["observation"], ["stack"]))
    data = env.rollout(6)
    transform, sampler = env.transform.make_rb_transform_and_sampler(2, sampler=Slices, num_slices=2)
    sample = transform(data.exclude("stack", ("next", "stack")))

    assert (sampler.slice_len, sampler.num_slices) == (3, 2)
    assert torch.equal(sample["stack"], data["stack"][[2, 5]])
    assert sample["stack"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert sample["next", "stack"].tolist() == [[1, 2, 3], [4, 5, 6]]


# -- the largest -----------------------------------------------------------------------------------------------------


@EACH_PLACE
def test_the_largest_of_the_last_observations_of_the_episode(place):
    data = place(lambda: Compose(UnaryTransform(["observation"], fn=torch.neg), TimeMaxPool(T=3))).rollout(
        11, break_when_any_done=False
    )

    for row, length in enumerate(LENGTHS):
        expected = [float(-max(step % length - 2, 0)) for step in range(11)]
        assert data["observation"][row].flatten().tolist() == expected


# -- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: CatFrames(0, -1), "N must be a whole number >= 1, found 0"),
        (lambda: CatFrames(2, 1), "dim must be negative"),
        (lambda: CatFrames(2, -1, padding="zeros"), "'same' or 'constant', found 'zeros'"),
        (lambda: TimeMaxPool(T=0), "T must be a whole number >= 1"),
        (lambda: TimeMaxPool(["a", "b"], ["c"]), "same length"),
    ],
)
def test_bad_arguments_are_refused(make, says):
    with pytest.raises(SpecError, match=says):
        make()


@pytest.mark.parametrize(
    ("part", "error", "says"),
    [
        (CatFrames(2, -1, ["pixels"]), SpecError, r"no observation 'pixels'. It has \['observation'\]"),
        (CatFrames(2, -3, ["observation"]), SpecError, "at least 3 dimensions"),
        (CatFrames(2, -1, ["observation"], future=True), NotSupported, "stored data only"),
        (CatFrames(2, -1, ["observation"], mask_key="mask"), NotSupported, "stored data only"),
        (CatFrames(2, -1, ["observation"], as_inverse=True), NotSupported, "stored data only"),
        (CatFrames(2, -1, ["observation"], reset_key=("agents", "_reset")), SpecError, "no reset mask"),
    ],
)
def test_an_unsuitable_environment_is_an_error(part, error, says):
    with pytest.raises(error, match=says):
        TransformedEnv(CountingEnv(3), part.clone()).rollout(1)


def test_a_step_without_a_reset_says_what_is_missing():
    env = TransformedEnv(CountingEnv(3), CatFrames(2, -1, ["observation"]))

    with pytest.raises(StateError, match="'__frames_observation'"):
        env.step(env.rand_action())


def test_stored_data_without_done_is_an_error():
    with pytest.raises(KeyError, match="at which episodes end"):
        CatFrames(2, -1, ["a"])(TensorDict({"a": torch.zeros(3, 1)}, [3]))
