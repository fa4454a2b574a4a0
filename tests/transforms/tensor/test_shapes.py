"""Dimensions that come, go, change their order or become one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from steppe import Bounded, SerialEnv, TransformedEnv, Unbounded, check_env_specs
from steppe.errors import SpecError
from steppe.specs import Binary, OneHot
from steppe.transforms import Compose, RewardSum, StepCounter
from steppe_tensor import FlattenObservation, PermuteTransform, SqueezeTransform, UnsqueezeTransform
from steppe_testing import ArrayCountingEnv, ArrayDataEnv, CountingEnv, DataEnv, MultiAgentCountingEnv

DTYPES = (torch.float32, torch.float64, torch.uint8, torch.int64)
LEADS = ((), (2,), (2, 3))


def data(dtype, lead, *shape):
    return TensorDict({"x": (torch.randn(*lead, *shape) * 50).abs().to(dtype)}, lead)


@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("dtype", DTYPES)
class TestValues:
    def test_a_dimension_of_size_one_is_inserted_and_taken_out(self, dtype, lead):
        before = data(dtype, lead, 3, 4)

        wide = UnsqueezeTransform(-2, in_keys=["x"], out_keys=["y"])(before.clone())["y"]
        back = SqueezeTransform(-2, in_keys=["y"])(TensorDict({"y": wide}, lead))["y"]

        assert np.array_equal(wide.numpy(), before["x"].numpy()[..., :, None, :])
        assert torch.equal(back, before["x"])
        assert wide.dtype is dtype

    def test_dimensions_change_their_order(self, dtype, lead):
        before = data(dtype, lead, 2, 3, 4)

        found = PermuteTransform((-1, -3, -2), in_keys=["x"])(before.clone())["x"]

        n = len(lead)
        assert np.array_equal(found.numpy(), before["x"].numpy().transpose(*range(n), n + 2, n, n + 1))

    def test_dimensions_become_one(self, dtype, lead):
        before = data(dtype, lead, 2, 3, 4)

        found = FlattenObservation(-3, -2, ["x"])(before.clone())["x"]

        assert np.array_equal(found.numpy(), before["x"].numpy().reshape(*lead, 6, 4))


def test_a_dimension_of_another_size_is_kept():
    assert SqueezeTransform(-1, in_keys=["x"])(data(torch.float32, (), 3))["x"].shape == (3,)


SPECS = [
    Bounded(torch.arange(6.0).reshape(2, 1, 3), torch.arange(6.0).reshape(2, 1, 3) + 1),
    Unbounded((2, 1, 3), dtype=torch.float64),
    Binary(shape=(2, 1, 3), dtype=torch.bool),
    Bounded(0, 255, (2, 1, 3), dtype=torch.uint8),
]
MAPS = [
    (lambda: UnsqueezeTransform(-1, in_keys=["x"]), lambda x: x.unsqueeze(-1)),
    (lambda: SqueezeTransform(-2, in_keys=["x"]), lambda x: x.squeeze(-2)),
    (lambda: PermuteTransform((-1, -3, -2), in_keys=["x"]), lambda x: x.movedim(-1, -3)),
    (lambda: FlattenObservation(-3, -1, in_keys=["x"]), lambda x: x.flatten(-3)),
    (lambda: FlattenObservation(1, 2, in_keys=["x"], allow_positive_dim=True), lambda x: x.flatten(-2)),
    (lambda: UnsqueezeTransform(0, in_keys=["x"], allow_positive_dim=True), lambda x: x.unsqueeze(-4)),
]


@pytest.mark.parametrize(("make", "expected"), MAPS)
@pytest.mark.parametrize("spec", SPECS)
def test_specs_follow_with_their_bounds(spec, make, expected):
    env = TransformedEnv(ArrayDataEnv({"x": spec}), make())
    batch = TransformedEnv(SerialEnv(2, lambda: ArrayDataEnv({"x": spec})), make())
    check_env_specs(env)
    check_env_specs(batch)

    leaf = env.observation_spec["x"]

    assert type(leaf) is type(spec)
    assert leaf.shape == expected(spec.rand()).shape
    assert batch.observation_spec["x"].shape == (2, *leaf.shape)
    if isinstance(spec, Bounded):
        assert torch.equal(leaf.low, expected(spec.low))
        assert torch.equal(leaf.high, expected(spec.high))
    assert env.no_row_writer_reason is None
    batch.close()


def test_the_caller_writes_actions_of_the_other_shape():
    action = Bounded(torch.zeros(2, 3, 4), torch.arange(24.0).reshape(2, 3, 4))
    seen = []

    class Env(DataEnv):
        def _step(self, tensordict):
            seen.append(tensordict["action"])
            return super()._step(tensordict)

    permute = PermuteTransform((-2, -1, -3), in_keys_inv=["action"])
    env = TransformedEnv(Env({"x": Unbounded((1,))}, action=action), permute)
    check_env_specs(env)
    given = env.rand_action(env.reset())
    env.step(given)

    assert env.action_spec.shape == (3, 4, 2)
    assert torch.equal(seen[-1], given["action"].permute(2, 0, 1))


@pytest.mark.parametrize("base", [ArrayDataEnv, DataEnv])
def test_actions_are_squeezed_and_unsqueezed_for_the_environment(base):
    unsqueezed = TransformedEnv(base({"x": Unbounded((1,))}), UnsqueezeTransform(-1, in_keys_inv=["action"]))
    squeezed = TransformedEnv(
        base({"x": Unbounded((1,))}, action=Bounded(-1, 1, (1, 3))),
        SqueezeTransform(-2, in_keys_inv=["action"], out_keys_inv=["flat"]),
    )
    for env, key, shape in ((unsqueezed, "action", (2, 1)), (squeezed, "flat", (3,))):
        check_env_specs(env)
        assert env.rollout(2)[key].shape[1:] == shape


def test_one_hot_actions_keep_their_categories():
    env = TransformedEnv(
        DataEnv({"x": Unbounded((1,))}, action=OneHot(4)), UnsqueezeTransform(-2, in_keys_inv=["action"])
    )
    check_env_specs(env)

    assert env.action_spec == OneHot(4, shape=(1, 4))


def test_rewards_of_groups_of_agents():
    env = TransformedEnv(
        MultiAgentCountingEnv(action="continuous"), SqueezeTransform(-1, in_keys=[("agents", "reward")])
    )

    assert env.full_reward_spec["agents", "reward"].shape == (3,)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: UnsqueezeTransform(0, in_keys=["x"]), "dim=0 is not negative.*allow_positive_dim=True"),
        (lambda: SqueezeTransform(in_keys=["x"]), "dim must be a whole number, found None"),
        (lambda: FlattenObservation(0, -1), "first_dim=0 is not negative"),
        (lambda: PermuteTransform((0, 1), in_keys=["x"]), r"like \(-1, -3, -2\); found \[0, 1\]"),
        (lambda: PermuteTransform((-1, -1), in_keys=["x"]), r"found \[-1, -1\]"),
        (lambda: UnsqueezeTransform(-1), "expected keys, found none. Pass in_keys"),
    ],
)
def test_invalid_arguments_are_refused(make, said):
    with pytest.raises(SpecError, match=said):
        make()


@pytest.mark.parametrize(
    ("transform", "said"),
    [
        (UnsqueezeTransform(-4, in_keys=["x"]), r"out of range for an entry of shape \(2, 3\); pass a dim from -3"),
        (SqueezeTransform(-3, in_keys=["x"]), r"out of range for an entry of shape \(2, 3\); pass a dim from -2"),
        (PermuteTransform((-1, -3, -2), in_keys=["x"]), "has fewer than the 3 dimensions"),
        (FlattenObservation(-1, -2, in_keys=["x"]), "are not a valid range"),
        (FlattenObservation(-3, -1, in_keys=["x"]), "are not a valid range"),
        (SqueezeTransform(-1, in_keys_inv=["action"]), "does not have size 1, so the caller cannot leave it out"),
        (FlattenObservation(-2, -1), "has no entry 'pixels'"),
    ],
)
def test_dimensions_that_an_entry_lacks_are_refused(transform, said):
    with pytest.raises(SpecError, match=said):
        TransformedEnv(DataEnv({"x": Unbounded((2, 3))}), transform).reset()


@pytest.mark.parametrize("base", [ArrayCountingEnv, CountingEnv])
@pytest.mark.parametrize(("adds", "key"), [(RewardSum, "episode_reward"), (StepCounter, "step_count")])
def test_an_entry_that_steps_read_may_be_reshaped(base, adds, key):
    """The next step reads the entry in its first shape, with in_keys_inv, under other out_keys, and with neither."""

    def chain(**keys):
        return TransformedEnv(base(max_steps=3), Compose(adds(), UnsqueezeTransform(-1, in_keys=[key], **keys)))

    for env in (chain(), chain(in_keys_inv=[key])):
        apart = chain(out_keys=["reshaped"])
        check_env_specs(env)
        actions = torch.stack([env.action_spec.rand() for _ in range(3)])
        data, plain = env.rollout(3, actions=actions), apart.rollout(3, actions=actions)
        assert data["next", key].shape == (3, 1, 1)
        assert torch.equal(data["next", key], plain["next", "reshaped"])
        assert torch.equal(data["next", key].squeeze(-1), plain["next", key])
