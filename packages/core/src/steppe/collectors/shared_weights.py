"""SharedWeights: the weights and attributes of a policy in shared memory, which workers read between batches.

The memory has two copies and a version, so that readers never block and never see half of an update. The writer fills
the copy that is not current, then increments the version. A reader copies the current one, and starts again if the
writer has begun to overwrite it.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping

import numpy as np
import torch

from steppe.collectors.policy_content import set_attributes
from steppe.collectors.weights import Field, NewWeights, values_for, write_into
from steppe.errors import PolicyError
from steppe.specs import Composite, Unbounded
from steppe.storage import Storage
from steppe.workers import pickled

__all__ = ["SharedWeights"]

#: Words of the control block: the version that is complete, and the version that is being written.
_VERSION, _BEGUN = 0, 1

#: Bytes reserved for pickled attributes, which are a few numbers.
_ROOM = 1 << 14


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
        self._copies = [
            {field.name: storage.tensors[str(at)][copy] for at, field in enumerate(fields)} for copy in (0, 1)
        ]

    @property
    def version(self) -> int:
        """The number of updates."""
        return int(self._words[_VERSION])

    @torch.no_grad()
    def fill(self, weights: NewWeights) -> None:
        """Write the first weights of the workers, without a new version; see :func:`values_for`."""
        for name, value in values_for(self.fields, weights).items():
            self._copies[self.version % 2][name].copy_(value)

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
        for name, view in target.items():
            view.copy_(values.get(name, before[name]))
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
            write_into(policy, self._copies[version % 2])
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
