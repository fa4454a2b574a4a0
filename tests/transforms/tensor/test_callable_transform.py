"""Functions as transforms: added, changed and removed entries are in the specs."""

from __future__ import annotations

from contextlib import closing
from functools import partial

import pytest
import torch

from steppe.batched import ParallelEnv, SerialEnv
from steppe.envs import check_env_specs
from steppe.errors import SpecError
from steppe.specs import Composite, NonTensor, Unbounded
from steppe.transforms import CallableTransform, TransformedEnv
from steppe_testing import (
    CountingEnv,
    DynamicSpecEnv,
    HeterogeneousCountingEnv,
    NestedCountingEnv,
    TextCountingEnv,
    assert_equal_data,
)


def add(td):
    return td.set("more", (td["observation"] + 1).double())


def test_entries_that_a_function_adds_are_in_the_specs():
    env = TransformedEnv(CountingEnv(batch_size=(2,)), add)

    assert env.observation_spec["more"] == Unbounded((2, 1), dtype=torch.float64)
    check_env_specs(env)


@pytest.mark.parametrize("kind", [SerialEnv, ParallelEnv])
def test_inside_and_outside_of_a_batch_agree(kind):
    data = []
    for env in (kind(2, lambda: TransformedEnv(CountingEnv(), add)), TransformedEnv(kind(2, CountingEnv), add)):
        with closing(env):
            env.set_seed(0)
            data.append(env.rollout(3))

    assert data[0]["next", "more"].squeeze(-1).tolist() == [[2, 3, 4]] * 2
    assert_equal_data(*data)


@pytest.mark.parametrize(
    ("base", "function"),
    [
        (partial(CountingEnv, noise=True), add),
        (partial(TextCountingEnv, batch_size=(2,)), add),
        (DynamicSpecEnv, lambda td: td.set("observation", td["observation"] + 1)),
        (HeterogeneousCountingEnv, lambda td: td),
    ],
)
def test_entries_that_it_passes_on_keep_their_specs(base, function):
    env = TransformedEnv(base(), function)

    for key, spec in env.base_env.observation_spec.items():
        assert env.observation_spec[key] == spec
    assert env.done_spec == env.base_env.done_spec
    check_env_specs(env)


def test_specs_follow_what_a_function_changes_or_drops():
    def halve(td):
        return td.set("observation", td["observation"].half()).exclude("noise")

    env = TransformedEnv(CountingEnv(noise=True), halve)

    assert env.observation_spec == Composite(observation=Unbounded((1,), dtype=torch.float16))
    check_env_specs(env)


def test_text_and_flags_and_nested_entries_are_found():
    def describe(td):
        return td.set("text", "so far").set(("data", "low"), td["agents", "observation"] < 2)

    env = TransformedEnv(NestedCountingEnv(), describe)

    assert isinstance(env.observation_spec["text"], NonTensor)
    assert env.observation_spec["data", "low"].dtype is torch.bool
    check_env_specs(env)


def test_given_specs_need_no_trial_call():
    calls = []
    CountingEnv().append_transform(CallableTransform(lambda td: calls.append(td) or td, specs={})).reset()

    assert len(calls) == 1


def test_a_function_that_returns_none_is_an_error():
    def forgets(td):
        td["more"] = td["observation"]

    env = TransformedEnv(CountingEnv())
    with pytest.raises(SpecError, match=r"CallableTransform\('forgets'\) must return a TensorDict, found NoneType"):
        env.append_transform(forgets).reset()


def test_a_function_that_fails_on_zeros_leaves_specs_unchanged():
    """A warning names the error and specs=, and the function still runs on real data."""

    def inverse(td):
        if td["observation"].item() == 0:
            raise ValueError("there is no inverse of 0")
        return td.set("inverse", 1 / td["observation"])

    env = TransformedEnv(CountingEnv(3, start=1), inverse)

    with pytest.warns(UserWarning, match=r"ValueError: there is no inverse of 0.*specs=\{...\}"):
        assert list(env.observation_spec.keys()) == ["observation"]
    assert env.reset()["inverse"].item() == 1
