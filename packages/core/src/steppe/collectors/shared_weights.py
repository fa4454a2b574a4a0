"""Weights and attributes of a policy in shared memory, which workers take over when they please, never half-written.

There are two copies and a version. Who writes fills the copy that is not current and counts the version up; who reads
copies the current one, and does so again where a second write has overtaken it.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase

from steppe.collectors.policy_content import PolicyContent, set_attributes
from steppe.errors import PolicyError
from steppe.specs import Composite, Unbounded
from steppe.storage import Layout, Storage, StorageHandle
from steppe.workers import pickled

__all__ = ["Field", "SharedWeights", "fields_of", "values_for", "write_into"]

#: Words: the version that is complete, and the one that is being written.
_VERSION, _BEGUN = 0, 1

#: Bytes for pickled attributes, which are a few numbers.
_ROOM = 1 << 14


@dataclass(frozen=True)
class Field:
    """A tensor of a policy: a parameter or buffer.

    Attributes:
        name: the first of its names.
        shape, dtype: its own.
        others: further names, of one that is tied.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    others: tuple[str, ...] = ()


def fields_of(policy: Any) -> list[Field]:
    """The tensors of a policy, each once, under the first of its names; see :class:`PolicyContent`."""
    content = PolicyContent(policy)
    others: dict[str, list[str]] = {name: [] for name in content.tensors}
    for alias, name in content.aliases.items():
        others[name].append(alias)
    return [Field(name, tuple(one.shape), one.dtype, tuple(others[name])) for name, one in content.tensors.items()]


def values_for(fields: list[Field], given: Any) -> list[torch.Tensor | None]:
    """The new values of fields; None for those that are not named.

    Args:
        fields: of the policy.
        given: a policy, a TensorDict of parameters or a state dict; or those of a part of the policy, such as the
            module that a function calls. A policy gives all fields, or all of a part; others may leave some out.

    Raises:
        PolicyError: it is something else; an entry is unknown, or of another shape; or a policy lacks one.
    """
    state: Mapping[str, Any]
    whole = False
    if given is None:
        return [None] * len(fields)
    if isinstance(given, TensorDictBase):
        state = {".".join(_path(key)): value for key, value in given.items(include_nested=True, leaves_only=True)}
    elif isinstance(given, Mapping):
        state = given
    elif callable(given):
        content, whole = PolicyContent(given), True
        state = {**content.tensors, **{alias: content.tensors[name] for alias, name in content.aliases.items()}}
    else:
        raise PolicyError(
            "update_policy_weights_ takes a module, a TensorDict of parameters or a state dict, "
            f"found {type(given).__name__}."
        )
    names = [name for name, value in state.items() if isinstance(value, torch.Tensor)]
    if not fields and (names or not whole):
        raise PolicyError(
            "This is a policy without parameters, so it takes no weights. Parameters are looked for in modules, in "
            "attributes, and in what functions refer to."
        )
    prefix = _prefix(fields, names, state)
    values: list[torch.Tensor | None] = []
    for field in fields:
        own = [name[len(prefix) :] for name in (field.name, *field.others) if name.startswith(prefix)]
        value = next((state[name] for name in own if name in state), None)
        if value is not None and tuple(value.shape) != field.shape:
            raise PolicyError(
                f"These weights do not fit the policy: {field.name!r} has shape {field.shape}, found "
                f"{tuple(value.shape)}."
            )
        if value is None and whole and own:
            raise PolicyError(f"These weights do not fit the policy: they lack {field.name!r}, found {sorted(names)}.")
        values.append(value)
    return values


def _prefix(fields: list[Field], names: list[str], state: Mapping[str, Any]) -> str:
    """What stands before names of a part of the policy; nothing where they are names of the policy.

    Raises:
        PolicyError: some names are unknown, or several parts have them.
    """
    known = {name for field in fields for name in (field.name, *field.others)}
    unknown = [name for name in names if name not in known]
    if not unknown:
        return ""
    prefixes = {name.removesuffix(unknown[0]) for name in known if name.endswith(f".{unknown[0]}")}
    fitting = sorted(prefix for prefix in prefixes if all(prefix + name in known for name in names))
    if len(fitting) > 1:
        shapes = {name: field.shape for field in fields for name in (field.name, *field.others)}
        found = {name: tuple(state[name].shape) for name in names}
        fitting = [one for one in fitting if all(shapes[one + name] == found[name] for name in names)] or fitting
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
def write_into(policy: Any, fields: list[Field], values: Sequence[torch.Tensor | None]) -> None:
    """Copy values into the tensors of a policy.

    Args:
        policy: has the fields.
        fields: which.
        values: one for each field; None leaves it as it is.
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
        fields: what there is, from :func:`fields_of`.
        fd: memory of another process to see; taken over. None makes new memory.
    """

    def __init__(self, fields: list[Field], fd: int | None = None) -> None:
        self.fields = fields
        spec = Composite({str(at): Unbounded(field.shape, dtype=field.dtype) for at, field in enumerate(fields)})
        spec.set("words", Unbounded((2,), dtype=torch.int64))
        spec.set("attributes", Unbounded((_ROOM,), dtype=torch.uint8))
        spec.set("size", Unbounded((1,), dtype=torch.int64))
        if fd is None:
            storage = Storage(spec, (2,), kind="shared")
        else:
            storage = Storage.attach(StorageHandle(spec, (2,), Layout.of(spec, (2,)).nbytes, fd))
        self.fd = storage.handle().fd
        self._storage = storage
        self._words = storage.arrays["words"][0]
        self._sizes, self._payloads = storage.arrays["size"], storage.arrays["attributes"]
        #: All attributes that were written, each with the number of the write: a reader may have missed several.
        self._attributes: dict[str, tuple[int, Any]] = {}
        self._writes = self._applied = 0
        self._copies = [[storage.tensors[str(at)][copy] for at in range(len(fields))] for copy in (0, 1)]

    @property
    def version(self) -> int:
        """How often weights were written."""
        return int(self._words[_VERSION])

    @torch.no_grad()
    def fill(self, given: Any) -> None:
        """Write what workers begin with, which is no new version; see :func:`values_for`."""
        for target, value in zip(self._copies[self.version % 2], values_for(self.fields, given), strict=True):
            if value is not None:
                target.copy_(value)

    @torch.no_grad()
    def write(self, given: Any = None, attributes: Mapping[str, Any] | None = None) -> int:
        """Write new weights and attributes, and return their version.

        Args:
            given: see :func:`values_for`; None counts the version up alone. What it does not name stays as it was.
            attributes: values by name, which a reader sets once.

        Raises:
            PolicyError: an entry is unknown, or of another shape, or attributes are too large; nothing is written then.
        """
        values = values_for(self.fields, given)
        writes = self._writes + bool(attributes)
        merged = {**self._attributes, **{name: (writes, value) for name, value in (attributes or {}).items()}}
        payload = pickled(merged) if merged else b""
        if len(payload) > _ROOM:
            raise PolicyError(
                f"The attributes {sorted(merged)} take {len(payload)} bytes, and there is room for {_ROOM}: register "
                "large ones as buffers, which are sent as weights."
            )
        version = self.version + 1
        self._words[_BEGUN] = version
        target, before = self._copies[version % 2], self._copies[(version - 1) % 2]
        for view, old, value in zip(target, before, values, strict=True):
            view.copy_(old if value is None else value)
        self._sizes[version % 2] = len(payload)
        self._payloads[version % 2, : len(payload)] = np.frombuffer(payload, np.uint8)
        self._attributes, self._writes = merged, writes
        self._words[_VERSION] = version
        return version

    @torch.no_grad()
    def read_into(self, policy: Any, known: int) -> int:
        """Copy the newest weights and attributes into a policy, unless it has them; returns their version.

        Args:
            policy: has the fields.
            known: the version that it has.
        """
        if self.version == known:
            return known
        while True:
            version = self.version
            write_into(policy, self.fields, self._copies[version % 2])
            payload = self._payloads[version % 2, : int(self._sizes[version % 2, 0])].tobytes()
            # The version after this one goes into the other copy, the one after that into this.
            if self._words[_BEGUN] < version + 2:
                break
        if payload:
            attributes: dict[str, tuple[int, Any]] = pickle.loads(payload)
            new = {name: value for name, (number, value) in attributes.items() if number > self._applied}
            if new:
                set_attributes(policy, new)
                self._applied = max(number for number, _ in attributes.values())
        return version


def _path(key: Any) -> tuple[str, ...]:
    return (key,) if isinstance(key, str) else tuple(key)
