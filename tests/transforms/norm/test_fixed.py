"""ObservationNorm and RewardScaling: values, specs, estimated statistics."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from steppe import make_env
from steppe.batched import SerialEnv
from steppe.errors import SpecError, StateError
from steppe.specs import Binary, Bounded, Unbounded
from steppe.transforms import Compose, ObservationNorm, RewardScaling, TransformedEnv
from steppe_testing import ArrayCountingEnv, CountingEnv, DataEnv, NestedCountingEnv

BOX = {"observation": Bounded(torch.tensor([-1.0, 0.0]), torch.tensor([1.0, 4.0]))}


def test_an_observation_is_scaled_and_shifted_or_made_standard():
    loc, scale = torch.tensor([1.0, 2.0]), torch.tensor([2.0, 4.0])
    value = torch.tensor([[3.0, 6.0], [0.0, 0.0]])

    assert ObservationNorm(loc, scale, ["x"])(x=value).tolist() == [[7, 26], [1, 2]]
    assert ObservationNorm(loc, scale, ["x"], standard_normal=True)(x=value).tolist() == [[1, 1], [-0.5, -0.5]]


def test_the_inverse_is_what_the_environment_is_given():
    norm = ObservationNorm(1.0, 2.0, ["observation"], in_keys_inv=["action"])
    env = TransformedEnv(DataEnv(BOX), norm)

    assert env.action_spec == Bounded(-1, 3, (2,))
    assert norm.inv(norm.parent.fake_tensordict().set("action", torch.tensor([3.0, 1.0])))["action"].tolist() == [1, 0]
    standard = ObservationNorm(1.0, 2.0, [], in_keys_inv=["action"], standard_normal=True)
    assert TransformedEnv(DataEnv(BOX), standard).action_spec == Bounded(-1, 0, (2,))


def test_bounds_are_swapped_by_negative_scales():
    norm = ObservationNorm(torch.tensor(1.0), torch.tensor([2.0, -1.0]))

    spec = TransformedEnv(DataEnv(BOX), norm).observation_spec["observation"]

    assert spec == Bounded(torch.tensor([-1.0, -3.0]), torch.tensor([3.0, 1.0]))


def test_bytes_become_floats():
    pixels = DataEnv({"pixels": Bounded(0, 255, (2, 2, 3), dtype=torch.uint8)})
    env = TransformedEnv(pixels, ObservationNorm(0.0, 255.0, standard_normal=True))

    assert env.observation_spec["pixels"] == Bounded(0, 1, (2, 2, 3))
    assert env.rollout(2)["pixels"].dtype is torch.float32


@pytest.mark.parametrize("standard_normal", [False, True])
def test_truth_values_are_normalized_as_zeros_and_ones(standard_normal):
    flags = DataEnv({"observation": Binary(3, dtype=torch.bool), "pixels": Bounded(0, 255, (3,), dtype=torch.uint8)})
    env = TransformedEnv(flags, ObservationNorm(0.5, 2.0, ["observation"], standard_normal=standard_normal))

    data = env.rollout(8)["observation"]

    ends = {-0.25, 0.25} if standard_normal else {0.5, 2.5}
    assert env.observation_spec["observation"].dtype is data.dtype is torch.float32
    assert set(data.flatten().tolist()) == ends
    norm = ObservationNorm(0.5, 2.0, [], in_keys_inv=["flag"], standard_normal=standard_normal)
    assert norm.inv(TensorDict(flag=torch.tensor([True])))["flag"].tolist() == [2.5 if standard_normal else 0.25]


def test_init_stats_makes_observations_standard():
    """The statistics of a rollout with random actions give mean 0 and deviation 1."""
    env = TransformedEnv(make_env("gym:Pendulum-v1"), ObservationNorm(in_keys=["observation"]))
    env.set_seed(0)

    env.transform.init_stats(400)
    seen = env.rollout(400, break_when_any_done=False)["observation"]

    assert env.transform.loc.shape == (3,)
    assert seen.mean(0).abs().max() < 0.6
    assert 0.5 < seen.std(0).min() <= seen.std(0).max() < 1.6


def test_the_numbers_are_the_mean_and_deviation_of_what_was_seen():
    env = TransformedEnv(CountingEnv(max_steps=9), ObservationNorm(in_keys=["observation"], standard_normal=True))

    env.transform.init_stats(20)

    plain = np.tile(np.arange(9, dtype=float), 3)  # three episodes of nine roots
    seen = env.base_env.rollout(20)["observation"][..., 0].numpy()
    assert seen.tolist() == list(range(9))
    assert env.transform.loc.tolist() == pytest.approx([plain.mean()] * len(env.transform.loc))
    assert env.transform.scale.tolist() == pytest.approx([plain.std(ddof=1)] * len(env.transform.scale))


def test_dimensions_are_reduced_and_kept_as_asked():
    frames = {"pixels": Unbounded((3, 4, 5))}
    env = TransformedEnv(SerialEnv(2, lambda: DataEnv(frames)), ObservationNorm(in_keys=["pixels"]))

    env.transform.init_stats(6, reduce_dim=(0, 1, -1, -2), cat_dim=1, keep_dims=(-1, -2))

    assert env.transform.loc.shape == (3, 1, 1)
    assert env.observation_spec["pixels"].shape == (2, 3, 4, 5)


def test_normalizations_are_initialized_one_by_one():
    norms = Compose(ObservationNorm(in_keys=["observation"]), ObservationNorm(in_keys=["observation"]))
    env = TransformedEnv(make_env("gym:Pendulum-v1"), norms)

    with pytest.raises(StateError, match="of several transforms, in their order"):
        env.transform[1].init_stats(10)
    env.transform[0].init_stats(50)
    env.transform[1].init_stats(50)

    assert env.rollout(3)["observation"].isfinite().all()


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"reduce_dim": (0, 1)}, SpecError, r"cat_dim must be one of reduce_dim=\(0, 1\), found None"),
        ({"reduce_dim": 0, "cat_dim": 1}, SpecError, "cat_dim must be one of reduce_dim=0, found 1"),
        ({"keep_dims": (-1,)}, SpecError, r"keep_dims=\(-1,\) are not all in reduce_dim=0"),
    ],
)
def test_wrong_dimensions_are_named(arguments, error, match):
    env = TransformedEnv(CountingEnv(), ObservationNorm(in_keys=["observation"]))

    with pytest.raises(error, match=match):
        env.transform.init_stats(5, **arguments)


def test_numbers_are_found_once_and_in_an_environment():
    with pytest.raises(StateError, match="Append it to one first"):
        ObservationNorm(in_keys=["observation"]).init_stats(5)
    env = TransformedEnv(CountingEnv(), ObservationNorm(0.0, 1.0, in_keys=["observation"]))
    with pytest.raises(StateError, match="loc and scale are known"):
        env.transform.init_stats(5)


def test_without_numbers_a_step_says_how_to_find_them():
    env = TransformedEnv(CountingEnv(), ObservationNorm(in_keys=["observation"]))

    with pytest.raises(StateError, match=r"init_stats\(num_iter\)"):
        env.reset()


def test_statistics_are_loaded_into_a_transform_and_its_clones():
    """A transform without statistics can load them, and its clones see them."""
    known = ObservationNorm(torch.tensor([1.0, 2.0]), torch.tensor([2.0, 3.0]), ["observation"])
    empty = ObservationNorm(in_keys=["observation"])
    env = TransformedEnv(DataEnv(BOX), empty)
    twin = empty.clone()

    empty.load_state_dict(known.state_dict())

    assert set(known.state_dict()) == {"loc", "scale", "standard_normal"}
    assert env.observation_spec["observation"].space.low.tolist() == [-1, 2]
    assert twin.loc.tolist() == [1, 2]


def test_an_invalid_scale_is_refused():
    with pytest.raises(SpecError, match="pass both loc and scale, or neither"):
        ObservationNorm(loc=1.0)
    with pytest.raises(SpecError, match=r"scale must not be negative, found -1.0"):
        ObservationNorm(0.0, -1.0)
    with pytest.raises(SpecError, match="scale must not be negative"):
        RewardScaling(0.0, -1.0)
    with pytest.raises(SpecError, match="loc must be a number or a tensor, found 'a'"):
        RewardScaling("a", 1.0)


def test_rewards_are_scaled():
    env = TransformedEnv(ArrayCountingEnv(5), RewardScaling(0.5, 2.0))
    actions = env.full_action_spec.rand((4,))
    data, plain = (one.rollout(4, actions=actions)["next", "reward"] for one in (env, env.base_env))

    torch.testing.assert_close(data, plain * 2 + 0.5)
    assert RewardScaling(1.0, 2.0, standard_normal=True)(reward=torch.tensor([5.0])).tolist() == [2]
    assert RewardScaling(0.0, 0.0)(reward=torch.tensor([1.0])).item() == pytest.approx(1e-6)


def test_bounds_of_a_reward_are_scaled():
    env = TransformedEnv(DataEnv(BOX, reward=Bounded(-1, 2, (1,))), RewardScaling(1.0, 10.0))

    assert env.reward_spec == Bounded(-9, 21, (1,))


def test_rewards_of_groups_of_agents_are_found():
    env = TransformedEnv(NestedCountingEnv(3), RewardScaling(0.0, 2.0))

    assert env.transform.in_keys == env.reward_keys == [("agents", "reward")]
    with pytest.raises(SpecError, match=r"no reward 'reward'. It has \[\('agents', 'reward'\)\]"):
        TransformedEnv(NestedCountingEnv(3), RewardScaling(0.0, 2.0, ["reward"])).reset()
