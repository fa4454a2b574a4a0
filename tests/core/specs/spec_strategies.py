"""Hypothesis strategies: shapes, specs, data that is in no spec, and operations on shapes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st

from steppe.specs import (
    Binary,
    Bounded,
    Categorical,
    Composite,
    MultiCategorical,
    MultiOneHot,
    OneHot,
    Spec,
    Unbounded,
)

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)

shapes = st.lists(st.integers(1, 3), max_size=3).map(torch.Size)
seeds = st.integers(0, 2**31)


@st.composite
def bounded_floats(draw: Any) -> Bounded:
    shape, dtype = draw(shapes), draw(st.sampled_from(FLOATS))
    bounds_shape = draw(st.sampled_from([torch.Size(()), shape]))
    one = st.one_of(st.floats(-300, 300, width=16), st.sampled_from([0.0, -math.inf, math.inf, torch.finfo(dtype).max]))
    n = bounds_shape.numel()
    pairs = draw(st.lists(st.tuples(one, one).map(sorted), min_size=n, max_size=n))
    low = torch.tensor([-math.inf if a == math.inf else a for a, _ in pairs], dtype=torch.float64)
    high = torch.tensor([math.inf if b == -math.inf else b for _, b in pairs], dtype=torch.float64)
    return Bounded(low.view(bounds_shape), high.view(bounds_shape), shape=shape, dtype=dtype)


@st.composite
def bounded_integers(draw: Any) -> Bounded:
    shape, dtype = draw(shapes), draw(st.sampled_from(INTEGERS))
    bounds_shape = draw(st.sampled_from([torch.Size(()), shape]))
    info = torch.iinfo(dtype)
    one = st.one_of(st.integers(info.min, info.max), st.sampled_from([info.min, info.max, 0, 1]))
    n = bounds_shape.numel()
    pairs = draw(st.lists(st.tuples(one, one).map(sorted), min_size=n, max_size=n))
    low = torch.tensor([a for a, _ in pairs], dtype=torch.int64).view(bounds_shape)
    high = torch.tensor([b for _, b in pairs], dtype=torch.int64).view(bounds_shape)
    return Bounded(low, high, shape=shape, dtype=dtype)


@st.composite
def unbounded(draw: Any) -> Unbounded:
    dtypes = (*FLOATS, *INTEGERS, torch.bool, torch.complex64, torch.uint16, torch.uint64)
    return Unbounded(draw(shapes), dtype=draw(st.sampled_from(dtypes)))


@st.composite
def masks(draw: Any, shape: torch.Size) -> torch.Tensor | None:
    if draw(st.booleans()):
        return None
    generator = torch.Generator().manual_seed(draw(seeds))
    # Sparse, so that some rows allow nothing.
    return torch.rand(shape, generator=generator) < 0.6


@st.composite
def categorical(draw: Any) -> Categorical:
    shape, n = draw(shapes), draw(st.integers(1, 5))
    dtype = draw(st.sampled_from((*INTEGERS, torch.float32) if n > 2 else (torch.bool, torch.int64)))
    return Categorical(n, shape, dtype=dtype, mask=draw(masks((*shape, n))))


@st.composite
def one_hot(draw: Any) -> OneHot:
    n = draw(st.integers(1, 5))
    shape = (*draw(shapes), n)
    dtype = draw(st.sampled_from((torch.bool, torch.int64, torch.uint8, torch.float32)))
    return OneHot(n, shape, dtype=dtype, mask=draw(masks(shape)))


counts = st.lists(st.integers(1, 4), min_size=1, max_size=3)


@st.composite
def multi_categorical(draw: Any) -> MultiCategorical:
    nvec = draw(counts)
    batch = draw(shapes)
    return MultiCategorical(nvec, (*batch, len(nvec)), mask=draw(masks((*batch, sum(nvec)))))


@st.composite
def multi_one_hot(draw: Any) -> MultiOneHot:
    nvec = draw(counts)
    shape = (*draw(shapes), sum(nvec))
    dtype = draw(st.sampled_from((torch.bool, torch.int64)))
    return MultiOneHot(nvec, shape, dtype=dtype, mask=draw(masks(shape)))


@st.composite
def binary(draw: Any) -> Binary:
    return Binary(shape=draw(shapes), dtype=draw(st.sampled_from((torch.int8, torch.bool, torch.float32))))


leaves = st.one_of(
    bounded_floats(),
    bounded_integers(),
    unbounded(),
    categorical(),
    one_hot(),
    multi_categorical(),
    multi_one_hot(),
    binary(),
)


@st.composite
def composites(draw: Any, depth: int = 2) -> Composite:
    batch = draw(st.lists(st.integers(1, 3), max_size=2).map(torch.Size))
    names = draw(st.lists(st.sampled_from("abcd"), unique=True, min_size=1, max_size=3))
    entries: dict[str, Any] = {}
    for name in names:
        inner = draw(composites(depth=depth - 1) if depth > 1 and draw(st.booleans()) else leaves)
        entries[name] = inner.expand(*batch, *inner.shape)
    return Composite(entries, shape=batch)


specs = st.one_of(leaves, composites())


@st.composite
def anything_shaped(draw: Any, shape: torch.Size) -> torch.Tensor:
    """A tensor of a shape, of any dtype and any values."""
    generator = torch.Generator().manual_seed(draw(seeds))
    scale = draw(st.sampled_from([0.5, 2.0, 1e3, 1e30]))
    values = torch.randn(shape, generator=generator, dtype=torch.float64) * scale
    special = draw(st.sampled_from([None, math.nan, math.inf, -math.inf]))
    if special is not None and values.numel():
        values.flatten()[0] = special
    dtype = draw(st.sampled_from((*FLOATS, torch.int64, torch.int8, torch.uint8, torch.bool)))
    return values.to(dtype) if dtype.is_floating_point else values.nan_to_num().clamp(-100, 100).to(dtype)


@dataclass
class Operation:
    """An operation that specs and tensors have."""

    text: str
    apply: Callable[[Any], Any]

    def __repr__(self) -> str:
        return self.text


@st.composite
def operations(draw: Any, ndim: int) -> Operation:
    """Any operation on ``ndim`` dimensions: not every one is possible for every shape."""
    dim = draw(st.integers(-ndim - 1, ndim))
    kind = draw(
        st.sampled_from(
            ["expand", "squeeze", "squeeze all", "unsqueeze", "reshape", "flatten", "unflatten", "unbind", "index"]
        )
    )
    if kind == "expand":
        lead = draw(shapes)
        return Operation(f"expand {lead}", lambda x: x.expand((*lead, *x.shape)))
    if kind == "squeeze":
        return Operation(f"squeeze {dim}", lambda x: x.squeeze(dim))
    if kind == "squeeze all":
        return Operation("squeeze", lambda x: x.squeeze())
    if kind == "unsqueeze":
        return Operation(f"unsqueeze {dim}", lambda x: x.unsqueeze(dim))
    if kind == "reshape":
        target = draw(st.sampled_from([(-1,), (1, -1), (2, -1), (-1, 3), (1, 1, -1)]))
        return Operation(f"reshape {target}", lambda x: x.reshape(target))
    if kind == "flatten":
        end = draw(st.integers(-ndim, ndim))
        return Operation(f"flatten {dim} {end}", lambda x: x.flatten(dim, end))
    if kind == "unflatten":
        sizes = draw(st.sampled_from([(1, -1), (-1, 1), (2, -1), (3, 1)]))
        return Operation(f"unflatten {dim} {sizes}", lambda x: x.unflatten(dim, sizes))
    if kind == "unbind":
        return Operation(f"unbind {dim}", lambda x: x.unbind(dim)[-1])
    index = draw(indices(ndim))
    return Operation(f"[{index}]", lambda x: x[index])


@st.composite
def indices(draw: Any, ndim: int) -> Any:
    """An index into up to ``ndim`` dimensions."""
    one = st.one_of(
        st.integers(-2, 2),
        st.sampled_from([slice(None), slice(1, None), slice(0, 2), slice(None, None, 2), None]),
        st.sampled_from([[0], [0, 0, 0], [-1, 0]]),
        st.sampled_from([torch.tensor([0, 0]), torch.tensor([[0], [0]]), torch.tensor(0)]),
    )
    parts = draw(st.lists(one, max_size=ndim))
    if draw(st.booleans()):
        parts.insert(draw(st.integers(0, len(parts))), Ellipsis)
    return parts[0] if len(parts) == 1 else tuple(parts)


def same(one: Any, other: Any) -> bool:
    """Whether two data are equal, NaN included."""
    if isinstance(one, torch.Tensor):
        if one.is_floating_point():
            one, other = one.double().nan_to_num(7.25), other.double().nan_to_num(7.25)
        return torch.equal(one, other)
    return set(one.keys()) == set(other.keys()) and all(same(one.get(key), other.get(key)) for key in one.keys())


__all__ = [name for name, value in list(globals().items()) if not name.startswith("_") and value is not Spec]
