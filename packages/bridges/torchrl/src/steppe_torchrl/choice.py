"""Choice: one of several specs or values, for programs written for TorchRL."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from tensordict import NonTensorData, NonTensorStack, is_tensor_collection
from tensordict import stack as stack_tensordicts

from steppe.errors import SpecError
from steppe.specs import CPU, NonTensor, Spec, Stacked

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Choice"]

_Key: TypeAlias = "str | tuple[str, ...] | None"
_Rows: TypeAlias = "tuple[int, ...] | None"


class Fixed(NonTensor):
    """Non-tensor data whose only valid value is the example."""

    def _faults(self, val: object, key: _Key, rows: _Rows, exact: bool) -> Iterator[str]:
        faults = list(super()._faults(val, key, rows, exact))
        yield from faults
        expected = self.example_data
        if not faults and not all(np.all(value is expected or value == expected) for value in _flat_values(val)):
            yield f"{_name(key, self)}: expected {expected!r}, found {self.to_numpy(val)!r}."

    def cardinality(self) -> int:
        """Return 1."""
        return 1


class Choice(Spec):
    """Data of one of several specs, which ``rand`` selects with equal probabilities.

    All rows of an expanded spec come from the same choice.

    >>> from steppe_torchrl import Choice
    >>> spec = Choice(["go north", "go south"])
    >>> spec.num_choices, spec.is_in("go north"), spec.is_in("sleep")
    (2, True, False)

    Args:
        choices: specs of one class, shape, dtype and device; or values: strings, ``NonTensorData`` or
            ``NonTensorStack``.

    Raises:
        SpecError: there is no choice, or class, shape, dtype or device differ.
    """

    def __init__(self, choices: Sequence[object]) -> None:
        if isinstance(choices, (str, Spec)) or is_tensor_collection(choices):
            raise SpecError(f"Choice: expected a list of choices, found {choices!r}.")
        parts = [choice if isinstance(choice, Spec) else _fixed(choice) for choice in choices]
        if not parts:
            raise SpecError("Choice: expected at least one spec or value, found none.")
        for part in parts:
            kinds = [(type(p), tuple(p.shape), p.dtype, p.device) for p in (parts[0], part)]
            if kinds[0] != kinds[1]:
                raise SpecError(
                    f"Choice: expected choices of one class, shape, dtype and device, found {parts[0]!r} and {part!r}."
                )
        self._choices: list[Spec] = parts

    @property
    def choices(self) -> tuple[Spec, ...]:
        """The specs."""
        return tuple(self._choices)

    @property
    def num_choices(self) -> int:
        """Number of specs."""
        return len(self._choices)

    @property
    def shape(self) -> torch.Size:
        """Shape of the data."""
        return self._choices[0].shape

    @property
    def device(self) -> torch.device | None:
        """Device of the data, or None."""
        return self._choices[0].device

    @property
    def dtype(self) -> torch.dtype | None:
        """Dtype of the data; None for non-tensor data and tensordicts."""
        return self._choices[0].dtype

    @property
    def space(self) -> list[object]:
        """The sets of values of the specs."""
        return [choice.space for choice in self._choices]

    @property
    def domain(self) -> str | None:
        """``"continuous"``, ``"discrete"``, or None."""
        return self._choices[0].domain

    def rand(self, shape: Sequence[int] | int = (), *, generator: torch.Generator | None = None) -> Any:
        """Draw data ``[*shape, *spec.shape]``, with an independent choice for each element of ``shape``."""
        lead = torch.Size((shape,)) if isinstance(shape, int) else torch.Size(shape)
        where = CPU if generator is None else generator.device
        picked = torch.randint(0, len(self._choices), lead, generator=generator, device=where).cpu()
        drawn = [choice.rand(lead, generator=generator) for choice in self._choices]
        if not lead:
            return drawn[int(picked)]
        if isinstance(drawn[0], (NonTensorData, NonTensorStack)):
            return _nested(picked.tolist(), self._choices)
        flat = [value.reshape(-1, *value.shape[len(lead) :]) for value in drawn]
        rows = torch.arange(picked.numel(), device=CPU)
        options = stack_tensordicts(flat, 0) if is_tensor_collection(flat[0]) else torch.stack(flat)
        chosen = options[picked.flatten().to(options.device), rows.to(options.device)]
        return chosen.reshape(*lead, *chosen.shape[1:])

    def _filled(self, lead: torch.Size, value: int) -> object:
        first = self._choices[0]
        return first.one(lead) if value else first.zero(lead)

    def _faults(self, val: Any, key: _Key, rows: _Rows, exact: bool) -> Iterator[str]:
        if self._is_one(val, rows, exact):
            return
        size = tuple(getattr(val, "shape", ()))
        actual = size[: max(0, len(size) - self.ndim)]
        lead = actual if rows is None else rows
        # Rows may be of different choices.
        if lead and actual == lead:
            for index in itertools.product(*map(range, lead)):
                row = val[index]
                if not self._is_one(row, (), exact):
                    yield from self._none_of_them(row, key, f" at {list(index)}")
                    return
            return
        yield from self._none_of_them(val, key, "", rows)

    def _is_one(self, val: object, rows: _Rows, exact: bool) -> bool:
        return any(next(choice._faults(val, None, rows, exact), None) is None for choice in self._choices)

    def _none_of_them(self, val: object, key: _Key, where: str, rows: _Rows = ()) -> Iterator[str]:
        first = next(self._choices[0]._faults(val, key, rows, True), "")
        yield f"{_name(key, self)}: expected data of one of {len(self._choices)} specs{where}. Of the first: {first}"

    def project(self, val: object, *, key: _Key = None) -> Any:
        """Return ``val`` if it is valid for one of the specs, otherwise its projection by the first."""
        if self.is_in(val):
            return val
        return self._choices[0].project(val, key=key)

    def encode(self, val: object, *, ignore_device: bool = False, key: _Key = None, lead: _Rows = None) -> Any:
        """Encode a value with the first spec that accepts it; see :meth:`Spec.encode`."""
        if isinstance(val, (NonTensorData, NonTensorStack)) and not any(self._faults(val, key, lead, False)):
            return val  # rows may be of different choices
        first: SpecError | None = None
        for choice in self._choices:
            try:
                return choice.encode(val, ignore_device=ignore_device, key=key, lead=lead)
            except SpecError as error:
                first = first or error
        assert first is not None
        raise first

    def to_numpy(self, val: object, safe: bool | None = None, *, key: _Key = None) -> Any:
        """Convert data for a library; see :meth:`Spec.to_numpy`."""
        fitting = next((choice for choice in self._choices if choice.is_in(val)), None)
        if fitting is None and self.is_in(val):  # rows are of different choices
            return self._choices[0].to_numpy(val, False, key=key)
        return (fitting or self._choices[0]).to_numpy(val, safe, key=key)

    def cardinality(self) -> int | float:
        """Return the sum over the specs; data that is valid for two of them counts twice."""
        counts = [choice.cardinality() for choice in self._choices]
        return math.inf if math.inf in counts else sum(counts)

    def enumerate(self, use_mask: bool = False) -> Any:
        """Return the values of all specs along a new first dimension; non-tensor values as a NonTensorStack."""
        values = [choice.zero() for choice in self._choices]
        if isinstance(values[0], (NonTensorData, NonTensorStack)):
            return NonTensorStack(*values)
        return torch.cat([choice.enumerate(use_mask) for choice in self._choices])

    # Shapes, copies and devices ----------------------------------------------------------------------------------

    def _apply(self, change: Callable[[Any], Any], doing: str) -> Self:
        return type(self)([choice._apply(change, doing) for choice in self._choices])

    def _index(self, index: object) -> Any:
        return type(self)([choice[index] for choice in self._choices])

    def make_neg_dim(self, dim: int) -> Self:
        """Make the size at ``dim`` dynamic, in place; return the spec."""
        self._choices = [choice.make_neg_dim(dim) for choice in self.clone().choices]
        return self

    def clone(self) -> Self:
        """Return an independent copy."""
        return type(self)([choice.clone() for choice in self._choices])

    def to(self, dest: torch.device | str | int | torch.dtype | None) -> Self:
        """Return the spec with every choice on another device, or of another dtype; itself if nothing changes."""
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


def _name(key: _Key, spec: Spec) -> str:
    return type(spec).__name__ if key is None or key == () else repr(key)


def _flat_values(val: object) -> list[Any]:
    """Return the values of non-tensor data as a flat list; of a bare value, a list of one."""
    if isinstance(val, NonTensorStack):
        return [value for part in val.tensordicts for value in _flat_values(part)]
    return [val.data if isinstance(val, NonTensorData) else val]


def _fixed(value: object) -> Spec:
    if isinstance(value, NonTensorStack):
        return Stacked(*map(_fixed, value.tensordicts), dim=value.stack_dim)
    if isinstance(value, NonTensorData):
        return Fixed(value.batch_size, value.device, example_data=value.data)
    if isinstance(value, str):
        return Fixed(example_data=value)
    raise SpecError(
        f"Choice: expected specs, strings, NonTensorData or NonTensorStack, found {type(value).__name__} {value!r}. "
        f"Wrap other values: NonTensorData(value)."
    )


def _nested(picked: Any, choices: list[Spec]) -> Any:
    if isinstance(picked, int):
        return choices[picked].zero()
    return NonTensorStack(*[_nested(part, choices) for part in picked])
