"""Bounded and Unbounded: numbers with and without bounds."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import numpy as np
import torch

from steppe.errors import SpecError

from . import sampling, shapes
from .base import DeviceLike, Spec
from .boxes import ContinuousBox, brief
from .dtypes import CPU, DTypeLike, to_torch_dtype
from .leaf import Leaf
from .shapes import ShapeLike
from .spec_meta import OfDomain

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "Bounded",
    "BoundedContinuous",
    "BoundedDiscrete",
    "Unbounded",
    "UnboundedContinuous",
    "UnboundedDiscrete",
    "mapped_bounds",
]


def _checked_domain(domain: str | None) -> str | None:
    if domain not in (None, "continuous", "discrete"):
        raise SpecError(f"Expected a domain of 'continuous' or 'discrete', found {domain!r}.")
    return domain


def _limits(dtype: torch.dtype) -> tuple[float | int, float | int]:
    """Return the smallest and largest value of a dtype; infinities for floats."""
    if dtype.is_floating_point:
        return -math.inf, math.inf
    if dtype is torch.bool:
        return 0, 1
    info = torch.iinfo(dtype)
    return info.min, info.max


def _ordered(tensor: torch.Tensor) -> torch.Tensor:
    """Convert values to a dtype that torch can compare."""
    if tensor.dtype in (torch.uint16, torch.uint32, torch.bool):
        return tensor.to(torch.int64)
    return tensor


BoundLike: TypeAlias = "torch.Tensor | np.ndarray | Sequence[object] | float"


class _Numbers(Leaf):
    """Base of Bounded and Unbounded."""

    @property
    @abstractmethod
    def space(self) -> ContinuousBox:
        """The range of each element, as a ContinuousBox."""

    def bounds(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the ends of the range; see :meth:`Spec.bounds`."""
        shape, box = shapes.static(self._shape), self.space
        return box.low.expand(shape).to(self._dtype), box.high.expand(shape).to(self._dtype)


class Bounded(_Numbers):
    """Numbers from ``low`` to ``high``, both included, element by element.

    A bound may be infinite: ``rand`` then draws inside the other bound, or from a normal distribution if both are
    infinite. NaN is never valid. ``zero`` returns zeros even if zero is out of bounds.

    Args:
        low: smallest values: a number, an array or a tensor that broadcasts to ``shape``. Infinities in the bounds of
            an integer dtype mean the limits of the dtype.
        high: largest values, likewise.
        shape: shape of the data; by default the broadcast shape of the bounds.
        device: device of the data, or None.
        dtype: dtype of the data; torch's default float by default, for bounds of any dtype.
        domain: ``"continuous"`` or ``"discrete"``; by default the domain of the dtype.

    Raises:
        SpecError: ``low > high`` for an element, a bound is NaN or outside the dtype, or a shape does not fit.
    """

    def __init__(
        self,
        low: BoundLike,
        high: BoundLike,
        shape: ShapeLike | None = None,
        device: DeviceLike = None,
        dtype: DTypeLike = None,
        domain: str | None = None,
    ) -> None:
        dtype = torch.get_default_dtype() if dtype is None else to_torch_dtype(dtype)
        least, most = _bound(low, dtype, "low"), _bound(high, dtype, "high")
        if shape is None:
            try:
                shape = shapes.broadcast(least.shape, most.shape)
            except RuntimeError:
                raise SpecError(
                    f"Bounded: low of shape {tuple(least.shape)} and high of shape {tuple(most.shape)} differ."
                ) from None
        super().__init__(shape=shape, device=device, dtype=dtype)
        self._domain = _checked_domain(domain)
        for name, bound in (("low", least), ("high", most)):
            _check_broadcasts(name, bound, self._shape)
        if bool((_ordered(least) > _ordered(most)).any()):
            raise SpecError(f"Bounded: low must not exceed high, found low={brief(least)} and high={brief(most)}.")
        self._box = ContinuousBox(least.to(self._device), most.to(self._device), shape=self._shape)

    @property
    def space(self) -> ContinuousBox:
        """The bounds, as a ContinuousBox whose ``low`` and ``high`` have the full shape. They can be assigned.

        Bounds of another shape may be assigned before the spec is given that shape: ``spec.shape = ...``.
        """
        return self._box

    @space.setter
    def space(self, value: ContinuousBox) -> None:
        self._box = value.clone()

    @property
    def low(self) -> torch.Tensor:
        """Smallest values, of the full shape."""
        return self._box.low

    @property
    def high(self) -> torch.Tensor:
        """Largest values, of the full shape."""
        return self._box.high

    def _edges(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the bounds in the dtype of the spec, in the smallest shape."""
        box = self._box
        if not box.has_shape(self._shape):
            raise SpecError(
                f"Bounded: the bounds were given the shapes {tuple(box.low.shape)} and {tuple(box.high.shape)}, the "
                f"spec has {tuple(self._shape)}. Give it theirs: spec.shape = spec.space.low.shape."
            )
        least, most = box.least, box.most
        if least.dtype is not self._dtype or most.dtype is not self._dtype:
            return _bound(least, self._dtype, "low"), _bound(most, self._dtype, "high")
        return least, most

    def _bounds(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        least, most = self._edges()
        return _ordered(least.to(device)), _ordered(most.to(device))

    def _contains(self, val: torch.Tensor) -> bool:
        low, high = self._bounds(val.device)
        val = _ordered(val)
        return bool(((val >= low) & (val <= high)).all())

    def _nearest(self, val: torch.Tensor) -> torch.Tensor:
        low, high = self._bounds(val.device)
        if self._dtype.is_floating_point:
            val = val.to(self._dtype)
            # NaN is nowhere, so it goes to the bound nearest to zero that exists.
            home = torch.clamp(torch.zeros_like(low), low, high)
            return torch.where(val.isnan(), home, torch.clamp(val, low, high))
        if not val.dtype.is_floating_point:
            return torch.clamp(_ordered(val).to(torch.int64), low, high).to(self._dtype)
        # The largest int64 is no float: compare first, and convert only what lies strictly inside.
        val = val.double()
        home = torch.clamp(torch.zeros_like(low), low, high)
        inside = torch.where((val > low.double()) & (val < high.double()), val, 0.0).to(torch.int64)
        out = torch.where(val >= high.double(), high, torch.where(val <= low.double(), low, inside.to(low.dtype)))
        return torch.where(val.isnan(), home, torch.clamp(out, low, high)).to(self._dtype)

    def _draw(self, lead: torch.Size, generator: torch.Generator | None, device: torch.device) -> torch.Tensor:
        draw = sampling.floats if self._dtype.is_floating_point else sampling.integers
        least, most = self._edges()
        return draw(least, most, self._full(lead), dtype=self._dtype, generator=generator, device=device)

    def _domain_text(self) -> str:
        return f"values from {brief(self._box.least)} to {brief(self._box.most)}"

    def _map_tensors(self, function: Callable[[torch.Tensor], torch.Tensor], shape: torch.Size | None = None) -> Self:
        shape = self._shape if shape is None else shape
        low, high = map(function, self._edges())
        return self._with(_shape=shape, _box=ContinuousBox(low, high, shape=shape))

    def _to_dtype(self, dtype: torch.dtype) -> Self:
        edges = zip(self._edges(), ("low", "high"), strict=True)
        low, high = (_bound(edge, dtype, name, clip=True) for edge, name in edges)
        return type(self)(low, high, self._shape, self._device, dtype)

    def cardinality(self) -> int | float:
        """Return the number of different values: ``inf`` for floats, the product over all elements for integers."""
        if self._dtype.is_floating_point:
            return math.inf
        low, high = (edge.expand(shapes.static(self._shape)).flatten().tolist() for edge in self._edges())
        return shapes.product(int(b) - int(a) + 1 for a, b in zip(low, high, strict=True))

    def enumerate(self, use_mask: bool = False) -> torch.Tensor:
        """Return all values of an integer spec, ``[cardinality, *shape]``.

        Raises:
            NotSupported: the spec is of floats, or has more than 2**24 values.
        """
        if self._dtype.is_floating_point:
            raise self._unsupported("enumerate", "its values are not countable")
        self._check_countable(self.cardinality())
        low, high = (edge.expand(shapes.static(self._shape)).flatten().tolist() for edge in self._edges())
        columns = [torch.arange(int(a), int(b) + 1, device=CPU) for a, b in zip(low, high, strict=True)]
        rows = shapes.combinations(columns).to(self._device, self._dtype)
        return rows.view(len(rows), *shapes.static(self._shape))

    def _same(self, other: Self) -> bool:
        return super()._same(other) and self._box == other._box

    def _resize(self, shape: torch.Size) -> None:
        for name, bound in (("low", self._box.least), ("high", self._box.most)):
            _check_broadcasts(name, bound, shape)
        self._box, self._shape = ContinuousBox(self._box.least, self._box.most, shape=shape), shape

    def _arguments(self) -> list[str]:
        return [f"low={brief(self._box.least)}", f"high={brief(self._box.most)}"]


class BoundedContinuous(Bounded, metaclass=OfDomain):
    """Every :class:`Bounded` with the domain ``"continuous"`` is an instance; a call returns a Bounded."""

    _named_domain = "continuous"
    _defaults: ClassVar[dict[str, object]] = {"domain": "continuous"}


class BoundedDiscrete(Bounded, metaclass=OfDomain):
    """Every :class:`Bounded` with the domain ``"discrete"`` is an instance; a call returns a Bounded."""

    _named_domain = "discrete"
    _defaults: ClassVar[dict[str, object]] = {"domain": "discrete"}


def _bound(value: BoundLike, dtype: torch.dtype, name: str, *, clip: bool = False) -> torch.Tensor:
    """Copy a bound to the dtype of the spec; ``clip`` it to the limits of an integer dtype instead of refusing it."""
    if dtype is torch.uint64 or dtype.is_complex:
        raise SpecError(f"Bounded: expected a dtype whose values torch can compare, found {dtype}. Use torch.int64.")
    try:
        tensor = value.detach() if isinstance(value, torch.Tensor) else torch.from_numpy(np.array(value))
    except (TypeError, ValueError) as error:
        raise SpecError(f"Bounded: {name} must be numbers, found {value!r} ({error}).") from None
    if tensor.is_floating_point() and bool(tensor.isnan().any()):
        raise SpecError(f"Bounded: {name} holds NaN, and nothing lies between NaN and anything.")
    if dtype.is_floating_point:
        out = tensor.to(dtype, copy=True)
        if bool((out == (math.inf if name == "low" else -math.inf)).any()):
            raise SpecError(f"Bounded: {name} is {brief(out)}, which leaves no finite value.")
        return out
    least, most = _limits(dtype)
    if tensor.is_floating_point():
        # Float bounds are rounded inward; infinities become the limits of the dtype.
        inward = tensor.double().ceil() if name == "low" else tensor.double().floor()
        at_least, at_most = inward <= float(least), inward >= float(most)
        finite = torch.where(at_least | at_most, 0.0, inward).to(torch.int64)
        wide = torch.where(at_least, int(least), torch.where(at_most, int(most), finite))
        outside = (at_least | at_most) & ~tensor.isinf() & (inward != float(least)) & (inward != float(most))
    else:
        whole = tensor.to(torch.int64)
        wide = whole.clamp(int(least), int(most))
        outside = wide != whole
    if not clip and bool(outside.any()):
        raise SpecError(f"Bounded: {name}={brief(tensor)} is outside of {dtype}, which holds {least} to {most}.")
    return wide.to(dtype, copy=True)


def _check_broadcasts(name: str, bound: torch.Tensor, shape: torch.Size) -> None:
    try:
        bound.expand(shapes.static(shape))
    except RuntimeError:
        raise SpecError(
            f"Bounded: {name} has shape {tuple(bound.shape)}, which does not broadcast to the shape {tuple(shape)}."
        ) from None


class Unbounded(_Numbers):
    """Any numbers of a dtype, NaN included.

    ``rand`` draws from a standard normal distribution, or from the whole range of an integer dtype.

    Args:
        shape: shape of the data.
        device: device of the data, or None.
        dtype: dtype of the data; torch's default float by default.
        domain: ``"continuous"`` or ``"discrete"``; by default the domain of the dtype.
    """

    def __init__(
        self, shape: ShapeLike = (1,), device: DeviceLike = None, dtype: DTypeLike = None, domain: str | None = None
    ) -> None:
        super().__init__(shape=shape, device=device, dtype=dtype)
        self._domain = _checked_domain(domain)

    @property
    def space(self) -> ContinuousBox:
        """The whole range of the dtype, as a ContinuousBox."""
        # torch cannot compare limits of uint64 and complex dtypes, so float64 stands for them.
        dtype = torch.float64 if self._dtype.is_complex else self._dtype
        least, most = _limits(dtype)
        held = torch.float64 if dtype is torch.uint64 else dtype
        low, high = (torch.tensor(limit, dtype=held, device=self._device or CPU) for limit in (least, most))
        return ContinuousBox(low, high, shape=self._shape)

    def _contains(self, val: torch.Tensor) -> bool:
        return True

    def _nearest(self, val: torch.Tensor) -> torch.Tensor:
        return val.to(self._dtype)

    def _draw(self, lead: torch.Size, generator: torch.Generator | None, device: torch.device) -> torch.Tensor:
        size = self._full(lead)
        if self._dtype.is_floating_point or self._dtype.is_complex:
            return sampling.normal(size, dtype=self._dtype, generator=generator, device=device)
        dtype = torch.int64 if self._dtype is torch.uint64 else self._dtype
        least, most = (torch.tensor(int(limit), device=CPU) for limit in _limits(dtype))
        out = sampling.integers(least, most, size, dtype=dtype, generator=generator, device=device)
        return out.view(torch.uint64) if self._dtype is torch.uint64 else out

    def _domain_text(self) -> str:
        return "any value"


class UnboundedContinuous(Unbounded, metaclass=OfDomain):
    """Every :class:`Unbounded` with the domain ``"continuous"`` is an instance; a call returns an Unbounded."""

    _named_domain = "continuous"
    _defaults: ClassVar[dict[str, object]] = {}


class UnboundedDiscrete(Unbounded, metaclass=OfDomain):
    """Every :class:`Unbounded` with the domain ``"discrete"`` is an instance; a call returns an Unbounded of int64."""

    _named_domain = "discrete"
    _defaults: ClassVar[dict[str, object]] = {"dtype": torch.int64}


def mapped_bounds(leaf: Spec, function: Callable[[torch.Tensor], torch.Tensor]) -> Bounded:
    """Return the spec of ``function(value)``, for a function that keeps the shape and never decreases.

    Args:
        leaf: the spec of ``value``, of numbers.
        function: such as clipping, the sign, or a scale that is not negative.

    Raises:
        SpecError: it is a spec of several entries, of text or of objects.
    """
    low, high = (function(bound) for bound in leaf.bounds())
    return Bounded(low, high, shape=leaf.shape, device=leaf.device, dtype=low.dtype)
