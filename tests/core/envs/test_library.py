"""Wrappers of libraries: what they show of the library's environment, and what they do with it."""

from __future__ import annotations

import copy

import pytest
import torch

from steppe.envs import LibraryWrapper, base_arguments
from steppe.errors import ClosedError


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


def test_attributes_that_a_wrapper_lacks_are_those_of_the_library():
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


def test_an_environment_of_a_library_without_close_is_closed_too():
    env = Wrapper(object())

    env.close()

    assert env.is_closed


def test_arguments_of_the_base_are_taken_out_of_those_for_the_library():
    kwargs = {"device": "cpu", "allow_done_after_reset": True, "time_limit": 3}

    own = base_arguments(kwargs)

    assert own == {"device": "cpu", "allow_done_after_reset": True}
    assert kwargs == {"time_limit": 3}
