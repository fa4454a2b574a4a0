"""ObservationTransform: the base of transforms of observations, which may change their shape."""

from __future__ import annotations

from typing import Any, ClassVar

from steppe.errors import SpecError
from steppe.transforms.compiled.hooks import EnvSpecs
from steppe.transforms.keys import names_of
from steppe.transforms.row_kernels import RowKernels

__all__ = ["ObservationTransform"]


class ObservationTransform(RowKernels):
    """Base of transforms of observations.

    Without ``in_keys`` it is about ``"observation"`` and ``"pixels"``, those that the environment has; where it has
    neither at the root, about those of its groups of agents, such as ``("agents", "observation")``.

    Beside ``_apply_transform`` a subclass may write ``row_kernel`` or ``apply_into``, to be faster.

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
