"""NonTensor: the spec of text and other data that is not a tensor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from tensordict import NonTensorData, NonTensorStack, TensorDictBase, is_tensor_collection

from steppe.arguments import ignored_argument
from steppe.errors import SpecError

from . import shapes
from .action_decoders import ActionDecoder, Refuse
from .base import DeviceLike, Key, Rows, named
from .shapes import ShapeLike
from .shaping import Shaped

__all__ = ["NonTensor", "flat_values"]


def flat_values(val: object) -> list[Any]:
    """Return the values of non-tensor data as a flat list; of a bare value, a list of one."""
    if not isinstance(val, (NonTensorData, NonTensorStack)):
        return [val]
    out: list[Any] = [val.tolist()]
    for _ in range(val.batch_dims):
        out = [value for values in out for value in values]
    return out


def _same_data(one: object, other: object) -> bool:
    """Whether two values are equal, arrays included."""
    same = one is other or one == other
    return bool(np.all(same)) if isinstance(same, np.ndarray) else bool(same)


class NonTensor(Shaped):
    """Data that is not a tensor, such as text, with a batch shape.

    Data is ``NonTensorData`` or ``NonTensorStack`` of tensordict; for an empty shape, bare values are valid too.
    ``zero``, ``one`` and ``rand`` repeat the example.

    Args:
        shape: batch shape of the data.
        device: device of TensorDicts with such data, or None.
        dtype: ignored, with a warning, like ``batched`` and ``feature_dims``; programs for TorchRL pass them.
        example_data: an example of a value.
        batched: ignored: data is a stack if its rows differ.
        feature_dims: ignored.

    Attributes:
        batched: the argument.
        feature_dims: the argument.
    """

    def __init__(
        self,
        shape: ShapeLike = (),
        device: DeviceLike = None,
        dtype: object = None,
        example_data: object = None,
        batched: bool | None = None,
        feature_dims: int | None = None,
    ) -> None:
        super().__init__(shape=shape, device=device)
        if dtype is not None:
            ignored_argument("NonTensor", "dtype", "values that are no tensors have none")
        for name, value in (("batched", batched), ("feature_dims", feature_dims)):
            if value is not None:
                ignored_argument("NonTensor", name, "a value stands for all its rows, and rows that differ are a stack")
        self.batched, self.feature_dims = batched, feature_dims
        self._example = example_data

    @property
    def example_data(self) -> Any:
        """The value that ``zero``, ``one`` and ``rand`` repeat."""
        return self._example

    def action_decoder(self, refuse: Refuse) -> ActionDecoder:
        """Return actions as they are, without the wrapper of tensordict."""
        return ActionDecoder(lambda action: action.data if is_tensor_collection(action) else action, list)

    def _filled(self, lead: torch.Size, value: int) -> object:
        size = torch.Size((*lead, *shapes.static(self._shape)))
        return NonTensorData(self._example, batch_size=size, device=self._device)

    def rand(self, shape: ShapeLike = (), *, generator: torch.Generator | None = None) -> Any:
        """Return the example, ``[*shape, *spec.shape]`` times."""
        return self.zero(shape)

    def _faults(self, val: object, key: Key, rows: Rows, exact: bool) -> Iterator[str]:
        name = named(key, self)
        if isinstance(val, (NonTensorData, NonTensorStack)):
            if not shapes.fits_rows(val.batch_size, self._shape, rows):
                expected = (*(rows or ()), *self._shape)
                yield f"{name}: expected non-tensor data of shape {expected}, found {tuple(val.batch_size)}."
        elif isinstance(val, (torch.Tensor, TensorDictBase)):
            yield f"{name}: expected non-tensor data, found a {type(val).__name__}."
        elif self._shape or rows:
            yield (
                f"{name}: expected non-tensor data of shape {(*(rows or ()), *self._shape)}, found a bare "
                f"{type(val).__name__}. Wrap it with spec.encode(value)."
            )

    def project(self, val: object, *, key: Key = None) -> Any:
        """Return ``val`` after a check.

        Raises:
            SpecError: ``val`` is not non-tensor data of this shape.
        """
        self.assert_is_in(val, key=key)
        return val

    def encode(self, val: object, *, ignore_device: bool = False, key: Key = None, lead: Rows = None) -> Any:
        """Wrap a value, or each value in a list or array of the shape of the spec.

        Because a list may be a value itself, pass the leading dimensions of bare values as ``lead``.

        Raises:
            SpecError: ``val`` is wrapped data of another shape.
        """
        if isinstance(val, (NonTensorData, NonTensorStack)):
            for fault in self._faults(val, key, lead, lead is not None):
                raise SpecError(fault)
            return val
        shape = torch.Size((*(lead or ()), *self._shape))
        if shape and isinstance(val, (list, tuple, np.ndarray)):
            parts = self._nested(list(val), shape)
            if parts is None:
                raise SpecError(f"{named(key, self)}: expected {tuple(shape)} values in nested lists, found {val!r}.")
            return NonTensorStack.from_list(parts)
        return NonTensorData(val, batch_size=shapes.static(shape), device=self._device)

    def _nested(self, val: object, shape: torch.Size) -> Any:
        if not shape:
            return val
        if not isinstance(val, (list, tuple, np.ndarray)) or shape[0] not in (-1, len(val)):
            return None
        parts = [self._nested(part, shape[1:]) for part in val]
        return None if len(shape) > 1 and any(part is None for part in parts) else parts

    def to_numpy(self, val: object, safe: bool | None = None, *, key: Key = None) -> Any:
        """Return the bare value, or nested lists of values."""
        self._check_if(safe, val, key)
        if isinstance(val, NonTensorStack):
            return val.tolist()
        return val.data if isinstance(val, NonTensorData) else val

    def __eq__(self, other: object) -> bool:
        """Whether class, shape, device and example are equal."""
        if not isinstance(other, NonTensor):
            return NotImplemented
        if (type(self), self._shape, self._device) != (type(other), other._shape, other._device):
            return False
        return _same_data(self._example, other._example)

    def __repr__(self) -> str:
        device = f", device={str(self._device)!r}" if self._device is not None else ""
        return f"{type(self).__name__}(shape={tuple(self._shape)}{device}, example_data={self._example!r})"
