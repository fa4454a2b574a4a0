"""Fixed: non-tensor data with fixed values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tensordict import NonTensorData, NonTensorStack

from steppe.errors import SpecError

from . import shapes
from .base import Key, Rows, Spec, named
from .dtypes import CPU
from .nontensor import NonTensor, same_data
from .shapes import Change

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Fixed"]


class Fixed(NonTensor):
    """Non-tensor data that must equal one repeated value, or a stack of values.

    Args:
        datum: NonTensorData, a NonTensorStack, or a bare value.
    """

    def __init__(self, datum: object) -> None:
        wrapped = datum if isinstance(datum, (NonTensorData, NonTensorStack)) else NonTensorData(datum)
        super().__init__(wrapped.batch_size, wrapped.device)
        # An array of objects, to which shape operations apply. A repeated value is stored once and broadcast.
        self._values: Any = np.empty(() if isinstance(wrapped, NonTensorData) else wrapped.batch_size, dtype=object)
        if isinstance(wrapped, NonTensorData):
            self._values[()] = wrapped.data
        else:
            for at, value in zip(np.ndindex(self._values.shape), flat_values(wrapped), strict=True):
                self._values[at] = value
        self._values = np.broadcast_to(self._values, self._shape)

    @property
    def example_data(self) -> Any:
        """The value, or nested lists of the values."""
        return self._values.flat[0] if self._is_repeated() else self._values.tolist()

    def _is_repeated(self) -> bool:
        return bool(self._values.size) and (self._values.size == 1 or not any(self._values.strides))

    def _filled(self, lead: torch.Size, value: int) -> object:
        if self._is_repeated() or not self._values.size:
            datum = self._values.flat[0] if self._values.size else None
            return NonTensorData(datum, batch_size=(*lead, *self._values.shape), device=self._device)
        return NonTensorStack.from_list(np.broadcast_to(self._values, (*lead, *self._values.shape)).tolist())

    def _faults(self, val: object, key: Key, rows: Rows, exact: bool) -> Iterator[str]:
        faults = list(super()._faults(val, key, rows, exact))
        yield from faults
        if faults:
            return
        values = flat_values(val)
        size = self._values.size
        if size and any(
            not same_data(value, self._values.flat[i % size if len(values) >= size else 0])
            for i, value in enumerate(values)
        ):
            yield f"{named(key, self)}: expected {self.example_data!r}, found {self.to_numpy(val)!r}."

    def _change(self, change: Change) -> Spec:
        shape = shapes.shape_after(self._shape, change)
        numbers = torch.arange(self._values.size, device=CPU).view(shapes.static(self._shape))
        if self._is_repeated():
            return self._with(
                _shape=shape, _values=np.broadcast_to(self._values.flat[:1].reshape(()), shapes.static(shape))
            )
        at = shapes.change_param(numbers, self._shape, change).expand(shapes.static(shape))
        values = np.empty(at.shape, dtype=object)
        for place, number in zip(np.ndindex(values.shape), at.flatten().tolist(), strict=True):
            values[place] = self._values.flat[number]
        return self._with(_shape=shape, _values=values)

    def _resize(self, shape: torch.Size) -> None:
        try:
            self._values = np.broadcast_to(self._values, shapes.static(shape))
        except ValueError:
            raise SpecError(f"{self!r}: the values do not broadcast to the shape {tuple(shape)}.") from None
        super()._resize(shape)

    def make_neg_dim(self, dim: int) -> Self:
        """Make the size at ``dim`` dynamic, in place; return the spec.

        Raises:
            SpecError: the values differ along that dimension.
        """
        at = shapes.normal_dim(dim, self.ndim, what="NonTensor")
        if not self._is_repeated() and self._shape[at] != 1:
            raise SpecError(f"The values of {self!r} differ along dimension {dim}, so its size cannot be dynamic.")
        if self._values.size:
            self._values = np.take(self._values, [0], axis=at)
        return super().make_neg_dim(dim)

    def __eq__(self, other: object) -> bool:
        """Whether shape, device and values are equal."""
        if not isinstance(other, Fixed):
            return False
        return (self._shape, self._device) == (other._shape, other._device) and all(
            same_data(*pair) for pair in zip(self._values.flat, other._values.flat, strict=True)
        )


def flat_values(val: object) -> list[object]:
    """Return the values of non-tensor data as a flat list; of a bare value, a list of one."""
    if not isinstance(val, (NonTensorData, NonTensorStack)):
        return [val]
    out: list[Any] = [val.tolist()]
    for _ in range(val.batch_dims):
        out = [value for values in out for value in values]
    return out
