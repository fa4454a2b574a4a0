"""Names of tensordict that not every version has in one place."""

from __future__ import annotations

import threading

import pytest
import tensordict

import steppe
from steppe import compat
from tests.limits import CHILD


def test_steppe_hands_on_the_functions_of_tensordict():
    assert steppe.set_exploration_type is compat.set_interaction_type
    with steppe.set_exploration_type(compat.InteractionType.MODE):
        assert compat.interaction_type() is steppe.exploration_type() is compat.InteractionType.MODE


def test_another_thread_keeps_its_exploration_type():
    """A collector acts in one thread while the caller evaluates in another."""
    if tensordict.__version__.startswith("0.14."):
        pytest.skip("tensordict before 0.15 has one type for all threads")
    inside, go_on = threading.Event(), threading.Event()

    def act():
        with steppe.set_exploration_type(steppe.ExplorationType.RANDOM):
            inside.set()
            go_on.wait(CHILD)

    thread = threading.Thread(target=act)
    with steppe.set_exploration_type(steppe.ExplorationType.MODE):
        thread.start()
        assert inside.wait(CHILD)
        assert steppe.exploration_type() is steppe.ExplorationType.MODE
    go_on.set()
    thread.join(CHILD)
    assert steppe.exploration_type() is None
