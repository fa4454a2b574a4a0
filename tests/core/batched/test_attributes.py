"""Attributes and methods of environments, through a batch of them."""

from __future__ import annotations

from typing import Any

import pytest

from steppe import ParallelEnv, SerialEnv
from steppe.errors import WorkerError
from steppe_testing import FailingEnv


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


def test_what_no_environment_has_is_an_attribute_error(pendulums: Any) -> None:
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
