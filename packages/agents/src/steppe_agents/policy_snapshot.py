"""PolicySnapshot: let a job act with the weights of its start, in the process in which they are trained."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from steppe.collectors import PolicyContent, set_attributes

__all__ = ["PolicySnapshot"]


class PolicySnapshot:
    """The tensors and attributes of a policy when a job began.

    A job in this process runs while the caller waits for it or checks it. Between these calls the caller may train the
    policy. The job acts with the weights of its start, as in workers, which read them before their first step.

    Args:
        policy: the policy that acts; None for random actions.
    """

    def __init__(self, policy: object) -> None:
        self._policy = policy
        tensors = {} if policy is None else PolicyContent(policy).tensors
        registered: set[int] = set()
        if isinstance(policy, torch.nn.Module):
            registered = {id(tensor) for tensor in (*policy.parameters(), *policy.buffers())}
        #: Tensors of modules. Their storage is exchanged, because writing into a tensor would break the backward pass
        #: of losses that were computed with it.
        self._of_modules = {
            name: value for name, value in tensors.items() if id(value) in registered or value.requires_grad
        }
        #: Other tensors, some of which are views of numpy arrays. They are copied.
        self._others = {name: value for name, value in tensors.items() if name not in self._of_modules}
        self._values: dict[str, torch.Tensor] = {name: value.detach().clone() for name, value in tensors.items()}
        self._attributes: dict[str, object] = {}
        self._new_attributes: dict[str, object] = {}
        self._before_update: dict[str, object] | None = None

    def before_update(self) -> None:
        """Note the attributes of the policy, before the caller assigns new ones."""
        if self._policy is not None:
            self._collect_attributes()
            self._before_update = PolicyContent(self._policy).values

    def _collect_attributes(self) -> None:
        """Find the attributes that the caller has assigned since ``before_update``."""
        if self._before_update is None:
            return
        changed = PolicyContent(self._policy).changed_since(self._before_update)
        for name, value in changed.items():
            if name in self._before_update:
                self._attributes.setdefault(name, self._before_update[name])
                self._new_attributes[name] = value
        self._before_update = None

    @contextmanager
    def acting(self) -> Iterator[None]:
        """Let the policy have the weights of the snapshot in this context."""
        self._collect_attributes()
        exchanged: dict[str, torch.Tensor] = {}
        for name, tensor in self._of_modules.items():
            # Values are compared, because writing to tensor.data does not change the version of a tensor.
            if not _equal(tensor, self._values[name]):
                exchanged[name] = tensor.data
                tensor.data = self._values[name]
        copied = self._copy_others()
        if self._attributes:
            set_attributes(self._policy, self._attributes)
        try:
            yield
        finally:
            if self._attributes:
                set_attributes(self._policy, self._new_attributes)
            for name, value in copied.items():
                # What the policy itself has written meanwhile is part of the job.
                self._values[name].copy_(self._others[name])
                self._others[name].copy_(value)
            for name, value in self._others.items():
                if name not in copied:
                    self._values[name].copy_(value)
            for name, tensor in self._of_modules.items():
                if name in exchanged:
                    tensor.data = exchanged[name]
                elif not isinstance(tensor, torch.nn.Parameter):  # a buffer, which the policy may have written
                    self._values[name].copy_(tensor.detach())

    @torch.no_grad()
    def _copy_others(self) -> dict[str, Any]:
        """Write the values of the snapshot into the tensors without a version that differ; return their own values."""
        copied = {}
        for name, tensor in self._others.items():
            if not _equal(tensor, self._values[name]):
                copied[name] = tensor.clone()
                tensor.copy_(self._values[name])
        return copied


def _equal(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    return tensor.device == other.device and tensor.dtype is other.dtype and torch.equal(tensor, other)
