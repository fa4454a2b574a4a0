"""One of a few specs or values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from tensordict import NonTensorData, NonTensorStack, is_tensor_collection
from tensordict import stack as stack_tensordicts

from steppe.errors import SpecError

from . import shapes
from .base import Key, Spec, named
from .dtypes import CPU
from .nontensor import NonTensor
from .shapes import ShapeLike

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Choice"]


class _Constant(NonTensor):
    """Non-tensor data that is equal to one value."""

    def faults(self, val: Any, key: Key = None) -> Iterator[str]:
        yield from super().faults(val, key)
        found = self.to_numpy(val)
        values = found if isinstance(val, NonTensorStack) else [found]
        if any(value != self.example_data for value in values):
            yield f"{named(key, self)}: expected {self.example_data!r}, found {found!r}."


class Choice(Spec):
    """Data of any one of several specs; ``rand`` picks one of them first, each as likely as any other.

    The choice is made once for a datum: all rows of an expanded spec come from one of the specs.

    Args:
        choices: specs of one class, shape, dtype and device; or ``NonTensorData``, each of which stands for its value.

    Raises:
        SpecError: there is no choice, or they are not alike.
    """

    def __init__(self, choices: Sequence[Any]) -> None:
        parts = [
            _Constant(choice.batch_size, choice.device, example_data=choice.data)
            if isinstance(choice, NonTensorData)
            else choice
            for choice in choices
        ]
        if not parts:
            raise SpecError("Choice: expected at least one spec or NonTensorData, found none.")
        for part in parts:
            if not isinstance(part, Spec):
                raise SpecError(f"Choice: expected specs or NonTensorData, found {type(part).__name__}.")
            kinds = [(type(p), tuple(p.shape), p.dtype, p.device) for p in (parts[0], part)]
            if kinds[0] != kinds[1]:
                raise SpecError(
                    f"Choice: expected choices of one class, shape, dtype and device, found {parts[0]!r} and {part!r}."
                )
        self._choices: list[Any] = parts

    @property
    def choices(self) -> tuple[Any, ...]:
        """The specs."""
        return tuple(self._choices)

    @property
    def num_choices(self) -> int:
        """How many specs there are."""
        return len(self._choices)

    @property
    def shape(self) -> torch.Size:
        """Shape of the data."""
        shape: torch.Size = self._choices[0].shape
        return shape

    @property
    def device(self) -> torch.device | None:
        """Device of the data, or None."""
        device: torch.device | None = self._choices[0].device
        return device

    @property
    def dtype(self) -> torch.dtype | None:
        """Dtype of the data; None for non-tensor data and tensordicts."""
        dtype: torch.dtype | None = self._choices[0].dtype
        return dtype

    @property
    def space(self) -> list[Any]:
        """The sets of values of the specs."""
        return [choice.space for choice in self._choices]

    @property
    def domain(self) -> str | None:
        """``"continuous"``, ``"discrete"``, or None."""
        domain: str | None = self._choices[0].domain
        return domain

    def rand(self, shape: ShapeLike = (), *, generator: torch.Generator | None = None) -> Any:
        """Draw data ``[*shape, *spec.shape]``, with a choice of its own for each of ``shape``."""
        lead = shapes.size(shape)
        where = CPU if generator is None else generator.device
        picked = torch.randint(0, len(self._choices), lead, generator=generator, device=where).cpu()
        drawn = [choice.rand(lead, generator=generator) for choice in self._choices]
        if not lead:
            return drawn[int(picked)]
        if isinstance(self._choices[0], NonTensor):
            return _nested(picked.tolist(), self._choices)
        flat = [value.reshape(-1, *value.shape[len(lead) :]) for value in drawn]
        rows = torch.arange(picked.numel(), device=CPU)
        options = stack_tensordicts(flat, 0) if is_tensor_collection(flat[0]) else torch.stack(flat)
        chosen = options[picked.flatten().to(options.device), rows.to(options.device)]
        return chosen.reshape(*lead, *chosen.shape[1:])

    def zero(self, shape: ShapeLike = ()) -> Any:
        """Return zeros ``[*shape, *spec.shape]``; the first value, where the choices are values."""
        return self._choices[0].zero(shape)

    def one(self, shape: ShapeLike = ()) -> Any:
        """Return ones ``[*shape, *spec.shape]``; the first value, where the choices are values."""
        return self._choices[0].one(shape)

    def faults(self, val: Any, key: Key = None) -> Iterator[str]:
        """Yield a sentence where ``val`` is in none of the specs."""
        if any(choice.is_in(val) for choice in self._choices):
            return
        first = next(self._choices[0].faults(val, key))
        yield f"{named(key, self)}: expected data of one of {len(self._choices)} specs. Of the first: {first}"

    def project(self, val: Any, *, key: Key = None) -> Any:
        """Return ``val`` where it is in one of the specs, else what the first makes of it."""
        if self.is_in(val):
            return val
        return self._choices[0].project(val, key=key)

    def encode(self, val: Any, *, ignore_device: bool = False, key: Key = None) -> Any:
        """Turn a value into data; see :meth:`Spec.encode`."""
        return self._choices[0].encode(val, ignore_device=ignore_device, key=key)

    def to_numpy(self, val: Any, *, safe: bool = False, key: Key = None) -> Any:
        """Return what a library takes; see :meth:`Spec.to_numpy`."""
        if safe:
            self.assert_is_in(val, key=key)
        return self._choices[0].to_numpy(val, key=key)

    def type_check(self, value: Any, key: Key = None) -> None:
        """Raise a SpecError unless ``value`` has the dtype of the specs."""
        self._choices[0].type_check(value, key)

    def cardinality(self) -> int | float:
        """Return the sum over the specs; data that is in two of them counts twice."""
        return sum(1 if isinstance(choice, NonTensor) else choice.cardinality() for choice in self._choices)

    def enumerate(self, use_mask: bool = False) -> Any:
        """Return all data of all specs along a new first dimension; those of values as a NonTensorStack."""
        if isinstance(self._choices[0], NonTensor):
            return NonTensorStack(*[choice.zero() for choice in self._choices])
        return torch.cat([choice.enumerate(use_mask) for choice in self._choices])

    # Shapes, copies and devices ----------------------------------------------------------------------------------

    def _map(self, method: str, *arguments: Any, **options: Any) -> Any:
        return type(self)([getattr(choice, method)(*arguments, **options) for choice in self._choices])

    def expand(self, *sizes: Any) -> Self:
        """Return the spec of data repeated to a larger shape; -1 keeps a size."""
        out: Self = self._map("expand", *sizes)
        return out

    def squeeze(self, dim: int | None = None) -> Spec:
        """Return the spec without a dimension of size 1, or without any of them."""
        out: Spec = self._map("squeeze", dim)
        return out

    def unsqueeze(self, dim: int) -> Self:
        """Return the spec with a new dimension of size 1 at ``dim``."""
        out: Self = self._map("unsqueeze", dim)
        return out

    def reshape(self, *sizes: Any) -> Spec:
        """Return the spec of the same elements in another shape; one -1 is worked out."""
        out: Spec = self._map("reshape", *sizes)
        return out

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Spec:
        """Return the spec with the dimensions from ``start_dim`` to ``end_dim`` joined."""
        out: Spec = self._map("flatten", start_dim, end_dim)
        return out

    def unflatten(self, dim: int, sizes: ShapeLike) -> Spec:
        """Return the spec with the dimension ``dim`` split into ``sizes``."""
        out: Spec = self._map("unflatten", dim, sizes)
        return out

    def unbind(self, dim: int = 0) -> tuple[Spec, ...]:
        """Return the specs along a dimension."""
        columns = zip(*(choice.unbind(dim) for choice in self._choices), strict=True)
        return tuple(type(self)(list(column)) for column in columns)

    def __getitem__(self, index: Any) -> Any:
        """Index as data of this shape is indexed."""
        return self._map("__getitem__", index)

    def make_neg_dim(self, dim: int) -> Self:
        """Return the spec with a dynamic size at ``dim``."""
        out: Self = self._map("make_neg_dim", dim)
        return out

    def clone(self) -> Self:
        """Return an independent copy."""
        out: Self = self._map("clone")
        return out

    def to(self, dest: torch.device | str | int | torch.dtype | None) -> Self:
        """Return the spec with every choice on another device, or of another dtype; itself where nothing changes."""
        moved = [choice.to(dest) for choice in self._choices]
        if all(new is old for new, old in zip(moved, self._choices, strict=True)):
            return self
        return type(self)(moved)

    def clear_device_(self) -> Self:
        """Make the device of every choice None, in place; return the spec."""
        for choice in self._choices:
            choice.clear_device_()
        return self

    def __eq__(self, other: object) -> bool:
        """Whether both have equal choices in the same order."""
        if not isinstance(other, Choice):
            return NotImplemented
        return self._choices == other._choices

    def __repr__(self) -> str:
        return f"Choice([{', '.join(map(repr, self._choices))}])"


def _nested(picked: Any, choices: list[Any]) -> Any:
    if isinstance(picked, int):
        return choices[picked].zero()
    return NonTensorStack(*[_nested(part, choices) for part in picked])
