"""ObservationTransform: the base of transforms of observations, which may change their shape."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from steppe.errors import SpecError
from steppe.transforms.base import Transform
from steppe.transforms.compiled.hooks import EnvSpecs
from steppe.transforms.keys import names_of

__all__ = ["ObservationTransform"]


class ObservationTransform(Transform):
    """Base of transforms of observations.

    Without ``in_keys`` it is about ``"observation"`` and ``"pixels"``, those that the environment has; where it has
    neither at the root, about those of its groups of agents, such as ``("agents", "observation")``.

    Args:
        in_keys: observations to read.
        out_keys: keys to write, one for each; by default those of ``in_keys``.
        in_keys_inv: keys that the environment reads.
        out_keys_inv: keys that the caller writes for them.

    Attributes:
        default_names: names of the entries that it is about without ``in_keys``; of the class.

    Raises:
        SpecError: there are no ``in_keys``, and the environment has no such entry.
    """

    writes_done = False
    default_names: ClassVar[tuple[str, ...]] = ("observation", "pixels")

    def __init__(
        self, in_keys: Any = None, out_keys: Any = None, in_keys_inv: Any = None, out_keys_inv: Any = None
    ) -> None:
        super().__init__(in_keys, out_keys, in_keys_inv, out_keys_inv)

    def default_keys(self, specs: EnvSpecs | None) -> list[Any]:
        names = list(self.default_names)
        if specs is None:
            return names
        observed = list(specs.observation.keys(include_nested=True, leaves_only=True))
        found = [key for key in names if key in observed]
        found = found or [key for key in observed if names_of(key)[-1] in names]
        if not found:
            asked = f"none of {names}" if len(names) > 1 else f"no {names[0]!r}"
            raise SpecError(f"{type(self).__name__}: the environment has {asked}; give in_keys. It has {observed}.")
        return found

    def apply_into(self, value: torch.Tensor, out: torch.Tensor) -> None:
        """Write ``_apply_transform(value)`` to ``out``: to be overridden where results are large.

        It is called in place of ``_apply_transform`` where the result goes to rows of arrays: one copy less, and no
        memory in between.

        Args:
            value: an entry, not to be changed.
            out: where the result goes, of the shape and dtype that the specs say.
        """
        out.copy_(self._apply_transform(value))

    @property
    def applies_into(self) -> bool:
        """Whether the class has written :meth:`apply_into`, and no subclass another ``_apply_transform``."""
        owner = self._owner_of("apply_into")
        return owner is not ObservationTransform and not self._writes("_apply_transform", owner)
