"""Wrappers of libraries: attributes, specs and arguments."""

from __future__ import annotations

import copy

import pytest
import torch

from steppe import ParallelEnv
from steppe.envs import LibraryWrapper, MadeByName, base_arguments
from steppe.errors import ArgumentError, ClosedError, NotSupported


class Library:
    level = 3

    def __init__(self):
        self.closed = 0

    def close(self):
        self.closed += 1


class Wrapper(LibraryWrapper):
    def __init__(self, env, **kwargs):
        super().__init__(**kwargs)
        self.wrap_library(env)

    @property
    def broken(self):
        return self.no_such_attribute


def test_a_wrapper_forwards_missing_attributes_to_the_library():
    env = Wrapper(Library())

    assert env.level == 3
    assert copy.deepcopy(env).level == 3
    with pytest.raises(AttributeError, match="no_such_attribute"):
        _ = env.broken


def test_a_module_of_the_library_is_no_part_of_the_environment():
    env = Wrapper(torch.nn.Linear(1, 1))

    assert list(env.parameters()) == []
    assert env.in_features == 1


def test_closing_twice_closes_the_library_once():
    env = Wrapper(Library())

    env.close()
    env.close()

    assert env.closed == 1
    with pytest.raises(ClosedError):
        env.close(raise_if_closed=True)


def test_a_library_environment_without_close_is_closed():
    env = Wrapper(object())

    env.close()

    assert env.is_closed


def test_base_arguments_are_split_from_library_arguments():
    kwargs = {"device": "cpu", "allow_done_after_reset": True, "time_limit": 3}

    own = base_arguments(kwargs)

    assert own == {"device": "cpu", "allow_done_after_reset": True}
    assert kwargs == {"time_limit": 3}


class Named(MadeByName, Wrapper):
    def __init__(self, level, *, num_workers=None, **kwargs):
        super().__init__(Library(), **kwargs)
        self.given = level, num_workers


def test_num_workers_makes_a_batch_without_a_local_env():
    """With num_workers, the constructor makes no environment in this process."""
    batch = Named("first", num_workers=3, auto_reset=True)

    assert type(batch) is ParallelEnv
    assert batch.num_workers == 3
    assert batch.create_env_kwargs == [{"auto_reset": True}] * 3
    batch.close()


def test_one_worker_or_none_makes_the_environment():
    assert [Named("first", num_workers=n).given for n in (0, 1, None)] == [("first", n) for n in (0, 1, None)]
    copied = copy.deepcopy(Named("first"))
    assert type(copied) is Named
    assert copied.level == 3
    with pytest.raises(ArgumentError, match=r"num_workers is a whole number >= 0, found 2\.5"):
        Named("first", num_workers=2.5)


def test_frame_skip_is_refused_without_repeated_actions():
    assert Wrapper(Library(), frame_skip=1).level == 3
    assert Wrapper(Library(), frame_skip=None).level == 3
    for count in (0, 2):
        with pytest.raises(NotSupported, match=rf"Wrapper does not repeat actions: .*FrameSkipTransform\({count}\)"):
            Wrapper(Library(), frame_skip=count)
