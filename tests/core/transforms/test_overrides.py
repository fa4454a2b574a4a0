"""The methods for single specs of transforms that work out all specs at once."""

from __future__ import annotations

import pytest
import torch

from steppe.specs import Composite, Unbounded
from steppe.transforms import (
    Compose,
    DoubleToFloat,
    InitTracker,
    RewardSum,
    StepCounter,
    TensorDictPrimer,
    TransformedEnv,
)
from steppe_testing import ArrayCountingEnv, CountingEnv, NestedCountingEnv

double = torch.float64


def keys(spec):
    return sorted(spec.keys(include_nested=True, leaves_only=True), key=str)


@pytest.mark.parametrize(
    ("transform", "expected"),
    [
        (StepCounter(), ["observation", "step_count"]),
        (InitTracker(), ["is_init", "observation"]),
        (RewardSum(), ["episode_reward", "observation"]),
        (RewardSum(["gain"]), ["episode_gain", "observation"]),
        (TensorDictPrimer(h=Unbounded((4,))), ["h", "observation"]),
        (Compose(StepCounter(), RewardSum()), ["episode_reward", "observation", "step_count"]),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, list) else "",
)
@pytest.mark.parametrize("batch_size", [(), (3,)])
def test_an_observation_spec_is_transformed_without_an_env(transform, expected, batch_size):
    given = Composite(observation=Unbounded((*batch_size, 2)), shape=batch_size)

    spec = transform.transform_observation_spec(given.clone())

    assert keys(spec) == expected
    assert spec.shape == batch_size
    assert all(spec[key].shape[: len(batch_size)] == batch_size for key in expected)


@pytest.mark.parametrize("base", [CountingEnv, ArrayCountingEnv])
def test_transforming_the_base_specs_gives_the_env_specs(base):
    """Each transform_..._spec method maps the base's specs to the environment's."""
    chain = Compose(DoubleToFloat(), StepCounter(4), RewardSum(), InitTracker())
    env = TransformedEnv(base(5, dtype=double), chain)

    for kind in ("observation", "reward", "done", "action", "state"):
        given = getattr(env.base_env, f"full_{kind}_spec").clone()
        assert getattr(chain, f"transform_{kind}_spec")(given) == getattr(env, f"full_{kind}_spec"), kind
    output = chain.transform_output_spec(env.base_env.output_spec.clone())
    assert output == env.output_spec
    assert chain.transform_input_spec(env.base_env.input_spec.clone()) == env.input_spec


def test_done_levels_come_from_the_environment():
    env = TransformedEnv(NestedCountingEnv(5, root_done=None), Compose(StepCounter(3), InitTracker()))

    spec = env.transform.transform_observation_spec(env.base_env.full_observation_spec.clone())

    assert spec["agents", "step_count"] == env.observation_spec["agents", "step_count"]
    assert spec["agents", "is_init"].shape == env.full_done_spec["agents", "done"].shape


def test_a_subclass_may_change_one_spec_more():
    class Marked(StepCounter):
        def transform_observation_spec(self, observation_spec):
            observation_spec = super().transform_observation_spec(observation_spec)
            observation_spec["mark"] = Unbounded((1,))
            return observation_spec

        def _step(self, tensordict, next_tensordict):
            next_tensordict = super()._step(tensordict, next_tensordict)
            return next_tensordict.set("mark", next_tensordict["step_count"] * 10.0)

        def _reset(self, tensordict, tensordict_reset):
            return super()._reset(tensordict, tensordict_reset).set("mark", torch.zeros(1))

    for base in (CountingEnv, ArrayCountingEnv):
        env = TransformedEnv(base(9), Marked(3))

        env.check_env_specs()
        data = env.rollout(4, break_when_any_done=False)
        assert data["next", "mark"].flatten().tolist() == [10, 20, 30, 10]
        assert data["mark"].flatten().tolist() == [0, 10, 20, 0]
