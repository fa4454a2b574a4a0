"""Names of tensordict that not every version has in one place."""

from __future__ import annotations

import steppe
from steppe import compat


def test_steppe_hands_on_the_functions_of_tensordict():
    assert steppe.set_exploration_type is compat.set_interaction_type
    with steppe.set_exploration_type(compat.InteractionType.MODE):
        assert compat.interaction_type() is steppe.exploration_type() is compat.InteractionType.MODE
