"""PlainStep: the usual step of a batch, with all that its specs decide decided before."""

from __future__ import annotations

from collections.abc import Callable

import torch
from tensordict import TensorDict, TensorDictBase

from steppe.batched.operations import STEP_AND_RESET
from steppe.batched.readout import HostReadout
from steppe.batched.rows import BatchRows
from steppe.storage import build_alike, build_td, entries

__all__ = ["PlainStep"]

_Tensor = torch.Tensor
_TENSORS = frozenset((_Tensor,))


class PlainStep:
    """Steps of data that consists of tensors by name, with one action, in a batch whose data comes out on the host.

    A step of cheap environments costs less than what is around it, so that every lookup counts.

    Args:
        rows: of the batch.
        batch_size: of the batch.
        device: what its data claims as its device.
        dropped: names of the root that the following root does not keep.
        left: names of ``next`` that it does not take over.
    """

    def __init__(
        self,
        rows: BatchRows,
        batch_size: torch.Size,
        device: torch.device | None,
        *,
        dropped: frozenset[str],
        left: frozenset[str],
    ) -> None:
        (self._key, rule, self._shape, array, _), *_ = rows.actions
        assert array is not None  # see problem()
        self._array = array
        self._dtype, self._allows = rule.dtype, rule.allows
        self.rows = rows
        self._take = rows.next_out.take
        self._size, self._device = batch_size, device
        names = list(rows.next_out.keys)
        self._taken = [name for name in names if name not in left]
        self._dropped = {"next", *names, *dropped}
        # Names of the root of the last step, and those of them that the following one keeps.
        self._given: tuple[str, ...] = ()
        self._kept: tuple[str, ...] = ()

    @staticmethod
    def problem(rows: BatchRows) -> str | None:
        """Say why steps of a batch are not that simple, or return None."""
        if len(rows.actions) != 1 or rows.carried:
            return "a step reads more than one action."
        key, _, _, array, _ = rows.actions[0]
        if array is None or type(rows.next_out) is not HostReadout:
            return "data goes to a device, or has a dtype that numpy lacks."
        if not isinstance(key, str) or not rows.next_out.flat:
            return "data is nested."
        return None

    def __call__(
        self, tensordict: TensorDictBase, run: Callable[[int, list[int] | None], int]
    ) -> tuple[TensorDictBase, TensorDictBase] | None:
        """Take a step, and reset what has ended.

        Args:
            tensordict: root data with the action.
            run: carries out an operation in the environments; returns how many were reset. It is given each time, as
                the batch holds this and would not be freed at once if this held the batch.

        Returns:
            ``tensordict`` with ``"next"``, and the following root; None where the data is another than usual, and
            nothing was done.
        """
        if type(tensordict) is not TensorDict or tensordict.is_locked:
            return None
        level = entries(tensordict)
        action = level.get(self._key)
        if (
            type(action) is not _Tensor
            or action.dtype is not self._dtype
            or action.shape != self._shape
            or tensordict.batch_size != self._size
            or tensordict.device != self._device
            or "next" in level
            or "_step" in level
        ):
            return None
        array, rows = self._array, self.rows
        try:
            array[...] = action.numpy()
        except (TypeError, RuntimeError):  # it needs a gradient, or is on a GPU
            return None
        if self._allows is not None and not self._allows(array):
            return None  # whose error names the rows
        given = tuple(level)
        if given != self._given:
            self._given, self._kept = given, tuple(name for name in given if name not in self._dropped)
        kept = self._kept
        if kept and not _TENSORS.issuperset([type(level[name]) for name in kept]):
            return None  # groups of entries are copied
        n_reset = run(STEP_AND_RESET, None)
        flat = self._take()
        root = {name: flat[name] for name in self._taken}
        for name in kept:
            root[name] = level[name]
        if n_reset:
            root.update(rows.root_out.overlay(flat, rows.flags.was_reset))
        level["next"] = build_td(flat, self._size, self._device)
        return tensordict, build_alike(root, tensordict)
