"""Factories of environments: ids, callables, EnvCreators and lists of them."""

from __future__ import annotations

import pytest
import torch

from steppe import EnvCreator
from steppe.errors import ArgumentError, IgnoredArgumentWarning
from steppe_testing import ArrayCountingEnv


def test_a_creator_takes_share_memory_with_a_warning() -> None:
    """EnvCreator does not pass share_memory to the factory."""
    with pytest.warns(IgnoredArgumentWarning, match="each worker has its own environment"):
        creator = EnvCreator(ArrayCountingEnv, {"max_steps": 3}, share_memory=False)

    assert creator.create_env_kwargs == {"max_steps": 3}
    assert creator().max_steps == 3


def test_the_state_of_a_creator_equals_a_new_environments() -> None:
    class Stored(ArrayCountingEnv):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))

    assert EnvCreator(Stored).state_dict() == {"seen": torch.zeros(())}


def test_a_second_function_is_no_argument_of_the_first():
    with pytest.raises(ArgumentError, match="EnvCreator takes one function; create_env_kwargs is a dict"):
        EnvCreator(ArrayCountingEnv, ArrayCountingEnv)
