"""Attributes and methods of environments, through a batch of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from steppe import ParallelEnv, SerialEnv, StepCounter, TransformedEnv, make_env
from steppe.errors import ArgumentError, WorkerError
from steppe_testing import ArrayCountingEnv, FailingEnv


@pytest.fixture(params=["serial", "parallel", "shared"])
def pendulums(request: pytest.FixtureRequest) -> Any:
    kwargs: Any = {"create_env_kwargs": [{"g": float(row)} for row in range(4)]}
    if request.param == "serial":
        env: Any = SerialEnv(4, "gym:Pendulum-v1", **kwargs)
    else:
        env = ParallelEnv(4, "gym:Pendulum-v1", num_processes=2, caller_share=request.param == "shared", **kwargs)
    with env:
        yield env


def test_an_attribute_is_read_in_every_environment(pendulums: Any) -> None:
    a, b, c, d = pendulums.unwrapped.g

    assert (a, b, c, d) == (0.0, 1.0, 2.0, 3.0)
    assert pendulums.unwrapped.g[2] == 2.0


def test_a_method_is_called_in_every_environment(pendulums: Any) -> None:
    assert pendulums.unwrapped.__class__ is not None
    assert pendulums.has_wrapper_attr("g") == [True] * 4


def test_an_unknown_attribute_raises_attribute_error(pendulums: Any) -> None:
    assert not hasattr(pendulums, "no_such_thing")
    with pytest.raises(AttributeError, match="no attribute 'no_such_thing'"):
        _ = pendulums.no_such_thing


def test_private_names_and_step_into_are_not_forwarded(pendulums: Any) -> None:
    """A batch forwards no private names and no step_into, which marks array envs."""
    assert not hasattr(pendulums, "_env")
    assert not hasattr(pendulums, "step_into")


def test_an_attribute_that_raises_names_its_environment() -> None:
    """The error of an attribute names the environment, and the batch stays usable."""
    makers = [FailingEnv, FailingEnv, lambda: FailingEnv(in_="attribute"), FailingEnv]
    with ParallelEnv(4, makers, num_processes=2) as env:
        env.reset()
        with pytest.raises(WorkerError, match=r"Worker 1 raised in env\.broken of environment 2") as caught:
            list(env.broken)

        assert caught.value.env == 2
        assert env.rand_step(env.reset()).shape == (4,)


def _raise_import_error() -> None:
    raise ImportError("found nowhere")


class Unreadable:
    """Cannot be unpickled."""

    def __reduce__(self) -> Any:
        return _raise_import_error, ()


class EchoingEnv(ArrayCountingEnv):
    def echo(self, value: Any) -> Any:
        return value

    def unreadable(self) -> Unreadable:
        return Unreadable()


def test_a_value_that_cannot_be_unpickled_is_an_error() -> None:
    """The batch stays usable, whether the worker cannot read an argument or the caller a result."""
    with ParallelEnv(2, EchoingEnv, num_processes=2) as env:
        env.reset()
        with pytest.raises(WorkerError, match="Error"):
            env.echo(Unreadable())
        with pytest.raises(ImportError, match="found nowhere"):
            env.unreadable()

        assert [echo() for echo in env.echo(lambda: 3)] == [3, 3]
        assert env.rollout(3).shape == (2, 3)


def gravities(env: Any) -> list[float]:
    """Return ``g`` of each simulator, past all wrappers."""
    return list(env.unwrapped.g)


def test_an_assigned_attribute_is_set_in_each_environment(pendulums: Any) -> None:
    pendulums.g = 4.5
    assert gravities(pendulums) == [4.5] * 4 == pendulums.g

    pendulums.g = [1.0, 2.5, 4.0, 8.0]  # each its own
    pendulums[1:3].g = 6.0
    assert gravities(pendulums) == [1.0, 6.0, 6.0, 8.0]

    TransformedEnv(pendulums, StepCounter()).unwrapped.g = 0.5
    assert gravities(pendulums) == [0.5] * 4
    assert repr(pendulums.g) == "[0.5, 0.5, 0.5, 0.5]"
    assert "g" not in vars(pendulums)


def test_transforms_pass_an_assignment_on(pendulums: Any) -> None:
    TransformedEnv(pendulums, StepCounter()).g = [3.0, 5.0, 7.0, 9.0]
    assert gravities(pendulums) == [3.0, 5.0, 7.0, 9.0]

    inside = SerialEnv(2, lambda: TransformedEnv(make_env("gym:Pendulum-v1"), StepCounter()))
    inside.g = 2.25
    assert gravities(inside) == [2.25, 2.25]


def test_an_assignment_to_one_environment_reaches_the_library() -> None:
    env = make_env("gym:Pendulum-v1")
    env.g = 40.0

    assert (env.g, env.unwrapped.g) == (40.0, 40.0)
    TransformedEnv(env, StepCounter()).g = 20.0
    assert env.unwrapped.g == 20.0


def test_an_assigned_attribute_changes_the_steps(pendulums: Any) -> None:
    pendulums.set_seed(0)
    start = pendulums.reset().set("action", torch.zeros(4, 1))
    pendulums.g = 0.0
    still = pendulums.step(start.clone())["next", "observation"]
    pendulums.set_seed(0)
    start = pendulums.reset().set("action", torch.zeros(4, 1))
    pendulums.g = [0.0, 0.0, 12.0, 12.0]
    moved = pendulums.step(start)["next", "observation"]

    assert torch.equal(still[:2], moved[:2])
    assert not torch.isclose(still[2:, 2], moved[2:, 2]).any()


def test_a_list_needs_a_value_for_each_environment(pendulums: Any) -> None:
    with pytest.raises(ArgumentError, match="g needs a list of 4 values, one for each environment, found 3"):
        pendulums.g = [1.0, 2.0, 3.0]


def test_a_new_attribute_stays_on_the_batch(pendulums: Any) -> None:
    pendulums.note = "mine"

    assert (pendulums.note, vars(pendulums)["note"]) == ("mine", "mine")


def test_some_environments_without_the_attribute_are_named() -> None:
    env = SerialEnv(2, ["gym:Pendulum-v1", "gym:CartPole-v1"])

    with env, pytest.raises(AttributeError, match=r"\[1\] of this SerialEnv lack 'g'"):
        env.g = 3.0
