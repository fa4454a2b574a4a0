"""Names of tensordict that supported versions have in different places or forms; only this module imports them."""

from __future__ import annotations

import functools

from tensordict.nn.probabilistic import InteractionType, interaction_type
from tensordict.nn.probabilistic import set_interaction_type as _set

#: Other threads keep their type: a collector may act in one thread while another evaluates. Before 0.15 they share one.
_IN_THIS_THREAD = {"thread_local": True} if hasattr(_set(), "thread_local") else {}
set_interaction_type = functools.update_wrapper(functools.partial(_set, **_IN_THIS_THREAD), _set)  # type: ignore[arg-type]

__all__ = ["InteractionType", "interaction_type", "set_interaction_type"]
