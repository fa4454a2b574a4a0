"""The weights of a policy between a caller and workers that share no memory with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from steppe.collectors import Field, NewWeights, set_attributes, values_for, write_into

__all__ = ["Published", "ReceivedWeights", "RemoteWeights"]


class Published(NamedTuple):
    """A version of the weights, as a message carries it.

    >>> import torch
    >>> from steppe.collectors import fields_of
    >>> from steppe_remote import RemoteWeights
    >>> policy = torch.nn.Linear(4, 2)
    >>> weights = RemoteWeights(fields_of(policy), policy, publish=dict)
    >>> _ = weights.write(policy, {"training": False})
    >>> weights.published.version, sorted(weights.published.values), weights.published.attributes
    (1, ['bias', 'weight'], {'training': (1, False)})

    Attributes:
        version: the number of updates.
        values: what ``RemoteGroup.publish`` returned for the weights; the engine turns it into a dict of tensors.
        attributes: the values of attributes, each with the version in which it was set.
    """

    version: int
    values: Any
    attributes: dict[str, tuple[int, Any]]


class RemoteWeights:
    """The weights in the caller's process. Each version is published once, however many workers read it.

    >>> import torch
    >>> from steppe.collectors import fields_of
    >>> from steppe_remote import RemoteWeights
    >>> policy, store = torch.nn.Linear(4, 2), []
    >>> def publish(values):  # an engine puts them into its object store
    ...     store.append(values)
    ...     return len(store) - 1
    >>> weights = RemoteWeights(fields_of(policy), policy, publish)
    >>> weights.write({"bias": torch.ones(2)}), store[weights.published.values]["bias"]
    (1, tensor([1., 1.]))

    Args:
        fields: the tensors of the policy.
        initial: their first values; None if the workers make them, and then only what is updated is published.
        publish: stores weights where workers find them, and returns a reference.

    Attributes:
        fields: see above.
        published: the newest version.
    """

    def __init__(
        self, fields: list[Field], initial: NewWeights, publish: Callable[[dict[str, torch.Tensor]], Any]
    ) -> None:
        self.fields, self._publish = fields, publish
        self._values: dict[str, torch.Tensor] = {}
        self.published = Published(0, None, {})
        if fields and initial is not None:
            self._set(0, initial, {})

    @property
    def version(self) -> int:
        """The number of updates."""
        return self.published.version

    def write(self, weights: NewWeights = None, attributes: Mapping[str, Any] | None = None) -> int:
        """Publish new weights and attributes; return their version.

        Raises:
            PolicyError: an entry is unknown or has another shape. Nothing is published.
        """
        version = self.version + 1
        self._set(version, weights, {name: (version, value) for name, value in (attributes or {}).items()})
        return version

    def _set(self, version: int, weights: NewWeights, attributes: dict[str, tuple[int, Any]]) -> None:
        new = {name: value.detach().cpu().clone() for name, value in values_for(self.fields, weights).items()}
        values = {**self._values, **new}
        reference = self._publish(values) if new else self.published.values
        self._values = values
        self.published = Published(version, reference, {**self.published.attributes, **attributes})


class ReceivedWeights:
    """The weights in a worker.

    >>> import torch
    >>> from steppe_remote import Published, ReceivedWeights
    >>> received = ReceivedWeights()
    >>> received.newest = Published(3, {"bias": torch.ones(2)}, {})  # a message has brought it
    >>> policy = torch.nn.Linear(4, 2)
    >>> received.read_into(policy, known=2), policy.bias.tolist()
    (3, [1.0, 1.0])

    Attributes:
        newest: the newest version that a message has brought, its values a dict of tensors, or None.
    """

    def __init__(self) -> None:
        self.newest = Published(0, None, {})
        self._applied = 0

    def read_into(self, policy: Any, known: int) -> int:
        """Copy the newest weights and attributes into a policy; return their version.

        Args:
            policy: the policy.
            known: the version that the policy has; nothing is copied if it is the newest.
        """
        version, values, _ = self.newest
        if version == known:
            return known
        if values:
            write_into(policy, values)
        if new := self.new_attributes():
            set_attributes(policy, new)
        return version

    def new_attributes(self) -> dict[str, Any]:
        """Return the values of attributes that were not returned before."""
        version, _, attributes = self.newest
        new = {name: value for name, (number, value) in attributes.items() if number > self._applied}
        self._applied = version if new else self._applied
        return new

    def fill(self, weights: Any) -> None:
        """Do nothing: the caller publishes only weights that it has, and the others stay as the workers made them."""
