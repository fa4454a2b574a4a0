"""Indexing a spec has the meaning of indexing a tensor of its shape."""

from __future__ import annotations

from typing import Any

import pytest
import tensordict
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from packaging.version import Version

from steppe.errors import NotSupported, SpecError
from steppe.specs import (
    Binary,
    Bounded,
    Categorical,
    Composite,
    MultiCategorical,
    MultiOneHot,
    NonTensor,
    OneHot,
    Spec,
    Stacked,
    StackedComposite,
    Unbounded,
)

SHAPE = (3, 2, 4)


def some_entries(kind: int, shape: tuple[int, ...]) -> Composite:
    """Parts of a stack: other bounds and sizes for each kind, and an entry of the first alone."""
    own = {"own": Unbounded(shape)} if kind == 0 else {}
    entries = {
        "a": Bounded(0, kind + 1, (*shape, 2)),
        "b": Unbounded((*shape, kind + 1)),
        ("n", "c"): OneHot(3, (*shape, 3)),
    }
    return Composite({**entries, "text": NonTensor(shape, example_data="x"), **own}, shape=shape)


def stacked(make: Any, dim: int) -> Any:
    inner = (*SHAPE[:dim], *SHAPE[dim + 1 :])
    return torch.stack([make(kind, inner) for kind in range(SHAPE[dim])], dim)


MASK = torch.rand((*SHAPE, 5), generator=torch.Generator().manual_seed(0)) > 0.4

#: Specs of the shape, with how many dimensions hold categories, which no index is about.
SPECS: dict[str, tuple[Spec, int]] = {
    "Bounded": (Bounded(torch.zeros(SHAPE), torch.arange(24.0).reshape(SHAPE)), 0),
    "Unbounded": (Unbounded(SHAPE), 0),
    "Categorical": (Categorical(5, SHAPE, mask=MASK), 0),
    "Binary": (Binary(shape=SHAPE), 0),
    "nested MultiCategorical": (MultiCategorical(torch.arange(24).reshape(SHAPE) % 5 + 1), 0),
    "NonTensor": (NonTensor(SHAPE, example_data="x"), 0),
    "OneHot": (OneHot(5, (*SHAPE, 5), mask=MASK), 1),
    "MultiCategorical": (MultiCategorical([2, 3], (*SHAPE, 2), mask=MASK), 1),
    "MultiOneHot": (MultiOneHot([2, 3], (*SHAPE, 5), mask=MASK), 1),
    "Composite": (some_entries(1, SHAPE), 0),
    **{f"Stacked {dim}": (stacked(lambda kind, shape: Bounded(kind, kind + 1, shape), dim), 0) for dim in range(3)},
    **{f"StackedComposite {dim}": (stacked(some_entries, dim), 0) for dim in range(3)},
}


@st.composite
def indices(draw: Any) -> tuple[Any, ...]:
    """Indices of the dimensions of a shape, of all kinds that tensors accept."""

    def numbers(n: int, size: tuple[int, ...]) -> torch.Tensor:
        return torch.tensor(
            draw(st.lists(st.integers(-n, n - 1), min_size=(k := torch.Size(size).numel()), max_size=k))
        ).reshape(size)

    def flags(size: tuple[int, ...]) -> torch.Tensor:
        return torch.rand(size, generator=torch.Generator().manual_seed(draw(st.integers(0, 99)))) > 0.3

    def part(n: int) -> Any:
        kind = draw(st.sampled_from(["int", "slice", "numbers", "numbers", "numbers", "list", "mask", "list of flags"]))
        if kind == "int":
            return draw(st.integers(-n, n - 1))
        if kind == "slice":
            return draw(st.sampled_from([slice(None), slice(0, 2), slice(1, None), slice(None, None, 2)]))
        if kind in ("mask", "list of flags"):
            return flags((n,)) if kind == "mask" else flags((n,)).tolist()
        size = draw(st.sampled_from([(2,), (2,), (1,), (2, 2), (2, 1), ()]))
        return numbers(n, size) if kind == "numbers" else numbers(n, (2,)).tolist()

    if draw(st.integers(0, 7)) == 0:
        first = draw(st.integers(0, 1))
        last = draw(st.integers(first + 2, 3))
        return (*[slice(None)] * first, flags(SHAPE[first:last]))
    front, back = draw(st.sampled_from([(0, 0), (1, 0), (2, 0), (3, 0), (1, 1), (0, 1), (0, 2), (1, 2)]))
    parts = [part(SHAPE[dim]) for dim in range(front)]
    if back or draw(st.booleans()):
        parts.append(Ellipsis)
    parts += [part(SHAPE[3 - back + i]) for i in range(back)]
    for extra in draw(st.lists(st.sampled_from([None, None, None, True]), max_size=2)):
        parts.insert(draw(st.integers(0, len(parts))), extra)
    return tuple(parts)


def as_tensors(index: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(torch.tensor(part) if isinstance(part, list) else part for part in index)


@pytest.mark.parametrize("name", SPECS)
@given(index=indices())
@settings(max_examples=30, deadline=None)
def test_specs_are_indexed_like_tensors(name: str, index: tuple[Any, ...]) -> None:
    spec, categories = SPECS[name]
    try:
        expected = torch.empty(SHAPE)[as_tensors(index)].shape
    except IndexError:  # tensors that do not broadcast
        assume(False)
    if categories:
        index = (
            *index,
            *([] if Ellipsis in [part if part is Ellipsis else None for part in index] else [...]),
            slice(None),
        )
        expected = (*expected, spec.shape[-1])
    try:
        picked = spec[index]
    except NotSupported:
        # Without a part there is no stack.
        assert isinstance(spec, (Stacked, StackedComposite))
        assert 0 in expected
        return
    assert picked.shape == expected
    if isinstance(spec, StackedComposite) and Version(tensordict.__version__) < Version("0.15"):
        return  # an index of its own stack of unlike parts gives another shape than that of a tensor, or a KeyError
    if not isinstance(spec, NonTensor) and not (isinstance(spec, Stacked) and 0 in expected):
        picked.assert_is_in(spec.rand()[as_tensors(index)])


def test_tensors_pick_from_parts_and_within_them() -> None:
    spec = torch.stack([Bounded(kind, torch.arange(3.0) + kind + 1) for kind in range(4)])
    picked = spec[torch.tensor([3, 0]), torch.tensor([2, 1])]
    assert [(part.low.item(), part.high.item()) for part in picked.specs] == [(3, 6), (0, 2)]
    grid = spec[torch.tensor([[0, 1], [2, 2]])]
    assert [[part.low[0].item() for part in row.unbind()] for row in grid.unbind()] == [[0, 1], [2, 2]]
    assert spec[1:, torch.tensor([0, 2])].shape == (3, 2)
    assert spec[None, :, [1]].shape == (1, 4, 1)
    apart = torch.stack([spec, torch.stack([Bounded(-kind - 1, 0, (3,)) for kind in range(4)])], 1)
    assert apart[[0, 1, 2], :, [0, 1, 0]].shape == torch.empty(apart.shape)[[0, 1, 2], :, [0, 1, 0]].shape == (3, 2)


def test_an_invalid_index_of_a_stack_is_an_error() -> None:
    spec = torch.stack([Bounded(0, 1, (3,)), Bounded(0, 2, (3,))])
    with pytest.raises(IndexError, match="index 2 is out of bounds for dimension 0 with size 2"):
        spec[torch.tensor([0, 2])]
    with pytest.raises(IndexError, match="does not match the shape"):
        spec[torch.tensor([True, False, True])]
    with pytest.raises((SpecError, IndexError), match="broadcast"):
        spec[torch.tensor([0, 1]), torch.tensor([0, 1, 2])]
    with pytest.raises(NotSupported, match="an empty selection along the stacked dimension has no spec"):
        spec[torch.tensor([False, False])]


def test_an_index_of_a_stack_returns_the_parts_spec() -> None:
    spec = torch.stack([some_entries(kind, (2,)) for kind in range(3)])
    before = spec.clone()
    for rows in (spec[1:], spec[[2, 0]], spec[:, 0], spec.squeeze(0), spec.squeeze()):
        rows.set("new", Unbounded(rows.shape))
    assert spec == before
    spec.lock_()
    assert spec[1:].set("new", Unbounded((2, 2))).shape == (2, 2)
    spec.unlock_()
    spec[1]["new"] = Unbounded((2,))  # a part itself
    assert spec != before
    assert "new" in spec.specs[1]
