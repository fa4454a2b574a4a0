"""Weights of a policy in shared memory, which workers take over when they please, and never half-written.

There are two copies and a version. Who writes fills the copy that is not current and counts the version up; who reads
copies the current one, and does so again where a second write has overtaken it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import nn

from steppe.errors import PolicyError
from steppe.specs import Composite, Unbounded
from steppe.storage import Layout, Storage, StorageHandle

__all__ = ["Field", "SharedWeights", "fields_of"]

#: Words: the version that is complete, and the one that is being written.
_VERSION, _BEGUN = 0, 1


@dataclass(frozen=True)
class Field:
    """A parameter or buffer.

    Attributes:
        name: the first of its names.
        shape, dtype: its own.
        others: further names, of one that is tied.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    others: tuple[str, ...] = ()


def fields_of(module: Any) -> list[Field]:
    """The parameters and buffers of a module, each once, under the first of its names; none of what is no module."""
    own = _tensors(module)
    names: dict[int, list[str]] = {id(one): [] for one in own.values()}
    if own:
        for several in (module.named_parameters, module.named_buffers):
            for name, one in several(remove_duplicate=False):
                names[id(one)].append(name)
    return [
        Field(name, tuple(one.shape), one.dtype, tuple(other for other in names[id(one)] if other != name))
        for name, one in own.items()
    ]


def _tensors(module: Any) -> dict[str, torch.Tensor]:
    if not isinstance(module, nn.Module):
        return {}
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


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
        if fd is None:
            storage = Storage(spec, (2,), kind="shared")
        else:
            storage = Storage.attach(StorageHandle(spec, (2,), Layout.of(spec, (2,)).nbytes, fd))
        self.fd = storage.handle().fd
        self._storage = storage
        self._words = storage.arrays["words"][0]
        self._copies = [[storage.tensors[str(at)][copy] for at in range(len(fields))] for copy in (0, 1)]

    @property
    def version(self) -> int:
        """How often weights were written."""
        return int(self._words[_VERSION])

    @torch.no_grad()
    def fill(self, module: Any) -> None:
        """Write what workers begin with, which is no new version."""
        for target, value in zip(self._copies[self.version % 2], self._fitted(module), strict=True):
            if value is not None:
                target.copy_(value)

    @torch.no_grad()
    def write(self, given: Any = None) -> int:
        """Write new weights, and return their version.

        Args:
            given: a module, a TensorDict of parameters, or a state dict. What it does not name stays as it was.

        Raises:
            PolicyError: an entry is unknown, or of another shape; nothing is written then.
        """
        values = self._fitted(given)
        version = self.version + 1
        self._words[_BEGUN] = version
        target, before = self._copies[version % 2], self._copies[(version - 1) % 2]
        for view, old, value in zip(target, before, values, strict=True):
            view.copy_(old if value is None else value)
        self._words[_VERSION] = version
        return version

    @torch.no_grad()
    def read_into(self, module: Any, known: int) -> int:
        """Copy the newest weights into a module, unless it has them; returns their version.

        Args:
            module: has the fields.
            known: the version that it has.
        """
        if self.version == known:
            return known
        own = list(_tensors(module).values())
        while True:
            version = self.version
            for target, source in zip(own, self._copies[version % 2], strict=True):
                target.copy_(source)
            # The version after this one goes into the other copy, the one after that into this.
            if self._words[_BEGUN] < version + 2:
                return version

    def _fitted(self, given: Any) -> list[torch.Tensor | None]:
        state: Mapping[str, Any]
        if given is None:
            state = {}
        elif isinstance(given, nn.Module):
            state = _tensors(given)
        elif isinstance(given, TensorDictBase):
            state = {".".join(_path(key)): value for key, value in given.items(include_nested=True, leaves_only=True)}
        elif isinstance(given, Mapping):
            state = given
        else:
            raise PolicyError(
                "update_policy_weights_ takes a module, a TensorDict of parameters or a state dict, "
                f"found {type(given).__name__}."
            )
        if state and not self.fields:
            raise PolicyError("The policy has no parameters, so it takes no weights.")
        self._refuse_unknown(state)
        values: list[torch.Tensor | None] = []
        for field in self.fields:
            value = state.get(field.name)
            if value is not None and tuple(value.shape) != field.shape:
                raise PolicyError(
                    f"These weights do not fit the policy: {field.name!r} has shape {field.shape}, found "
                    f"{tuple(value.shape)}."
                )
            values.append(value)
        return values

    def _refuse_unknown(self, state: Mapping[str, Any]) -> None:
        """Raise where an entry has no place, unless it is a parameter by another of its names."""
        known = {name for field in self.fields for name in (field.name, *field.others)}
        unknown = [name for name, value in state.items() if name not in known and isinstance(value, torch.Tensor)]
        if unknown:
            raise PolicyError(
                f"These weights do not fit the policy, which has {sorted(known)}, found {sorted(map(str, unknown))}."
            )


def _path(key: Any) -> tuple[str, ...]:
    return (key,) if isinstance(key, str) else tuple(key)
