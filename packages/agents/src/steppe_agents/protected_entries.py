"""ProtectedEntries: check that a policy does not overwrite entries of the request, the engine or the environment."""

from __future__ import annotations

import torch
from tensordict import TensorDictBase

from steppe.envs import policy_name
from steppe.errors import PolicyError

__all__ = ["ProtectedEntries"]

#: The owners of entries at the root; the environment owns all others.
_OWNERS = {"agent_info": "the request", "env_info": "the request", "agent_state": "the engine"}


class ProtectedEntries:
    """The entries of a root that a policy must not write, as they are before its first call.

    Args:
        root: the data with which the policy is about to be called.
        of_env: protect the entries of the environment too. In batches a policy may write over observations.
    """

    def __init__(self, root: TensorDictBase, *, of_env: bool) -> None:
        self._before = {
            key: root.get(key)
            for key in root.keys(True, True)
            if of_env or (isinstance(key, tuple) and key[0] in _OWNERS)
        }

    def check(self, policy: object, root: TensorDictBase) -> None:
        """Check the entries after the call of the policy.

        Args:
            policy: the policy, for errors.
            root: the data with the output of the policy.

        Raises:
            PolicyError: the policy wrote to a protected entry.
        """
        for key, value in self._before.items():
            now = root.get(key, None)
            if now is value or not isinstance(value, torch.Tensor):
                continue
            if not isinstance(now, torch.Tensor) or now.dtype != value.dtype or not torch.equal(now, value):
                owner = _OWNERS.get(key[0] if isinstance(key, tuple) else key, "the environment")
                raise PolicyError(
                    f"The policy {policy_name(policy)} writes {key!r}, which belongs to {owner}. Let it "
                    "write to a key of its own; the next state goes to ('next', 'agent_state', ...)."
                )
