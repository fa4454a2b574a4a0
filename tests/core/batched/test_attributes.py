"""Attributes and methods of environments, through a batch of them."""

from __future__ import annotations

from typing import Any

import pytest

from steppe import ParallelEnv, SerialEnv
from steppe.errors import WorkerError
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
