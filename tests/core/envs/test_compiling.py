"""Compiled environments return the same data."""

from __future__ import annotations

import pickle
import warnings

import pytest
from tensordict import TensorDict

from steppe.batched import SerialEnv
from steppe.errors import IgnoredArgumentWarning
from steppe.transforms import StepCounter, TransformedEnv
from steppe_testing import ArrayCountingEnv, CountingEnv, StatelessCountingEnv, assert_equal_data

START = TensorDict({}, [3])


def is_compiled(env):
    return "_step" in env.__dict__


@pytest.mark.parametrize("warmup", [None, 2])
def test_a_compiled_environment_gives_the_same_data(warmup):
    calls = []

    def backend(graph, inputs):
        calls.append(graph)
        return graph.forward

    compiled = StatelessCountingEnv().compile(warmup, backend=backend)
    plain = StatelessCountingEnv()
    for env in (compiled, plain):
        env.set_seed(0)

    compiled.rollout(2, tensordict=START.copy())
    assert bool(calls) == (warmup is None)
    plain.rollout(2, tensordict=START.copy())
    assert_equal_data(compiled.rollout(5, tensordict=START.copy()), plain.rollout(5, tensordict=START.copy()))
    assert calls


def test_compiling_is_undone_and_not_copied():
    env = StatelessCountingEnv()

    assert env.compile(backend="eager") is env
    assert is_compiled(env)
    assert not is_compiled(pickle.loads(pickle.dumps(env)))
    assert env.eager() is env
    assert not is_compiled(env)


def test_the_base_of_a_transformed_environment_is_compiled():
    env = TransformedEnv(StatelessCountingEnv(), StepCounter())

    assert env.compile(backend="eager") is env
    assert is_compiled(env.base_env)
    assert env.rollout(3, tensordict=START.copy())["next", "step_count"][0].squeeze(-1).tolist() == [1, 2, 3]
    assert not is_compiled(env.eager().base_env)


@pytest.mark.parametrize(
    ("make", "text"),
    [(ArrayCountingEnv, "numpy"), (lambda: SerialEnv(2, CountingEnv), "where it is made")],
    ids=["arrays", "batch"],
)
def test_compile_warns_once_without_a_tensor_step(make, text):
    env = make()

    with pytest.warns(IgnoredArgumentWarning, match=text):
        assert env.compile() is env
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert TransformedEnv(env, StepCounter()).compile().rollout(2).shape[-1] == 2  # once is enough


def test_an_environment_on_arrays_may_be_made_with_compile():
    with pytest.warns(IgnoredArgumentWarning, match="numpy"):
        env = ArrayCountingEnv(compile={"mode": "reduce-overhead"})

    assert env.rollout(2).shape == (2,)
