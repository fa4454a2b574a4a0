"""NextStateReconstructor: the observations below next, from the roots of the following steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase

from steppe.errors import SpecError
from steppe.transforms import as_key, as_keys, names_of, time_dim_of

from .stored_data import StoredDataTransform

__all__ = ["NextStateReconstructor"]


class NextStateReconstructor(StoredDataTransform):
    """Write ``("next", key)`` of stored steps, from the root of the following step of the trajectory.

    A buffer that stores no observations below ``"next"`` takes half the memory. If the data has no following step, as
    at the end of a trajectory or of a slice, the entry becomes ``fill_value``; a value that the data has below
    ``"next"`` is kept there. Sample slices, whose rows follow each other. ``LazyTensorStorage(n, compact=keys)`` saves
    the same memory, keeps the last observations, and works with any sampler.

    Args:
        keys: observations at the root. Default: ``["observation"]``.
        traj_key: number of the trajectory of each step; None: all steps are of one trajectory.
        done_key: the entry that is True at the last step of a trajectory; None: do not read any.
        step_count_key: a count of the steps of the trajectory, which must be one more in the following step; None: do
            not read any.
        fill_value: value where there is no following step. Integers need one, because they have no NaN.
        strict: raise an error if one of the three keys is not in the data. False: do without it.

    Raises:
        SpecError: an entry of integers without a ``fill_value``.
        KeyError: an entry is missing.

    Examples:
        >>> import torch
        >>> from tensordict import TensorDict
        >>> from steppe.transforms import NextStateReconstructor
        >>> data = TensorDict({"observation": torch.arange(4.0), "ids": torch.tensor([0, 0, 1, 1])}, [4])
        >>> NextStateReconstructor(traj_key="ids", done_key=None, fill_value=-1.0)(data)["next", "observation"].tolist()
        [1.0, -1.0, 3.0, -1.0]
    """

    over_time = True

    def __init__(
        self,
        keys: str | Sequence[NestedKey] = ("observation",),
        *,
        traj_key: NestedKey | None = ("collector", "traj_ids"),
        done_key: NestedKey | None = ("next", "done"),
        step_count_key: NestedKey | None = None,
        fill_value: float = float("nan"),
        strict: bool = True,
    ) -> None:
        super().__init__()
        # A tuple is a sequence of keys here, as TorchRL has it.
        self.keys = as_keys([keys] if isinstance(keys, str) else list(keys))
        self.traj_key, self.done_key, self.step_count_key = (
            None if key is None else as_key(key) for key in (traj_key, done_key, step_count_key)
        )
        self.fill_value, self.strict = fill_value, strict

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the entries below ``"next"``.

        Args:
            tensordict: steps ``[*B, T]``, or slices one after the other ``[T]``.

        Returns:
            ``tensordict``.
        """
        time = time_dim_of(tensordict, "NextStateReconstructor")
        follows = self._follows(tensordict, time)
        at, size = len(tensordict.batch_size) - 1, tensordict.batch_size
        for key in self.keys:
            value = self._entry(key, tensordict)
            out_key = ("next", *names_of(key))
            end = tensordict.get(out_key, None)
            if end is None:
                if not value.is_floating_point() and isinstance(self.fill_value, float) and math.isnan(self.fill_value):
                    raise SpecError(
                        f"NextStateReconstructor: {key!r} has the dtype {value.dtype}, which has no NaN. Pass another "
                        "fill_value, such as fill_value=0."
                    )
                end = torch.full_like(value, self.fill_value)
            shifted = value.roll(-1, time)
            mask = follows.movedim(at, time).reshape(*size, *(1,) * (value.ndim - len(size)))
            tensordict.set(out_key, torch.where(mask, shifted, end))
        return tensordict

    def _follows(self, data: TensorDictBase, time: int) -> torch.Tensor:
        """Return which steps have a following step in the data, ``[*B, T]`` with time last."""
        size = data.batch_size
        device = self._entry(self.keys[0], data).device
        follows = torch.ones(size, dtype=torch.bool, device=device).movedim(time, -1)
        follows[..., -1] = False

        def column(key: Any) -> torch.Tensor | None:
            if key is None:
                return None
            value: torch.Tensor | None = data.get(key, None) if not self.strict else self._entry(key, data)
            return None if value is None else value.reshape(*size, -1).movedim(time, len(size) - 1)

        ids, done, count = (column(key) for key in (self.traj_key, self.done_key, self.step_count_key))
        if ids is not None:
            follows[..., :-1] &= (ids[..., 1:, :] == ids[..., :-1, :]).all(-1)
        if done is not None:
            follows[..., :-1] &= ~done[..., :-1, :].any(-1)
        if count is not None:
            follows[..., :-1] &= (count[..., 1:, :] == count[..., :-1, :] + 1).all(-1)
        return follows

    def _entry(self, key: Any, data: TensorDictBase) -> torch.Tensor:
        value: torch.Tensor | None = data.get(key, None)
        if value is None:
            keys = sorted(map(str, data.keys(include_nested=True, leaves_only=True)))
            hint = " Pass traj_key=None or done_key=None to do without it." if key not in self.keys else ""
            raise KeyError(f"NextStateReconstructor: there is no {key!r} in the data. Found {keys}.{hint}")
        return value

    def _repr_keys(self) -> Sequence[str]:
        return ("keys", "traj_key", "done_key", "step_count_key")
