"""The policy that acts, and how it comes by the weights of the one that learns."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import nn

from steppe.collectors.policy_content import PolicyContent, check_attributes, set_attributes
from steppe.collectors.shared_weights import Field, fields_of, values_for, write_into
from steppe.errors import PolicyError

__all__ = ["SourcePolicy", "Weights", "state_of"]


class SourcePolicy:
    """The policy that a caller keeps while copies of it act elsewhere.

    Args:
        policy: what the caller gave.
        name: of the collector, for errors.
    """

    def __init__(self, policy: Any, name: str) -> None:
        self.policy, self._name = policy, name
        self._values = PolicyContent(policy).values
        #: Values whose change was told. A counter changes with each update, and is no news.
        self._told: set[str] = set()

    def shared_fields(self, fields: list[Field]) -> list[Field]:
        """Those fields of a copy that this policy has too: a copy may make parts of itself anew."""
        content = PolicyContent(self.policy)
        found = [(field, content.find(field.name, field.others)) for field in fields]
        return [field for field, tensor in found if tensor is not None and tuple(tensor.shape) == field.shape]

    def weights(self, fields: list[Field], attributes: Mapping[str, Any]) -> dict[str, torch.Tensor] | None:
        """The weights that the copies are to take over, by name; None where they have none.

        Args:
            fields: what the copies take over.
            attributes: values that are sent beside these.

        Raises:
            PolicyError: nothing can be sent, and the policy may have changed; or it has lost a parameter.

        Warns:
            UserWarning: a number or text has changed, which is not sent with the weights; once for each.
        """
        content = PolicyContent(self.policy)
        changed = {name: value for name, value in content.changed_since(self._values).items() if name not in attributes}
        if fields:
            untold = {name: value for name, value in changed.items() if name not in self._told}
            if untold:
                self._told |= untold.keys()
                warnings.warn(f"{self._name}.update_policy_weights_: {_not_sent(untold)}", stacklevel=4)
            return {field.name: _present(content, field) for field in fields}
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

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Assign attributes of the caller's policy, which the copies are given too."""
        set_attributes(self.policy, attributes)
        for name, value in PolicyContent(self.policy).values.items():
            if any(name == one or name.startswith(f"{one}.") for one in attributes):
                self._values[name] = value
                self._told.discard(name)


def _present(content: PolicyContent, field: Field) -> torch.Tensor:
    tensor = content.find(field.name, field.others)
    if tensor is None:
        raise PolicyError(f"The policy no longer has {field.name!r}, which its copies act with. Make a new collector.")
    return tensor


def _not_sent(changed: Mapping[str, Any]) -> str:
    given = ", ".join(f"{name!r}: {value!r}" for name, value in changed.items())
    return (
        f"{sorted(changed)} of the policy changed, and is not sent with weights, so copies of the policy act with the "
        f"old value. Send an attribute with update_policy_weights_(attributes={{{given}}})."
    )


class Weights:
    """A policy, or the copy of it that acts on another device.

    Args:
        policy: what the caller gave.
        device: where it acts; None where its parameters are.

    Attributes:
        policy: what acts: ``policy`` itself unless it has parameters elsewhere.
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
        """Where the parameters of what acts are; None without parameters."""
        if isinstance(self.policy, nn.Module):
            for parameter in self.policy.parameters():
                return parameter.device
        return None

    def update(self, given: Any = None, attributes: Mapping[str, Any] | None = None) -> None:
        """Take over weights, and attributes.

        Args:
            given: a policy, a TensorDict of parameters (``TensorDict.from_module``), a state dict, or None for those of
                the policy that the caller gave. A policy that acts itself has them already.
            attributes: values by name, see :func:`~steppe.collectors.policy_content.set_attributes`.

        Raises:
            PolicyError: the policy has no parameters, or others, or no such attributes.
        """
        attributes = attributes or {}
        check_attributes(self.policy, attributes)
        source = self._source
        if given is None and source is not None:
            source.weights(fields_of(self.policy), attributes)  # says what cannot be copied
            given = source.policy
        if given is not None and given is not self.policy:
            self._copy(given)
        if attributes:
            set_attributes(self.policy, attributes)
            if source is not None:
                source.set_attributes(attributes)

    def _copy(self, given: Any) -> None:
        target, fields = self.policy, fields_of(self.policy)
        values = values_for(fields, given)
        if isinstance(target, nn.Module) and not isinstance(given, TensorDictBase):
            state = given.state_dict() if isinstance(given, nn.Module) else given if isinstance(given, Mapping) else {}
            own, known = target.state_dict(), {name for field in fields for name in (field.name, *field.others)}
            if not own.keys().isdisjoint(state):
                # As torch does it: modules may have a state of their own, and hooks that load it. What else is known
                # is in no state dict: buffers that are not persistent, and tensors outside of modules.
                self._load({name: one for name, one in state.items() if name in own or name not in known}, strict=True)
        write_into(target, fields, values)

    def state_dict(self) -> dict[str, Any]:
        """The state dict of what acts, and tensors that it has elsewhere than in modules; empty without any."""
        return state_of(self.policy)

    def load_state_dict(self, state: Mapping[str, Any], *, strict: bool = True) -> None:
        """Take over what :meth:`state_dict` returned.

        Args:
            state: from a policy of the same form.
            strict: refuse weights that do not fit.

        Raises:
            PolicyError: they do not fit, or there are weights and the policy has none.
        """
        outside = _outside(self.policy)
        rest = {name: value for name, value in state.items() if name not in outside}
        if isinstance(self.policy, nn.Module):
            self._load(rest, strict=strict)
        elif rest and (strict or not outside):
            raise PolicyError(f"The state has the weights {sorted(rest)}, which this collector's policy has not.")
        fields = [field for field in fields_of(self.policy) if field.name in outside]
        write_into(self.policy, fields, [state.get(field.name) for field in fields])

    def _load(self, state: Mapping[str, Any], *, strict: bool) -> None:
        try:
            self.policy.load_state_dict(state, strict=strict)
        except RuntimeError as error:
            raise PolicyError(f"These weights do not fit the policy: {error}") from error


def state_of(policy: Any) -> dict[str, Any]:
    """The state dict of a policy that is a module, and tensors that it has elsewhere."""
    own = dict(policy.state_dict()) if isinstance(policy, nn.Module) else {}
    return {**own, **_outside(policy)}


def _outside(policy: Any) -> dict[str, torch.Tensor]:
    """Tensors that are no parameters or buffers of the policy as a module."""
    if isinstance(policy, TensorDictBase):
        return {}
    known: set[int] = set()
    if isinstance(policy, nn.Module):
        known = {id(tensor) for tensor in (*policy.parameters(), *policy.buffers())}
    tensors = PolicyContent(policy).tensors.items()
    return {name: tensor.detach() for name, tensor in tensors if id(tensor) not in known}
