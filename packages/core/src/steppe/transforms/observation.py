"""ObservationTransform: the base of transforms of observations, which may change their shape."""

from __future__ import annotations

from typing import Any

from steppe.errors import SpecError
from steppe.transforms.base import Transform
from steppe.transforms.compiled.hooks import EnvSpecs, Hooks

__all__ = ["ObservationTransform"]

_DEFAULTS = ["observation", "pixels"]


class ObservationTransform(Transform):
    """Base of transforms of observations.

    Without ``in_keys`` it is about ``"observation"`` and ``"pixels"``, those that the environment has.

    Args:
        in_keys: observations to read.
        out_keys: keys to write, one for each; by default those of ``in_keys``.
        in_keys_inv: keys that the environment reads.
        out_keys_inv: keys that the caller writes for them.
    """

    writes_done = False

    def __init__(
        self, in_keys: Any = None, out_keys: Any = None, in_keys_inv: Any = None, out_keys_inv: Any = None
    ) -> None:
        super().__init__(_DEFAULTS if in_keys is None else in_keys, out_keys, in_keys_inv, out_keys_inv)
        self.__dict__["_default_keys"] = in_keys is None

    def hooks_in(self, specs: EnvSpecs) -> Hooks:
        if self.__dict__["_default_keys"]:
            found = [pair for pair in self._pairs if specs.observation.get(pair[0], None) is not None]
            if not found:
                raise SpecError(
                    f"{type(self).__name__}: the environment has none of {_DEFAULTS}; give in_keys. It has "
                    f"{list(specs.observation.keys(include_nested=True, leaves_only=True))}."
                )
            # Not assigned, which would have this worked out anew.
            for name, keys in zip(("_in_keys", "_out_keys"), zip(*found, strict=True), strict=True):
                self.__dict__[name] = list(keys)
            self.__dict__["_default_keys"] = False
        return super().hooks_in(specs)
