"""Values between two bounds, and signs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from steppe import Bounded, TransformedEnv, Unbounded, check_env_specs
from steppe.errors import SpecError
from steppe_tensor import ClipTransform, SignTransform
from steppe_testing import ArrayDataEnv, DataEnv, MultiAgentCountingEnv


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 2, 3)])
def test_values_match_numpy(shape, dtype):
    value = (torch.randn(shape) * 9).to(dtype)
    one = TensorDict({"x": value})

    clipped = ClipTransform(["x"], low=-2, high=3)(one.clone())["x"]
    signs = SignTransform(["x"])(one.clone())["x"]

    assert clipped.dtype is signs.dtype is dtype
    assert np.array_equal(clipped.double().numpy(), np.clip(value.double().numpy(), -2, 3))
    assert np.array_equal(signs.double().numpy(), np.sign(value.double().numpy()))


@pytest.mark.parametrize("base", [ArrayDataEnv, DataEnv])
@pytest.mark.parametrize(
    ("spec", "clipped", "signs"),
    [
        (Unbounded((2,)), (-0.5, 0.25), (-1, 1)),
        (Bounded(0.0, 0.125, (2,)), (0.0, 0.125), (0, 1)),
        (Bounded(-3.0, -2.0, (2,), dtype=torch.float64), (-0.5, -0.5), (-1, -1)),
    ],
)
def test_specs_have_what_is_left_of_the_bounds(spec, clipped, signs, base):
    for transform, expected in (
        (ClipTransform(["x", "reward"], low=-0.5, high=0.25), clipped),
        (SignTransform(["x", "reward"]), signs),
    ):
        env = TransformedEnv(base({"x": spec}, reward=spec), transform)
        check_env_specs(env)
        for leaf in (env.observation_spec["x"], env.reward_spec):
            assert (leaf.low.tolist(), leaf.high.tolist()) == ([expected[0]] * 2, [expected[1]] * 2)
            assert leaf.dtype is spec.dtype


def test_one_bound_is_enough():
    env = TransformedEnv(DataEnv({"x": Unbounded((1,))}), ClipTransform(["x"], low=0.0))
    check_env_specs(env)

    assert (env.observation_spec["x"].low.item(), env.observation_spec["x"].high.item()) == (0.0, float("inf"))


def test_actions_are_clipped_before_the_environment_gets_them():
    seen = []

    class Env(DataEnv):
        def _step(self, tensordict):
            seen.append(tensordict["action"].tolist())
            return super()._step(tensordict)

    env = TransformedEnv(Env({"x": Unbounded((1,))}), ClipTransform(in_keys_inv=["action"], low=-1, high=1))
    signs = TransformedEnv(Env({"x": Unbounded((1,))}), SignTransform(in_keys_inv=["action"]))
    seen.clear()
    env.step(env.reset().set("action", torch.tensor([-3.0, 0.5])))
    signs.step(signs.reset().set("action", torch.tensor([-0.25, 0.5])))

    assert seen == [[-1.0, 0.5], [-1.0, 1.0]]


def test_rewards_of_groups_of_agents():
    env = TransformedEnv(
        MultiAgentCountingEnv(action="continuous"), ClipTransform([("agents", "reward")], low=-0.125, high=0.125)
    )
    check_env_specs(env)

    assert env.rollout(4)["next", "agents", "reward"].abs().max() <= 0.125


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"in_keys": ["x"]}, "expected a bound, found none"),
        ({"in_keys": ["x"], "low": 2, "high": 1}, "low must be below high, found 2 and 1"),
        ({"in_keys": ["x"], "low": [1, 2]}, r"low must be a number or None, found \[1, 2\]"),
        ({"in_keys": ["x"], "high": float("nan")}, "high must be a number or None, found nan"),
        ({"low": 1}, "expected keys, found none"),
    ],
)
def test_invalid_arguments_are_refused(arguments, said):
    with pytest.raises(SpecError, match=said):
        ClipTransform(**arguments)


def test_an_unreachable_bound_of_integers_is_refused():
    env = TransformedEnv(DataEnv({"x": Unbounded((1,), dtype=torch.int64)}), ClipTransform(["x"], high=0.5))

    with pytest.raises(SpecError, match=r"cannot be clipped to 0\.5.*DTypeCastTransform"):
        env.reset()
