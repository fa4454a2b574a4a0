"""Leaf: the base class of specs of one tensor."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from steppe.errors import SpecError

from . import shapes
from .base import DeviceLike, Key, Rows, named
from .dtypes import CPU, UNSIGNED, DTypeLike, to_torch_dtype
from .shapes import ShapeLike
from .shaping import Shaped

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Leaf", "in_shape", "one_element", "same_values", "shape_fault"]


def shape_fault(name: str, expected: torch.Size, actual: torch.Size) -> str:
    """Return the error text for a wrong shape, with a fix if there is an obvious one."""
    text = f"{name}: expected shape {tuple(expected)}, found {tuple(actual)}."
    lead = len(actual) - len(expected)
    if lead > 0 and shapes.fits(actual[lead:], expected):
        rows = ", ".join(map(str, actual[:lead]))
        return f"{text} If the leading dimensions are a batch, use spec.expand({rows}, *spec.shape)."
    if sorted(actual) == sorted(expected):
        return f"{text} The dimensions are in another order: permute the data, or change the shape of the spec."
    if actual.numel() == shapes.static(expected).numel():
        return f"{text} Nothing is reshaped silently: reshape the data, or change the shape of the spec."
    return f"{text} Change the data, or the shape of the spec."


def one_element(tensor: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """Reshape a tensor of one element to a shape of one element; return other tensors unchanged."""
    if tensor.numel() == 1 and tensor.shape != shape and -1 not in shape and shape.numel() == 1:
        return tensor.reshape(shape)
    return tensor


def in_shape(tensor: torch.Tensor, val: object, shape: torch.Size, lead: Rows) -> torch.Tensor | None:
    """Return a library's value as data of a shape; None if it has another shape.

    Args:
        tensor: the value as a tensor.
        val: the value that the library returned.
        shape: shape without leading dimensions.
        lead: the leading dimensions; None for any.
    """
    expected = (*(lead or ()), *shape)
    if shapes.fits(tensor.shape, expected):
        return tensor
    if isinstance(val, (list, tuple)) and len(val) == 1 and shapes.fits(tensor.shape[1:], expected):
        return tensor[0]  # gym renders a list of frames
    return tensor if shapes.fits_rows(tensor.shape, shape, lead) else None


def same_values(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors of one shape hold the same numbers; their dtypes may differ."""
    if (one.dtype is torch.uint64) != (other.dtype is torch.uint64):
        # The upper half of uint64 becomes negative as int64, so the other tensor must hold no negative number.
        signed = (other if one.dtype is torch.uint64 else one).to(torch.float64)
        if bool((signed < 0).any()):
            return False
    one, other = (t.to(torch.int64) if t.dtype in UNSIGNED else t for t in (one, other))
    return bool((one == other).all())


class Leaf(Shaped):
    """Base of the specs of one tensor: shape, dtype, device and the operations on shapes.

    A subclass defines its domain (``_contains``, ``_nearest``, ``_draw``, ``_domain_text``), and what a shape operation
    does to its parameters (``_change``).
    """

    _domain: str | None = None
    """The requested domain; None for the default of the dtype."""

    _default_dtype: ClassVar[torch.dtype | None] = None
    """The dtype for ``dtype=None``; None for torch's default float."""

    def __init__(self, *, shape: ShapeLike, device: DeviceLike, dtype: DTypeLike) -> None:
        super().__init__(shape=shape, device=device)
        default = self._default_dtype or torch.get_default_dtype()
        self._dtype: torch.dtype = default if dtype is None else to_torch_dtype(dtype)

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the data. Assigning it gives the spec another one, in place."""
        return self._dtype

    @dtype.setter
    def dtype(self, value: DTypeLike) -> None:
        self._dtype = to_torch_dtype(value)

    @property
    def domain(self) -> str | None:
        """``"continuous"`` for floating-point data, ``"discrete"`` otherwise; or the domain that was requested."""
        if self._domain is not None:
            return self._domain
        return "continuous" if self._dtype.is_floating_point or self._dtype.is_complex else "discrete"

    # Defined by subclasses ----------------------------------------------------------------------------------------

    @abstractmethod
    def _contains(self, val: torch.Tensor) -> bool:
        """Whether values ``[..., *shape]`` of the right dtype are in the domain."""

    @abstractmethod
    def _nearest(self, val: torch.Tensor) -> torch.Tensor:
        """Return the nearest valid values, in the spec's dtype. ``val`` is ``[..., *shape]`` of any dtype."""

    @abstractmethod
    def _draw(self, lead: torch.Size, generator: torch.Generator | None, device: torch.device) -> torch.Tensor:
        """Draw random values ``[*lead, *shape]`` on ``device``."""

    @abstractmethod
    def _domain_text(self) -> str:
        """Describe the domain; error texts put it after "expected"."""

    def _to_dtype(self, dtype: torch.dtype) -> Self:
        return self._with(_dtype=dtype, _domain=None)

    # Making data -------------------------------------------------------------------------------------------------

    def rand(self, shape: ShapeLike = (), *, generator: torch.Generator | None = None) -> torch.Tensor:
        """Draw data ``[*shape, *spec.shape]`` from the spec in one vectorised call; see :meth:`Spec.rand`."""
        device = self._device or CPU
        where = device if generator is None else generator.device
        out = self._draw(shapes.size(shape), generator, where)
        return out if where == device else out.to(device)

    def _filled(self, lead: torch.Size, value: int) -> torch.Tensor:
        return torch.full(self._full(lead), value, dtype=self._dtype, device=self._device or CPU)

    def _full(self, lead: torch.Size) -> torch.Size:
        return torch.Size((*lead, *shapes.static(self._shape)))

    # Checking and converting data --------------------------------------------------------------------------------

    def _faults(self, val: object, key: Key, rows: Rows, exact: bool) -> Iterator[str]:
        name = named(key, self)
        if not isinstance(val, torch.Tensor):
            numeric = isinstance(val, (bool, int, float, complex, list, tuple, np.ndarray, np.generic))
            fix = " Turn it into one with spec.encode(value)." if numeric else ""
            yield f"{name}: expected a tensor, found {type(val).__name__}.{fix}"
            return
        if val.is_nested:
            yield f"{name}: expected a tensor of shape {tuple(self._shape)}, found a nested tensor."
            return
        shape_fits = shapes.fits_rows(val.shape, self._shape, rows)
        if not shape_fits:
            yield shape_fault(name, torch.Size((*(rows or ()), *self._shape)), val.shape)
        if val.dtype is not self._dtype:
            yield self._dtype_fault(name, val.dtype)
        elif shape_fits and not self._contains(val):
            excerpt = _excerpt(val)
            yield f"{name}: expected {self._domain_text()}, found {excerpt}. Use spec.project(value) to bring it in."

    def project(self, val: object, *, key: Key = None) -> torch.Tensor:
        """Return the nearest datum of the spec; see :meth:`Spec.project`."""
        tensor = self._tensor(val, key)
        if not shapes.fits_rows(tensor.shape, self._shape, None):
            raise SpecError(shape_fault(named(key, self), self._shape, tensor.shape))
        if tensor.dtype is self._dtype and self._contains(tensor):
            return tensor
        return self._nearest(tensor)

    def encode(self, val: object, *, ignore_device: bool = False, key: Key = None, lead: Rows = None) -> torch.Tensor:
        """Turn a value into a tensor of the spec's dtype, on its device; see :meth:`Spec.encode`.

        Arrays are copied, because environments reuse their memory. Tensors are copied only to another dtype or device.
        """
        tensor = self._tensor(val, key)
        shape = torch.Size((*(lead or ()), *self._shape))
        fitted = in_shape(one_element(tensor, shape), val, self._shape, lead)
        if fitted is None:
            raise SpecError(shape_fault(named(key, self), shape, tensor.shape))
        return self._cast(fitted, key, ignore_device=ignore_device)

    def _cast(self, tensor: torch.Tensor, key: Key, *, ignore_device: bool) -> torch.Tensor:
        """Return the tensor in the spec's dtype, on its device.

        Raises:
            SpecError: an integer or bool dtype cannot hold a value.
        """
        if tensor.dtype is not self._dtype:
            out = tensor.to(self._dtype)
            if not (self._dtype.is_floating_point or self._dtype.is_complex) and not same_values(out, tensor):
                raise SpecError(
                    f"{named(key, self)}: expected values that {self._dtype} can hold, found {_excerpt(tensor)} of "
                    f"{tensor.dtype}. Round or clip them, or give the spec another dtype."
                )
            tensor = out
        self._check_if(None, tensor, key)
        return tensor if ignore_device or self._device is None else tensor.to(self._device)

    def to_numpy(self, val: object, safe: bool | None = None, *, key: Key = None) -> Any:
        """Return the data as an array; see :meth:`Spec.to_numpy`. bfloat16 becomes float32, which numpy has."""
        self._check_if(safe, val, key)
        return _array(val)

    def _dtype_fault(self, name: str, actual: object) -> str:
        return f"{name}: expected dtype {self._dtype}, found {actual}. Cast the data, or give the spec dtype={actual}."

    def _tensor(self, val: object, key: Key) -> torch.Tensor:
        """Convert ``val`` to a tensor; Python numbers get the dtype that numpy gives them."""
        if isinstance(val, torch.Tensor):
            return val
        try:
            if isinstance(val, (list, tuple)) and val and isinstance(val[0], torch.Tensor):
                return torch.stack(list(val))
            return torch.from_numpy(np.array(val))
        except (TypeError, ValueError, RuntimeError) as error:
            raise SpecError(
                f"{named(key, self)}: expected numbers of shape {tuple(self._shape)} and dtype {self._dtype}, "
                f"found {type(val).__name__} that is no tensor ({error})."
            ) from None

    # Copies and devices ------------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        """Whether two specs describe the same data."""
        return self._same(other) if type(self) is type(other) else NotImplemented

    def _same(self, other: Self) -> bool:
        if (self._shape, self._dtype, self._device) != (other._shape, other._dtype, other._device):
            return False
        if self.domain != other.domain:
            return False
        for name in self._tensors:
            mine, theirs = getattr(self, name), getattr(other, name)
            if (mine is None) != (theirs is None) or (mine is not None and not torch.equal(mine, theirs)):
                return False
        return True

    def __contains__(self, item: object) -> bool:
        return self.is_in(item)

    def _arguments(self) -> list[str]:
        """Return what ``repr`` shows before the shape."""
        return []

    def __repr__(self) -> str:
        shown = [*self._arguments(), f"shape={tuple(self._shape)}", f"dtype={str(self._dtype).removeprefix('torch.')}"]
        if self._domain is not None:
            shown.append(f"domain={self._domain!r}")
        if self._device is not None:
            shown.append(f"device={str(self._device)!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


def _array(val: object) -> np.ndarray:
    if not isinstance(val, torch.Tensor):
        return np.asarray(val)
    val = val.detach().cpu()
    return (val.float() if val.dtype is torch.bfloat16 else val).numpy()


def _excerpt(val: torch.Tensor) -> str:
    """Return some of the values as text for an error."""
    if val.numel() <= 16:
        return str(val.tolist())
    if val.dtype.is_complex:
        return f"{val.numel()} values"
    numbers_ = val.detach().double()
    known = numbers_[~numbers_.isnan()]
    missing = val.numel() - known.numel()
    text = f"values from {known.min().item():.6g} to {known.max().item():.6g}" if known.numel() else "no number"
    return f"{text}, {missing} NaN" if missing else text
