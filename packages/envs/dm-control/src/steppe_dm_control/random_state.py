"""Where an environment of dm_control keeps the random state that its seed goes to."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["find_random_state"]


def find_random_state(env: Any) -> np.random.RandomState | None:
    """The random state of an environment, through the library's wrappers; None where it has none.

    Tasks of the suite have one (``task.random``); a composer environment (manipulation, locomotion) has it itself.

    Args:
        env: an environment of dm_control.
    """
    while env is not None:
        for state in (getattr(env, "random_state", None), getattr(getattr(env, "task", None), "random", None)):
            if isinstance(state, np.random.RandomState):
                return state
        env = getattr(env, "_env", None)
    return None
