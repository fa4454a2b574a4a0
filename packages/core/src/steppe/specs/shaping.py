"""Shaped: shape operations of specs that are not a Composite."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from steppe.errors import SpecError

from . import shapes
from .base import DeviceLike, Spec
from .shapes import Change, ShapeLike

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Shaped", "as_device", "is_host"]


def as_device(device: DeviceLike) -> torch.device | None:
    """Return ``device`` as a torch.device with its index, or None."""
    if device is None:
        return None
    device = torch.device(device)
    if device.type == "cuda" and device.index is None and torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return device


def is_host(device: torch.device | None) -> bool:
    """Return whether data for this device stays in the memory of this process: on the CPU, or without a device."""
    return device is None or device.type == "cpu"


class Shaped(Spec):
    """Base of specs that are not a Composite: shape, device and shape operations.

    Every operation is a function of a tensor, which is applied to the parameters too: tensors that broadcast to the
    shape. A subclass whose parameters have other shapes overrides :meth:`_change`.
    """

    _tensors: ClassVar[tuple[str, ...]] = ()
    """Names of the attributes that hold parameters, which are tensors or None."""

    def __init__(self, *, shape: ShapeLike, device: DeviceLike) -> None:
        self._shape = shapes.size(shape)
        if any(n < -1 for n in self._shape):
            raise SpecError(
                f"{type(self).__name__}: expected sizes of 0 or more, or -1 (dynamic), found {tuple(self._shape)}."
            )
        self._device = as_device(device)

    @property
    def shape(self) -> torch.Size:
        """Shape of the data, batch dimensions included; -1 where a size is dynamic.

        Assigning it changes the spec in place, if its domain fits the shape. A Composite that holds the spec is not
        updated.
        """
        return self._shape

    @shape.setter
    def shape(self, value: ShapeLike) -> None:
        self._resize(shapes.size(value))

    def _resize(self, shape: torch.Size) -> None:
        self._shape = shape

    @property
    def device(self) -> torch.device | None:
        """Device of the data; None for any. Assigning it moves the spec, in place."""
        return self._device

    @device.setter
    def device(self, value: DeviceLike) -> None:
        if value is None:
            self.clear_device_()
        else:
            self.__dict__.update(self.to(value).__dict__)

    def _with(self, **attributes: object) -> Self:
        """Return a shallow copy with some attributes replaced."""
        out = copy.copy(self)
        out.__dict__.update(attributes)
        return out

    def _change(self, change: Change) -> Spec:
        """Return the spec of ``change(data)``."""
        shape = shapes.shape_after(self._shape, change)
        return self._map_tensors(lambda param: shapes.change_param(param, self._shape, change), shape)

    def _map_tensors(self, function: Callable[[torch.Tensor], torch.Tensor], shape: torch.Size | None = None) -> Self:
        """Return a copy with ``function`` applied to the parameters, and with another shape."""
        held = {name: getattr(self, name) for name in self._tensors}
        mapped = {name: function(value) for name, value in held.items() if value is not None}
        return self._with(_shape=self._shape if shape is None else shape, **mapped)

    def clone(self) -> Self:
        """Return an independent copy."""
        return self._map_tensors(torch.clone)

    def to(self, dest: torch.device | str | int | torch.dtype | None) -> Self:
        """Return the spec on another device, or of another dtype; itself where nothing changes."""
        if isinstance(dest, torch.dtype):
            return self if dest is self.dtype else self._to_dtype(dest)
        device = as_device(dest)
        if device is None or device == self._device:
            return self
        return self._map_tensors(lambda t: t.to(device))._with(_device=device)

    def _to_dtype(self, dtype: torch.dtype) -> Self:
        """Return the spec of data of another dtype; itself if the data has none."""
        return self

    def clear_device_(self) -> Self:
        """Make the device None, in place; return the spec."""
        self._device = None
        return self

    def _apply(self, change: Change, doing: str) -> Spec:
        return self._attempt(doing, lambda: self._change(change))

    def permute(self, *dims: ShapeLike) -> Any:
        """Return the spec with its dimensions in another order."""
        return self._changed("permute", tuple(shapes.flat_sizes(dims)))

    def _index(self, index: object) -> Any:
        ready = shapes.torch_index(index)
        return self._apply(lambda t: shapes.indexed(t, ready), f"index with {index!r}")

    def make_neg_dim(self, dim: int) -> Self:
        """Make the size at ``dim`` dynamic, in place; return the spec.

        Raises:
            SpecError: its parameters differ along that dimension.
        """
        at = shapes.normal_dim(dim, self.ndim, what=type(self).__name__)

        def along(param: torch.Tensor) -> torch.Tensor:
            same = shapes.param_along(param, at - self.ndim)
            if same is None:
                raise SpecError(f"{self!r}: values differ along dimension {dim}, so its size cannot be dynamic.")
            return same

        dynamic = torch.Size((*self._shape[:at], -1, *self._shape[at + 1 :]))
        self.__dict__.update(self._map_tensors(along, dynamic).__dict__)
        return self
