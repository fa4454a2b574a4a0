"""Functions of shapes: the effect of tensor operations on the shape and the parameters of a spec.

An operation on a spec is applied to a *probe*, a tensor with one element in memory that is expanded to the shape of
the spec. In the probe, a dynamic size (-1) is a number larger than any size that the operation could make of static
sizes; larger sizes of the result are -1.
"""

from __future__ import annotations

import math
import numbers
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias, TypeGuard, cast

import numpy as np
import torch

from steppe.errors import SpecError

from .dtypes import CPU

__all__ = [
    "Change",
    "ShapeLike",
    "broadcast",
    "change_param",
    "combinations",
    "compress",
    "dim_after",
    "event_survives",
    "expand_index",
    "expanded",
    "fits",
    "fits_rows",
    "flat_sizes",
    "indexed",
    "lead_of",
    "normal_dim",
    "numbers_along",
    "param_along",
    "positions",
    "probe_shape",
    "product",
    "shape_after",
    "size",
    "split",
    "static",
    "torch_index",
]

ShapeLike: TypeAlias = "int | Sequence[int] | torch.Size"
Change: TypeAlias = Callable[[torch.Tensor], torch.Tensor]


def size(shape: ShapeLike | None) -> torch.Size:
    """Return ``shape`` as a torch.Size; an int is one dimension, None is an empty shape."""
    if shape is None:
        return torch.Size(())
    if isinstance(shape, torch.Size):
        return shape
    return torch.Size((int(shape),)) if isinstance(shape, numbers.Integral) else torch.Size(shape)  # type: ignore[arg-type]


def flat_sizes(sizes: tuple[ShapeLike, ...]) -> torch.Size:
    """Read ``f(2, 3)``, ``f((2, 3))`` and ``f(torch.Size([2, 3]))`` alike."""
    if len(sizes) == 1 and not isinstance(sizes[0], numbers.Integral):
        return size(sizes[0])
    return torch.Size(cast("tuple[int, ...]", sizes))


def expanded(tensor: torch.Tensor, target: torch.Size) -> torch.Tensor:
    """Return ``tensor.expand(target)``. TensorDicts before version 0.15 do not know -1, which keeps a size."""
    lead = len(target) - tensor.ndim
    return tensor.expand([tensor.shape[i - lead] if n == -1 and i >= lead else n for i, n in enumerate(target)])


def static(shape: Sequence[int]) -> torch.Size:
    """Return ``shape`` with every dynamic size replaced by 1."""
    return torch.Size([1 if n < 0 else n for n in shape])


def fits(shape: Sequence[int], expected: Sequence[int]) -> bool:
    """Whether a shape matches the expected one; -1 matches any size."""
    return len(shape) == len(expected) and all(e in (-1, f) or f == -1 for f, e in zip(shape, expected, strict=True))


def fits_rows(shape: Sequence[int], expected: Sequence[int], rows: Sequence[int] | None) -> bool:
    """Whether a shape matches ``(*rows, *expected)``; with ``rows=None``, any leading dimensions match."""
    lead = len(shape) - len(expected)
    return (
        lead >= 0
        and (rows is None or tuple(shape[:lead]) == tuple(rows))
        and fits(shape[lead:] if lead else shape, expected)
    )


def lead_of(data: Any, ndim: int) -> tuple[int, ...]:
    """Return the dimensions of data in front of the last ``ndim``; none for data without a shape."""
    shape = getattr(data, "shape", ())
    return tuple(shape[: max(0, len(shape) - ndim)])


def normal_dim(dim: int, ndim: int, *, what: str) -> int:
    """Return ``dim`` counted from the front.

    Raises:
        IndexError: it is not in ``[-ndim, ndim)``.
    """
    if not -ndim <= dim < ndim:
        raise IndexError(f"Dimension {dim} is out of range: {what} has {ndim} dimension(s).")
    return dim % ndim if ndim else dim


def compress(param: torch.Tensor) -> torch.Tensor:
    """Return the smallest tensor that broadcasts to ``param``; a scalar if all elements are equal."""
    while param.ndim and (param.shape[0] == 1 or (param.stride(0) == 0 and param.shape[0])):
        param = param[0]
    if param.ndim and param.numel():
        first = param[(0,) * param.ndim]
        if bool((param == first).all()):
            return first.clone()
    return param


def broadcast(*sizes: Sequence[int]) -> torch.Size:
    """Return the shape to which shapes broadcast.

    Raises:
        RuntimeError: they do not broadcast.
    """
    return torch.Size(torch.broadcast_shapes(*sizes))  # type: ignore[no-untyped-call]


def split(tensor: torch.Tensor, sizes: Sequence[int]) -> tuple[torch.Tensor, ...]:
    """Split the last dimension into parts of these sizes."""
    return tuple(torch.split(tensor, list(sizes), -1))


def product(counts: Iterable[int | float]) -> int | float:
    """Return the product of numbers of choices: 0 if one of them is 0, otherwise ``inf`` if one is infinite.

    Equal factors become powers, and then factors of similar size are multiplied, because the product of a million
    factors from left to right takes minutes.
    """
    times = Counter(counts)
    if 0 in times or math.inf in times:
        return 0 if 0 in times else math.inf
    factors = [n**k for n, k in times.items()]
    while len(factors) > 1:
        factors = [math.prod(factors[i : i + 2]) for i in range(0, len(factors), 2)]
    return factors[0] if factors else 1


def combinations(columns: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return all combinations of one element of each of ``k`` columns, ``[n, k]``. The last one varies fastest."""
    if not columns:
        return torch.zeros(1, 0, dtype=torch.int64, device=CPU)
    return torch.cartesian_prod(*columns).view(-1, len(columns))


def stand_in(shape: Sequence[int]) -> int:
    """Return the size that stands for dynamic sizes, which is larger than any product of the others."""
    return 2 * math.prod(n for n in shape if n > 0) + 1009


def probe_shape(shape: torch.Size) -> torch.Size:
    """Return the shape of a probe: dynamic sizes become the size that stands for them."""
    unknown = stand_in(shape)
    return torch.Size([unknown if n < 0 else n for n in shape])


def shape_after(shape: torch.Size, change: Change) -> torch.Size:
    """Return the shape that ``change`` gives a tensor of ``shape``."""
    out = change(torch.zeros((), dtype=torch.int8, device=CPU).expand(probe_shape(shape))).shape
    if -1 not in shape:
        return out
    limit = stand_in(shape) // 2
    return torch.Size([-1 if n > limit else n for n in out])


def change_param(param: torch.Tensor, shape: torch.Size, change: Change) -> torch.Tensor:
    """Apply ``change`` to a parameter that broadcasts to ``shape``; the result broadcasts to the new shape."""
    if param.ndim == 0:
        return param
    out = change(param.expand(probe_shape(shape)))
    if -1 in shape:
        limit = stand_in(shape) // 2
        for dim, n in enumerate(out.shape):
            if n > limit:
                out = out.narrow(dim, 0, 1)
    return compress(out)


def param_along(param: torch.Tensor, dim: int) -> torch.Tensor | None:
    """Return a parameter for any size of a dimension, counted from the back; None if it differs along it."""
    if param.ndim < -dim:
        return param
    first_value = param.narrow(dim, 0, min(1, param.shape[dim]))
    return first_value if bool((param == first_value).all()) else None


def event_survives(shape: torch.Size, change: Change) -> bool:
    """Whether ``change`` keeps the last dimension last, complete and in order."""
    mark = torch.arange(shape[-1], device=CPU)
    out = change(mark.expand(probe_shape(shape)))
    return out.ndim > 0 and out.shape[-1] == shape[-1] and bool((out == mark).all())


def positions(shape: torch.Size, change: Change) -> torch.Tensor:
    """Return for every element after ``change`` its position in the flattened tensor before."""
    return change(torch.arange(math.prod(shape), device=CPU).view(shape))


def dim_after(shape: torch.Size, dim: int, change: Change) -> int | None:
    """Return the dimension that ``dim`` becomes by ``change``; None if it is removed, or joined with another one."""
    marks = torch.arange(shape[dim], device=CPU)
    after = change(marks.view(-1, *[1] * (len(shape) - dim - 1)).expand(probe_shape(shape)))
    for at, n in enumerate(after.shape):
        if n == len(marks) and bool((after == marks.view(-1, *[1] * (after.ndim - at - 1))).all()):
            return at
    return None


def torch_index(index: object) -> Any:
    """Convert lists, ranges and arrays in ``index`` to tensors, which torch reads without ambiguity."""
    if isinstance(index, tuple):
        return tuple(torch_index(part) for part in index)
    kinds = (int, slice, list, range, torch.Tensor, np.ndarray, np.integer, np.bool_)
    if index is not None and index is not Ellipsis and not isinstance(index, kinds):
        raise SpecError(
            f"Cannot index a spec with {index!r}: expected ints, slices, None, ..., lists, arrays or tensors."
        )
    if isinstance(index, (list, range, np.ndarray)):
        as_tensor = torch.from_numpy(np.asarray(index))
        return as_tensor.long() if as_tensor.numel() == 0 and not isinstance(index, np.ndarray) else as_tensor
    if isinstance(index, (np.integer, np.bool_)):
        return index.item()
    return index


def indexed(tensor: torch.Tensor, index: Any) -> torch.Tensor:
    """Return ``tensor[index]``, with support for negative steps, as in numpy. A TensorDict is indexed likewise."""
    parts = index if isinstance(index, tuple) else (index,)
    if not any(isinstance(part, slice) and part.step is not None and part.step < 0 for part in parts):
        return tensor[index]
    positive: list[Any] = []
    dim = 0
    for part in expand_index(parts, tensor.ndim):
        if isinstance(part, slice) and part.step is not None and part.step < 0:
            n = tensor.shape[dim]
            chosen = range(*part.indices(n))
            if not isinstance(tensor, torch.Tensor) or tensor.stride(dim):  # otherwise all elements are the same one
                tensor = tensor.flip(dim)
            first = n - 1 - chosen.start
            part = slice(first, first + (len(chosen) - 1) * -part.step + 1, -part.step) if chosen else slice(0, 0)
        positive.append(part)
        dim += _covers(part)
    return tensor[tuple(positive)]


def _is_mask(part: object) -> TypeGuard[torch.Tensor]:
    return isinstance(part, torch.Tensor) and part.dtype in (torch.bool, torch.uint8)


def _covers(part: object) -> int:
    """Return the number of dimensions that a part of an index applies to."""
    if _is_mask(part):
        return part.ndim
    return 0 if part is None or part is Ellipsis or isinstance(part, bool) else 1


def expand_index(index: object, ndim: int) -> tuple[Any, ...]:
    """Return ``index`` as a tuple for exactly ``ndim`` dimensions, with slices instead of ``...``.

    Raises:
        IndexError: it is for more than ``ndim`` dimensions, or holds ``...`` twice.
    """
    parts = torch_index(index if isinstance(index, tuple) else (index,))
    used = sum(_covers(part) for part in parts)
    if used > ndim:
        raise IndexError(f"Too many indices: {used} for {ndim} batch dimension(s).")
    gaps = [i for i, part in enumerate(parts) if part is Ellipsis]
    if len(gaps) > 1:
        raise IndexError("An index can hold only one '...'.")
    at = gaps[0] if gaps else len(parts)
    return (*parts[:at], *[slice(None)] * (ndim - used), *parts[at + 1 :])


def numbers_along(shape: torch.Size, dim: int, index: Sequence[Any]) -> torch.Tensor:
    """Return which positions of one dimension a full index selects.

    The result has the dimensions that data has after the index, but size 1 where the size depends on other dimensions.
    """
    sizes: list[int] = []
    parts: list[Any] = []
    for part in index:
        at, covered = len(sizes), _covers(part)
        inside = at <= dim < at + covered
        sizes += shape[at : at + covered] if inside else [1] * covered
        parts += [part] if inside else _first(part)
    marks = torch.arange(shape[dim], device=CPU).view(-1, *[1] * (len(shape) - dim - 1))
    return indexed(marks.expand(sizes), tuple(parts))


def _first(part: object) -> list[Any]:
    """Return the same kind of index for the only position in dimensions of size 1."""
    if part is None or isinstance(part, slice):
        return [None if part is None else slice(None)]
    if _is_mask(part) and part.ndim:
        return [torch.zeros(1, dtype=torch.int64, device=CPU)] * part.ndim
    if isinstance(part, bool) or _is_mask(part):
        return [True]
    return [torch.zeros([1] * part.ndim, dtype=torch.int64, device=CPU) if isinstance(part, torch.Tensor) else 0]
