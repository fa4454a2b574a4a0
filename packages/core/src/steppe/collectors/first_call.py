"""The first call of a policy: an error that names the policy that does not fit, and what it may not write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDictBase

from steppe.envs import called_with, policy_name
from steppe.errors import PolicyError, SteppeError

__all__ = ["AGENT_OWNED", "first_call"]

#: Entries at the root that a policy reads and never writes, and whose they are.
_OWNERS = {"agent_info": "the request", "env_info": "the request", "agent_state": "the engine"}

#: The same, for the caller of :func:`first_call` that lets policies write over observations.
AGENT_OWNED = frozenset(_OWNERS)


def first_call(
    name: str,
    policy: Any,
    act: Callable[[TensorDictBase], Any],
    root: TensorDictBase,
    *,
    protected: frozenset[str] | None,
    trusted: bool,
) -> TensorDictBase:
    """Call a policy for the first time, on data from the environment.

    Args:
        name: of the collector, for errors.
        policy: what the caller gave, for errors.
        act: calls it.
        root: the data.
        protected: the policy may not write below these names; None for no entry that is there already.
        trusted: let through what the policy raises, as it is.

    Returns:
        ``root`` with what the policy has returned.

    Raises:
        PolicyError: the policy raised something, returned something else than a TensorDict, or wrote to an entry that
            is not its own.
    """
    before = {
        key: root.get(key)
        for key in root.keys(True, True)
        if protected is None or (isinstance(key, tuple) and key[0] in protected)
    }
    try:
        acted = act(root)
    except SteppeError:
        raise
    except Exception as error:
        if trusted:
            raise
        raise PolicyError(
            f"{name}: the policy {policy_name(policy)} does not act on what the environment gives it: "
            f"{type(error).__name__}: {error}. It was called with {called_with(policy, root)}."
        ) from error
    if acted is not root:
        if not isinstance(acted, TensorDictBase):
            raise PolicyError(f"The policy must return a TensorDict, found {type(acted).__name__}.")
        root.update(acted)
    for key, value in before.items():
        now = root.get(key, None)
        if now is value or not isinstance(value, torch.Tensor):
            continue
        if not isinstance(now, torch.Tensor) or now.dtype != value.dtype or not torch.equal(now, value):
            owner = _OWNERS.get(key[0] if isinstance(key, tuple) else key, "the environment")
            raise PolicyError(
                f"The policy {policy_name(policy)} writes {key!r}, which belongs to {owner}. Let it "
                "write to a key of its own; the next state goes to ('next', 'agent_state', ...)."
            )
    return root
