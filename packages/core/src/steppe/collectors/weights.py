"""The policy that acts, and how it comes by the weights of the one that learns."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from torch import nn

from steppe.errors import PolicyError

__all__ = ["Weights"]


class Weights:
    """A policy, or the copy of it that acts on another device.

    Args:
        policy: what the caller gave.
        device: where it acts; None where its parameters are.

    Attributes:
        policy: what acts: ``policy`` itself unless it has parameters elsewhere.
    """

    def __init__(self, policy: Any, device: torch.device | None) -> None:
        self._source = policy
        self.policy = policy
        if device is not None and isinstance(policy, nn.Module):
            tensors = [*policy.parameters(), *policy.buffers()]
            if any(tensor.device != device for tensor in tensors):
                with torch.no_grad():
                    self.policy = copy.deepcopy(policy).to(device)

    @property
    def device(self) -> torch.device | None:
        """Where the parameters of what acts are; None without parameters."""
        if isinstance(self.policy, nn.Module):
            for parameter in self.policy.parameters():
                return parameter.device
        return None

    @torch.no_grad()
    def update(self, given: Any = None) -> None:
        """Take over weights.

        Args:
            given: a module, a TensorDict of parameters (``TensorDict.from_module``), a state dict, or None for those of
                the policy that the caller gave. A policy that acts itself has them already.

        Raises:
            PolicyError: the policy has no parameters, or others.
        """
        target = self.policy
        if given is None:
            given = self._source
            if given is target:
                return
        if given is target:
            return
        if not isinstance(target, nn.Module):
            raise PolicyError(f"The policy is a {type(target).__name__} without parameters, so it takes no weights.")
        try:
            if isinstance(given, nn.Module):
                target.load_state_dict(given.state_dict())
            elif isinstance(given, TensorDictBase):
                TensorDict.from_module(target).data.update_(given.data)
            elif isinstance(given, Mapping):
                target.load_state_dict(given)
            else:
                raise PolicyError(
                    "update_policy_weights_ takes a module, a TensorDict of parameters or a state dict, "
                    f"found {type(given).__name__}."
                )
        except (RuntimeError, KeyError) as error:
            raise PolicyError(f"These weights do not fit the policy: {error}") from error

    def state_dict(self) -> dict[str, Any]:
        """The state dict of what acts; empty where it is no module."""
        return dict(self.policy.state_dict()) if isinstance(self.policy, nn.Module) else {}
