"""ObservationTransform: the base of transforms of observations, which may change their shape."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch

from steppe.errors import SpecError
from steppe.transforms.base import Transform
from steppe.transforms.compiled.entry_kernel import EntryKernel, by_torch
from steppe.transforms.compiled.hooks import EnvSpecs, Hooks, RowHooks
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

    # -- what a subclass may write beside _apply_transform, to be faster -------------------------------------------

    def apply_into(self, value: torch.Tensor, out: torch.Tensor) -> None:
        """Write ``_apply_transform(value)`` to ``out``: to be overridden where results are large.

        It is called in place of ``_apply_transform`` where the result goes to rows of arrays: one copy less, and no
        memory in between.

        Args:
            value: an entry, not to be changed.
            out: where the result goes, of the shape and dtype that the specs say; other memory than that of ``value``.
        """
        out.copy_(self._apply_transform(value))

    def row_kernel(self, source: np.ndarray[Any, Any], target: np.ndarray[Any, Any]) -> Callable[[], object] | None:
        """Prepare ``_apply_transform`` for rows of arrays: whatever can be worked out before the first step.

        Args:
            source: an entry of rows ``[n, *shape]``.
            target: where the results go, of the shape and dtype that the specs say; the same memory as ``source`` where
                the entry keeps its key, shape and dtype.

        Returns:
            A function that reads ``source`` and writes ``target``, at each call; None where :meth:`apply_into` is to do
            it. Results are those of ``_apply_transform``, to the bit.
        """
        return None

    @property
    def applies_into(self) -> bool:
        """Whether the class has written one of the two, and no subclass another ``_apply_transform``."""
        owners = [self._overrides.owner_of(name) for name in ("apply_into", "row_kernel")]
        return any(
            owner is not ObservationTransform and not self._writes("_apply_transform", owner) for owner in owners
        )

    # -- rows -----------------------------------------------------------------------------------------------------

    def hooks_in(self, specs: EnvSpecs) -> Hooks:
        hooks = super().hooks_in(specs)
        if hooks.pairs and hooks.rows is None and self.keeps_nothing and not self.writes_done and self.applies_into:
            read, written = zip(*hooks.pairs, strict=True)
            kernel = EntryKernel(hooks.pairs, self._prepared, row_by_row=self.key_of_rows() is None)
            hooks.rows = RowHooks(kernel, reads=read, writes=written, by_torch=True)
        return hooks

    def _prepared(self, source: Any, target: Any) -> Callable[[], object]:
        kernel = self.row_kernel(source, target)
        if kernel is not None:
            return kernel
        # One that takes no rows in front is given one row, without its dimension.
        row: Any = (...,) if self.key_of_rows() is not None else 0
        read, written = source[row], target[row]
        if np.may_share_memory(read, written):
            return by_torch(self._apply_transform, read, written)
        return partial(self.apply_into, torch.from_numpy(read), torch.from_numpy(written))
