"""Fixed: non-tensor data with fixed values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from tensordict import NonTensorData, NonTensorStack

from steppe.errors import SpecError

from . import shapes
from .base import Key, Rows, named
from .dtypes import CPU
from .nontensor import NonTensor, same_data

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Fixed"]


class Fixed(NonTensor):
    """Non-tensor data that must equal one repeated value, or a stack of values.

    Args:
        datum: NonTensorData, a NonTensorStack, or a bare value.
    """

    _tensors = ("_place",)

    def __init__(self, datum: object) -> None:
        wrapped = datum if isinstance(datum, (NonTensorData, NonTensorStack)) else NonTensorData(datum)
        super().__init__(wrapped.batch_size, wrapped.device)
        # The different values, and which of them each element is: a scalar if all are one value. Shape operations apply
        # to it, as to the parameters of other specs.
        self._values = [wrapped.data] if isinstance(wrapped, NonTensorData) else flat_values(wrapped)
        places = torch.arange(len(self._values), device=CPU)
        self._place = places.squeeze(0) if len(places) == 1 else places.view(self._shape)

    @property
    def example_data(self) -> Any:
        """The value, or nested lists of the values."""
        return self._listed(torch.Size(()) if self._place.ndim == 0 else shapes.static(self._shape))

    def _listed(self, shape: torch.Size) -> Any:
        def values(places: Any) -> Any:
            return [values(part) for part in places] if isinstance(places, list) else self._values[places]

        return values(self._place.expand(shape).tolist())

    def _filled(self, lead: torch.Size, value: int) -> object:
        size = torch.Size((*lead, *shapes.static(self._shape)))
        if self._place.ndim and self._place.numel():
            return NonTensorStack.from_list(self._listed(size))
        datum = None if self._place.ndim else self._values[int(self._place)]
        return NonTensorData(datum, batch_size=size, device=self._device)

    def _faults(self, val: object, key: Key, rows: Rows, exact: bool) -> Iterator[str]:
        faults = list(super()._faults(val, key, rows, exact))
        yield from faults
        if faults:
            return
        values = flat_values(val)
        expected = self._flat()
        size = len(expected)
        if size and any(
            not same_data(value, expected[i % size if len(values) >= size else 0]) for i, value in enumerate(values)
        ):
            yield f"{named(key, self)}: expected {self.example_data!r}, found {self.to_numpy(val)!r}."

    def _flat(self) -> list[object]:
        return [self._values[place] for place in self._place.expand(shapes.static(self._shape)).flatten().tolist()]

    def to(self, dest: torch.device | str | int | torch.dtype | None) -> Self:
        """Return the spec on another device; see :meth:`Spec.to`."""
        out = super().to(dest)
        out._place = self._place  # Python reads it, so it stays on the CPU
        return out

    def _resize(self, shape: torch.Size) -> None:
        try:
            self._place.expand(shapes.static(shape))
        except RuntimeError:
            raise SpecError(f"{self!r}: the values do not broadcast to the shape {tuple(shape)}.") from None
        super()._resize(shape)

    def __eq__(self, other: object) -> bool:
        """Whether shape, device and values are equal."""
        if not isinstance(other, Fixed):
            return False
        return (self._shape, self._device) == (other._shape, other._device) and all(
            same_data(*pair) for pair in zip(self._flat(), other._flat(), strict=True)
        )


def flat_values(val: object) -> list[object]:
    """Return the values of non-tensor data as a flat list; of a bare value, a list of one."""
    if not isinstance(val, (NonTensorData, NonTensorStack)):
        return [val]
    out: list[Any] = [val.tolist()]
    for _ in range(val.batch_dims):
        out = [value for values in out for value in values]
    return out
