"""The first call of a policy, with errors that name the policy and its input, and checks of what it writes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from tensordict import TensorDictBase

from steppe.envs import called_with, policy_name, with_written
from steppe.errors import PolicyError, SteppeError

__all__ = ["AGENT_OWNED", "first_call"]

#: Entries at the root that a policy must not write, and their owner, for errors.
_OWNERS = {"agent_info": "the request", "env_info": "the request", "agent_state": "the engine"}

#: The protected entries of batches, in which a policy may write over observations.
AGENT_OWNED = frozenset(_OWNERS)


def first_call(
    name: str,
    policy: object,
    act: Callable[[TensorDictBase], TensorDictBase],
    root: TensorDictBase,
    *,
    protected: frozenset[str] | None,
    trusted: bool,
) -> TensorDictBase:
    """Call a policy for the first time, on data from the environment.

    Args:
        name: of the collector, for errors.
        policy: the caller's policy, for errors.
        act: calls the policy.
        root: the data.
        protected: top-level names below which the policy must not write; None protects all entries of ``root``.
        trusted: do not convert errors of the policy to PolicyError.

    Returns:
        ``root``, updated with the output of the policy.

    Raises:
        PolicyError: the policy raised an error, returned something else than a TensorDict, or wrote to a protected
            entry.
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
    root = with_written(root, acted)
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
