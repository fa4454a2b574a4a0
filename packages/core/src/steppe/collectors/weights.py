"""The weights of policies: those of the caller's policy, which is trained, and those of the copies that act."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import nn

from steppe.collectors.policy_content import PolicyContent, check_attributes, set_attributes
from steppe.collectors.shared_weights import Field, NewWeights, fields_of, values_for, write_into
from steppe.errors import PolicyError

__all__ = ["SourcePolicy", "Weights"]


class SourcePolicy:
    """The caller's policy, while copies of it act in other places.

    Args:
        policy: the caller's policy.
        name: of the collector, for errors.
    """

    def __init__(self, policy: Any, name: str) -> None:
        self.policy, self._name = policy, name
        self._values = PolicyContent(policy).values
        #: Values that a warning has named. A counter changes with each update, and is reported once.
        self._reported: set[str] = set()

    def shared_fields(self, fields: list[Field]) -> list[Field]:
        """Return the fields of a copy that this policy has too, because a copy may make parts of itself anew."""
        content = PolicyContent(self.policy)
        tensors = [(field, content.find(field.name, field.others)) for field in fields]
        return [field for field, tensor in tensors if tensor is not None and tuple(tensor.shape) == field.shape]

    def weights(self, fields: list[Field], attributes: Mapping[str, object]) -> dict[str, torch.Tensor] | None:
        """Return the new weights of the copies by name; None if the copies have no weights.

        Args:
            fields: the weights of the copies.
            attributes: values that are sent in the same update.

        Raises:
            PolicyError: nothing can be sent although the policy may have changed; or the policy has lost a parameter.

        Warns:
            UserWarning: a number or text has changed that is not sent with the weights; once for each.
        """
        content = PolicyContent(self.policy)
        changed = {name: value for name, value in content.changed_since(self._values).items() if name not in attributes}
        if fields:
            unreported = {name: value for name, value in changed.items() if name not in self._reported}
            if unreported:
                self._reported |= unreported.keys()
                warnings.warn(f"{self._name}.update_policy_weights_: {_not_sent(unreported)}", stacklevel=4)
            return {field.name: _existing(content, field) for field in fields}
        if changed:
            raise PolicyError(f"{self._name}.update_policy_weights_: {_not_sent(changed)}")
        if content.unknown and not attributes:
            raise PolicyError(
                f"{self._name}.update_policy_weights_: no parameters were found in the policy "
                f"{type(self.policy).__name__}, so its copies cannot be brought up to date; the content of "
                f"{[name or type(self.policy).__name__ for name in content.unknown[:5]]} cannot be seen. Give a policy "
                "whose parameters are in a module (policy=module), let policy_factory= return one and say the weights, "
                "update_policy_weights_(weights), or name what changes: update_policy_weights_(attributes={...})."
            )
        return None

    def set_attributes(self, attributes: Mapping[str, object]) -> None:
        """Assign attributes of the caller's policy that are sent to the copies too."""
        set_attributes(self.policy, attributes)
        for name, value in PolicyContent(self.policy).values.items():
            if any(name == attribute or name.startswith(f"{attribute}.") for attribute in attributes):
                self._values[name] = value
                self._reported.discard(name)


def _existing(content: PolicyContent, field: Field) -> torch.Tensor:
    tensor = content.find(field.name, field.others)
    if tensor is None:
        raise PolicyError(f"The policy no longer has {field.name!r}, which its copies act with. Make a new collector.")
    return tensor


def _not_sent(changed: Mapping[str, object]) -> str:
    values = ", ".join(f"{name!r}: {value!r}" for name, value in changed.items())
    return (
        f"{sorted(changed)} of the policy changed, and is not sent with weights, so copies of the policy act with the "
        f"old value. Send an attribute with update_policy_weights_(attributes={{{values}}})."
    )


class Weights:
    """The weights of the policy that acts in this process, which may be a copy on another device.

    Args:
        policy: the caller's policy; None for random actions.
        device: the device to act on; None for the device of the policy.

    Attributes:
        policy: the policy that acts: the caller's, or a copy if that has parameters on another device.
    """

    def __init__(self, policy: Any, device: torch.device | None) -> None:
        self._source: SourcePolicy | None = None
        self.policy = policy
        if device is not None and isinstance(policy, nn.Module):
            tensors = [*policy.parameters(), *policy.buffers()]
            if any(tensor.device != device for tensor in tensors):
                with torch.no_grad():
                    self.policy = copy.deepcopy(policy).to(device)
                self._source = SourcePolicy(policy, "Collector")

    @property
    def device(self) -> torch.device | None:
        """The device of the parameters of the policy that acts; None without parameters."""
        if isinstance(self.policy, nn.Module):
            for parameter in self.policy.parameters():
                return parameter.device
        return None

    def update(self, weights: NewWeights = None, attributes: Mapping[str, object] | None = None) -> None:
        """Copy new weights into the policy that acts, and assign attributes.

        Args:
            weights: a policy, a TensorDict of parameters (``TensorDict.from_module``), or a state dict. None for the
                weights of the caller's policy, which need no copy if that policy acts itself.
            attributes: values by name, see :func:`~steppe.collectors.policy_content.set_attributes`.

        Raises:
            PolicyError: the policy has no parameters, or other ones, or lacks an attribute.
        """
        attributes = attributes or {}
        check_attributes(self.policy, attributes)
        source = self._source
        if weights is None and source is not None:
            source.weights(fields_of(self.policy), attributes)  # raises the errors about content that is not sent
            weights = source.policy
        if weights is not None and weights is not self.policy:
            self._copy(weights)
        if attributes:
            set_attributes(self.policy, attributes)
            if source is not None:
                source.set_attributes(attributes)

    def _copy(self, weights: Any) -> None:
        target, fields = self.policy, fields_of(self.policy)
        values = values_for(fields, weights)
        has_state_dict = isinstance(weights, (nn.Module, Mapping)) and not isinstance(weights, TensorDictBase)
        if isinstance(target, nn.Module) and has_state_dict:
            state = weights.state_dict() if isinstance(weights, nn.Module) else weights
            own_state, known = target.state_dict(), {name for field in fields for name in (field.name, *field.others)}
            if not own_state.keys().isdisjoint(state):
                # load_state_dict also restores the extra state of modules and runs their hooks. Tensors that are in no
                # state dict (buffers that are not persistent, tensors outside of modules) are left to write_into.
                entries = {name: value for name, value in state.items() if name in own_state or name not in known}
                self._load(entries, strict=True)
        write_into(target, fields, values)

    def state_dict(self) -> dict[str, Any]:
        """Return the state dict of the policy that acts, and its tensors outside of modules."""
        state = dict(self.policy.state_dict()) if isinstance(self.policy, nn.Module) else {}
        return {**state, **_outside(self.policy)}

    def load_state_dict(self, state: Mapping[str, Any], *, strict: bool = True) -> None:
        """Load the result of :meth:`state_dict`.

        Args:
            state: from a policy of the same structure.
            strict: raise an error for weights that do not fit.

        Raises:
            PolicyError: the weights do not fit, or the policy has none.
        """
        outside = _outside(self.policy)
        rest = {name: value for name, value in state.items() if name not in outside}
        if isinstance(self.policy, nn.Module):
            self._load(rest, strict=strict)
        elif rest and (strict or not outside):
            raise PolicyError(f"The state has the weights {sorted(rest)}, which this collector's policy has not.")
        with torch.no_grad():
            for name in outside.keys() & state.keys():
                outside[name].copy_(state[name])

    def _load(self, state: Mapping[str, Any], *, strict: bool) -> None:
        try:
            self.policy.load_state_dict(state, strict=strict)
        except RuntimeError as error:
            raise PolicyError(f"These weights do not fit the policy: {error}") from error


def _outside(policy: object) -> dict[str, torch.Tensor]:
    """Return the tensors of a policy that are not in the state dict of a module."""
    if isinstance(policy, TensorDictBase):
        return {}
    registered: set[int] = set()
    if isinstance(policy, nn.Module):
        registered = {id(tensor) for tensor in (*policy.parameters(), *policy.buffers())}
    tensors = PolicyContent(policy).tensors.items()
    return {name: tensor.detach() for name, tensor in tensors if id(tensor) not in registered}
