"""SharedWeights: the weights and attributes of a policy in shared memory, which workers read between batches.

The memory has two copies and a version, so that readers never block and never see half of an update. The writer fills
the copy that is not current, then increments the version. A reader copies the current one, and starts again if the
writer has begun to overwrite it.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from tensordict import TensorDictBase

from steppe.collectors.policy_content import PolicyContent, set_attributes
from steppe.errors import PolicyError
from steppe.specs import Composite, Unbounded
from steppe.storage import Storage
from steppe.workers import pickled

__all__ = ["Field", "NewWeights", "SharedWeights", "fields_of", "values_for", "write_into"]

#: Weights as callers pass them: a policy, a TensorDict of parameters, or a state dict; None for no weights.
NewWeights: TypeAlias = TensorDictBase | Mapping[str, Any] | Callable[..., object] | None

#: Words of the control block: the version that is complete, and the version that is being written.
_VERSION, _BEGUN = 0, 1

#: Bytes reserved for pickled attributes, which are a few numbers.
_ROOM = 1 << 14


@dataclass(frozen=True)
class Field:
    """A tensor of a policy, such as a parameter or a buffer.

    Attributes:
        name: the first of its names.
        shape, dtype: of the tensor.
        others: its further names, if modules share it.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    others: tuple[str, ...] = ()


def fields_of(policy: object) -> list[Field]:
    """Return the tensors of a policy, each once, under the first of its names; see :class:`PolicyContent`."""
    content = PolicyContent(policy)
    others: dict[str, list[str]] = {name: [] for name in content.tensors}
    for alias, name in content.aliases.items():
        others[name].append(alias)
    return [
        Field(name, tuple(tensor.shape), tensor.dtype, tuple(others[name])) for name, tensor in content.tensors.items()
    ]


def values_for(fields: list[Field], weights: NewWeights) -> list[torch.Tensor | None]:
    """Return the new value of each field; None for a field that has none.

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
        return [None] * len(fields)
    if isinstance(weights, TensorDictBase):
        items = weights.items(include_nested=True, leaves_only=True)
        state = {key if isinstance(key, str) else ".".join(key): value for key, value in items}
    elif isinstance(weights, Mapping):
        state = weights
    elif callable(weights):
        content, whole = PolicyContent(weights), True
        state = {**content.tensors, **{alias: content.tensors[name] for alias, name in content.aliases.items()}}
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
    values: list[torch.Tensor | None] = []
    for field in fields:
        names_in_module = [name[len(prefix) :] for name in (field.name, *field.others) if name.startswith(prefix)]
        value = next((state[name] for name in names_in_module if name in state), None)
        if value is not None and tuple(value.shape) != field.shape:
            raise PolicyError(
                f"These weights do not fit the policy: {field.name!r} has shape {field.shape}, found "
                f"{tuple(value.shape)}."
            )
        if value is None and whole and names_in_module:
            raise PolicyError(f"These weights do not fit the policy: they lack {field.name!r}, found {sorted(names)}.")
        values.append(value)
    return values


def _prefix(fields: list[Field], names: list[str], state: Mapping[str, Any]) -> str:
    """Return the prefix of the part of the policy that has these names; empty if the policy itself has them.

    Raises:
        PolicyError: no part of the policy has all names, or several parts have them.
    """
    known = {name for field in fields for name in (field.name, *field.others)}
    unknown = [name for name in names if name not in known]
    if not unknown:
        return ""
    prefixes = {name.removesuffix(unknown[0]) for name in known if name.endswith(f".{unknown[0]}")}
    fitting = sorted(prefix for prefix in prefixes if all(prefix + name in known for name in names))
    if len(fitting) > 1:
        shapes = {name: field.shape for field in fields for name in (field.name, *field.others)}
        new = {name: tuple(state[name].shape) for name in names}
        same = [prefix for prefix in fitting if all(shapes[prefix + name] == new[name] for name in names)]
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
def write_into(policy: object, fields: list[Field], values: Sequence[torch.Tensor | None]) -> None:
    """Copy values into the tensors of a policy.

    Args:
        policy: the policy.
        fields: the tensors to write.
        values: a value for each field; None keeps the old value.
    """
    if not fields:
        return
    content = PolicyContent(policy)
    for field, value in zip(fields, values, strict=True):
        target = content.find(field.name, field.others)
        if target is None:
            raise PolicyError(f"The policy has lost its parameter {field.name!r}, so it takes no new value for it.")
        if value is not None and value is not target:
            target.copy_(value)


class SharedWeights:
    """Two copies of weights, and their version, in shared memory without a name.

    Args:
        fields: the tensors, from :func:`fields_of`.
        fd: the descriptor of another process's memory, which this object then owns. None allocates memory.

    Attributes:
        fields: see above.
        fd: the descriptor of the memory.
    """

    def __init__(self, fields: list[Field], fd: int | None = None) -> None:
        self.fields = fields
        spec = Composite({str(at): Unbounded(field.shape, dtype=field.dtype) for at, field in enumerate(fields)})
        spec.set("words", Unbounded((2,), dtype=torch.int64))
        spec.set("attributes", Unbounded((_ROOM,), dtype=torch.uint8))
        spec.set("size", Unbounded((1,), dtype=torch.int64))
        storage = Storage(spec, (2,), kind="shared", fd=fd)
        self.fd = storage.fd
        self._storage = storage
        self._words = storage.arrays["words"][0]
        self._sizes, self._payloads = storage.arrays["size"], storage.arrays["attributes"]
        #: All attributes written so far, each with its version, because a reader may miss several versions.
        self._attributes: dict[str, tuple[int, object]] = {}
        self._applied = 0
        self._copies = [[storage.tensors[str(at)][copy] for at in range(len(fields))] for copy in (0, 1)]

    @property
    def version(self) -> int:
        """The number of updates."""
        return int(self._words[_VERSION])

    @torch.no_grad()
    def fill(self, weights: NewWeights) -> None:
        """Write the first weights of the workers, without a new version; see :func:`values_for`."""
        for target, value in zip(self._copies[self.version % 2], values_for(self.fields, weights), strict=True):
            if value is not None:
                target.copy_(value)

    @torch.no_grad()
    def write(self, weights: NewWeights = None, attributes: Mapping[str, object] | None = None) -> int:
        """Write new weights and attributes, and return their version.

        Args:
            weights: see :func:`values_for`. Weights that they do not contain stay the same.
            attributes: values by name, which each reader assigns once.

        Raises:
            PolicyError: an entry is unknown or has another shape, or the attributes are too large. Nothing is written.
        """
        values = values_for(self.fields, weights)
        version = self.version + 1
        merged = {**self._attributes, **{name: (version, value) for name, value in (attributes or {}).items()}}
        payload = pickled(merged) if merged else b""
        if len(payload) > _ROOM:
            raise PolicyError(
                f"The attributes {sorted(merged)} take {len(payload)} bytes, and there is room for {_ROOM}: register "
                "large ones as buffers, which are sent as weights."
            )
        self._words[_BEGUN] = version
        target, before = self._copies[version % 2], self._copies[(version - 1) % 2]
        for view, old, value in zip(target, before, values, strict=True):
            view.copy_(old if value is None else value)
        self._sizes[version % 2] = len(payload)
        self._payloads[version % 2, : len(payload)] = np.frombuffer(payload, np.uint8)
        self._attributes = merged
        self._words[_VERSION] = version
        return version

    @torch.no_grad()
    def read_into(self, policy: object, known: int) -> int:
        """Copy the newest weights and attributes into a policy, and return their version.

        Args:
            policy: the policy.
            known: the version that the policy has; nothing is copied if it is the newest.
        """
        if self.version == known:
            return known
        while True:
            version = self.version
            write_into(policy, self.fields, self._copies[version % 2])
            payload = self._payloads[version % 2, : int(self._sizes[version % 2, 0])].tobytes()
            # The next version is written to the other copy, the one after it to this copy.
            if self._words[_BEGUN] < version + 2:
                break
        if payload:
            attributes: dict[str, tuple[int, object]] = pickle.loads(payload)
            new = {name: value for name, (number, value) in attributes.items() if number > self._applied}
            if new:
                set_attributes(policy, new)
                self._applied = version
        return version
