"""ObservationTransform: the base class of transforms of observations."""

from __future__ import annotations

from typing import ClassVar

from steppe.errors import SpecError
from steppe.transforms.base import Transform
from steppe.transforms.compiled.transform_hooks import EnvSpecs
from steppe.transforms.transform_keys import Key, names_of

__all__ = ["ObservationTransform"]


class ObservationTransform(Transform):
    """Base class of transforms of observations, which may change their shape.

    A subclass overrides ``_apply_transform``, and ``row_kernel`` to be faster.

    Args:
        in_keys: observations to read. Default: ``"observation"`` and ``"pixels"``, as far as the environment has them;
            if it has neither at the root, the observations of groups of agents, such as ``("agents", "observation")``.
        out_keys: keys to write, as many as ``in_keys``. Default: ``in_keys``.
        in_keys_inv: keys that the environment reads.
        out_keys_inv: keys that the caller writes instead. Default: ``in_keys_inv``.

    Attributes:
        default_names: names of the default ``in_keys``; a class attribute.

    Raises:
        SpecError: no ``in_keys`` were passed, and the environment has no entry of a default name.
    """

    writes_done = False
    default_names: ClassVar[tuple[str, ...]] = ("observation", "pixels")

    def default_keys(self, specs: EnvSpecs | None) -> list[Key]:
        names: list[Key] = list(self.default_names)
        if specs is None:
            return names
        observed = list(specs.observation.keys(include_nested=True, leaves_only=True))
        keys = [key for key in names if key in observed]
        keys = keys or [key for key in observed if names_of(key)[-1] in names]
        if not keys:
            missing = f"none of {names}" if len(names) > 1 else f"no {names[0]!r}"
            raise SpecError(f"{type(self).__name__}: the environment has {missing}; give in_keys. It has {observed}.")
        return keys
