"""Find the random state of an environment of dm_control, for its seeds."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["find_random_state"]


def find_random_state(env: Any) -> np.random.RandomState | None:
    """Return the random state of an environment, looked up through wrappers.

    Returns None if it has none. In the suite, the task has the state (``task.random``). In a composer environment
    (manipulation, locomotion), the environment has it.

    Args:
        env: an environment of dm_control.
    """
    while env is not None:
        for state in (getattr(env, "random_state", None), getattr(getattr(env, "task", None), "random", None)):
            if isinstance(state, np.random.RandomState):
                return state
        env = getattr(env, "_env", None)
    return None
