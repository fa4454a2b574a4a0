"""Weights by name: of the policy that the caller trains, and of the workers' copies, which act."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from tensordict import TensorDictBase
from torch import nn

from steppe.collectors.policy_content import PolicyContent, set_attributes
from steppe.errors import PolicyError

__all__ = ["Field", "NewWeights", "SourcePolicy", "Weights", "fields_of", "values_for", "write_into"]

#: Weights as callers pass them: a policy, a TensorDict of parameters, or a state dict; None for no weights.
NewWeights: TypeAlias = TensorDictBase | Mapping[str, Any] | Callable[..., object] | None

#: How ``state_dict`` names the state of a module beside its tensors, after the path of the module.
_EXTRA_STATE = "_extra_state"


@dataclass(frozen=True)
class Field:
    """A tensor of a policy, such as a parameter or a buffer.

    Attributes:
        names: its name, and further ones if modules share it.
        shape, dtype: of the tensor.
    """

    names: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def name(self) -> str:
        """The first of its names."""
        return self.names[0]

    def value_in(self, tensors: Mapping[str, Any], prefix: str = "") -> Any:
        """Return the value under the first of its names that ``tensors`` has, without ``prefix``; otherwise None."""
        names = [name[len(prefix) :] for name in self.names if name.startswith(prefix)]
        return next((tensors[name] for name in names if name in tensors), None)


def fields_of(policy: object) -> list[Field]:
    """Return the tensors of a policy, each once; see :class:`PolicyContent`."""
    content = PolicyContent(policy)
    names = {name: [name] for name in content.tensors}
    for alias, name in content.aliases.items():
        names[name].append(alias)
    return [Field(tuple(names[name]), tuple(tensor.shape), tensor.dtype) for name, tensor in content.tensors.items()]


def values_for(fields: list[Field], weights: NewWeights) -> dict[str, torch.Tensor]:
    """Return the new values of fields, by the name of the field; the others keep their values.

    Args:
        fields: the tensors of the policy.
        weights: see :data:`NewWeights`. They may be the weights of a part of the policy, such as the module that a
            function calls. A policy must have all fields, or all of a part; a TensorDict or state dict need not.

    Raises:
        PolicyError: ``weights`` is something else; an entry is unknown or has another shape; or a policy lacks one.
    """
    state: Mapping[str, Any]
    whole = False
    if weights is None:
        return {}
    if isinstance(weights, TensorDictBase):
        items = weights.items(include_nested=True, leaves_only=True)
        state = {key if isinstance(key, str) else ".".join(key): value for key, value in items}
    elif isinstance(weights, Mapping):
        state = weights
    elif callable(weights):
        state, whole = PolicyContent(weights).by_name, True
    else:
        raise PolicyError(
            "update_policy_weights_ takes a module, a TensorDict of parameters or a state dict, "
            f"found {type(weights).__name__}."
        )
    names = [name for name, value in state.items() if isinstance(value, torch.Tensor)]
    if not fields and (names or not whole):
        raise PolicyError(
            "This is a policy without parameters, so it takes no weights. Parameters are looked for in modules, in "
            "attributes, and in closures and global variables of functions."
        )
    prefix = _prefix(fields, names, state)
    values: dict[str, torch.Tensor] = {}
    for field in fields:
        value = field.value_in(state, prefix)
        if value is not None and tuple(value.shape) != field.shape:
            raise PolicyError(
                f"These weights do not fit the policy: {field.name!r} has shape {field.shape}, found "
                f"{tuple(value.shape)}."
            )
        if value is not None:
            values[field.name] = value
        elif whole and any(name.startswith(prefix) for name in field.names):
            raise PolicyError(f"These weights do not fit the policy: they lack {field.name!r}, found {sorted(names)}.")
    return values


def _prefix(fields: list[Field], names: list[str], state: Mapping[str, Any]) -> str:
    """Return the prefix of the part of the policy that has these names; empty if the policy itself has them.

    Raises:
        PolicyError: no part of the policy has all names, or several parts have them.
    """
    known = {name: field.shape for field in fields for name in field.names}
    unknown = [name for name in names if name not in known]
    if not unknown:
        return ""
    prefixes = {name.removesuffix(unknown[0]) for name in known if name.endswith(f".{unknown[0]}")}
    fitting = sorted(prefix for prefix in prefixes if all(prefix + name in known for name in names))
    if len(fitting) > 1:
        new = {name: tuple(state[name].shape) for name in names}
        same = [prefix for prefix in fitting if all(known[prefix + name] == new[name] for name in names)]
        fitting = same or fitting
    if len(fitting) > 1:
        raise PolicyError(
            f"These weights fit several parts of the policy, {[prefix.rstrip('.') for prefix in fitting]}: give them "
            f"with their names there, such as {fitting[0] + names[0]!r}."
        )
    if not fitting:
        raise PolicyError(
            f"These weights do not fit the policy, which has {sorted(known)}, found {sorted(map(str, unknown))}."
        )
    return fitting[0]


@torch.no_grad()
def write_into(policy: object, values: Mapping[str, torch.Tensor]) -> None:
    """Copy values into the tensors of a policy.

    Args:
        policy: the policy.
        values: new values by the names of :func:`fields_of`.
    """
    if not values:
        return
    tensors = PolicyContent(policy).by_name
    for name, value in values.items():
        if name not in tensors:
            raise PolicyError(f"The policy has lost its parameter {name!r}, so it takes no new value for it.")
        if value is not tensors[name]:
            tensors[name].copy_(value)


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
        tensors = PolicyContent(self.policy).by_name
        found = [(field, field.value_in(tensors)) for field in fields]
        return [field for field, tensor in found if tensor is not None and tuple(tensor.shape) == field.shape]

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
            weights = {field.name: field.value_in(content.by_name) for field in fields}
            lost = [name for name, tensor in weights.items() if tensor is None]
            if lost:
                raise PolicyError(
                    f"The policy no longer has {lost[0]!r}, which its copies act with. Make a new collector."
                )
            return weights
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
        if not attributes:
            return
        set_attributes(self.policy, attributes)
        for name, value in PolicyContent(self.policy).values.items():
            if any(name == attribute or name.startswith(f"{attribute}.") for attribute in attributes):
                self._values[name] = value
                self._reported.discard(name)


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
        attributes, source = attributes or {}, self._source
        if weights is None and source is not None:
            source.weights(fields_of(self.policy), attributes)  # raises the errors about content that is not sent
            weights = source.policy
        if weights is self.policy:
            weights = None
        values = {} if weights is None else values_for(fields_of(self.policy), weights)
        set_attributes(self.policy, attributes)
        if source is not None:
            source.set_attributes(attributes)
        write_into(self.policy, values)
        state = weights.state_dict() if isinstance(weights, nn.Module) else weights
        if isinstance(self.policy, nn.Module) and isinstance(state, Mapping):
            extra = {name: value for name, value in state.items() if str(name).endswith(_EXTRA_STATE)}
            if extra:
                self._load(extra, strict=False)

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
        write_into(self.policy, {name: state[name] for name in outside.keys() & state.keys()})

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
