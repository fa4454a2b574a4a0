"""Encoding of a library's values: categories, one-hot vectors, overflow."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from steppe.errors import SpecError
from steppe.specs import (
    Binary,
    Bounded,
    Categorical,
    Composite,
    MultiCategorical,
    MultiOneHot,
    NonTensor,
    OneHot,
    Unbounded,
)


@pytest.mark.parametrize(
    "three", [3, 3.0, np.int64(3), np.array(3), np.uint8(3), torch.tensor(3), torch.tensor(3, dtype=torch.uint8)]
)
def test_a_number_is_encoded_as_its_category(three) -> None:
    row = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0]
    assert OneHot(10).encode(three).int().tolist() == row
    assert OneHot(10, dtype=torch.float32).encode(three).int().tolist() == row
    assert Categorical(10).encode(three).tolist() == 3
    assert OneHot(10, (1, 10)).encode([three] if not isinstance(three, np.ndarray) else three[None]).int().tolist() == [
        row
    ]


@pytest.mark.parametrize("make", [list, tuple, np.array, torch.tensor])
def test_numbers_of_a_batch_are_encoded_as_their_categories(make) -> None:
    assert OneHot(3, (2, 3)).encode(make([2, 1])).int().tolist() == [[0, 0, 1], [0, 1, 0]]
    assert MultiOneHot([3, 4]).encode(make([2, 3])).int().tolist() == [0, 0, 1, 0, 0, 0, 1]
    assert MultiCategorical([3, 4]).encode(make([2, 3])).tolist() == [2, 3]
    assert torch.stack([OneHot(3), OneHot(3, mask=torch.tensor([True, True, False]))]).encode(
        make([2, 1])
    ).int().tolist() == [
        [0, 0, 1],
        [0, 1, 0],
    ]


@pytest.mark.parametrize("make", [list, np.array, torch.tensor, lambda row: np.array(row, dtype=bool)])
def test_one_hot_vectors_are_encoded_unchanged(make) -> None:
    assert OneHot(3).encode(make([0, 0, 1])).int().tolist() == [0, 0, 1]
    assert MultiOneHot([2, 2]).encode(make([0, 1, 1, 0])).int().tolist() == [0, 1, 1, 0]


def test_a_composite_encodes_numbers_as_their_categories() -> None:
    spec = Composite(move=OneHot(4), turns=MultiOneHot([2, 3]))
    encoded = spec.encode({"move": 2, "turns": [1, 2]})
    assert encoded["move"].int().tolist() == [0, 0, 1, 0]
    assert encoded["turns"].int().tolist() == [0, 1, 0, 0, 1]


@pytest.mark.parametrize(
    ("spec", "value", "found"),
    [
        (Categorical(2, dtype=torch.bool), 2, "2"),
        (Categorical(10, dtype=torch.uint8), 300, "300"),
        (Categorical(10), 2.5, "2.5"),
        (OneHot(3), [0, 0.5, 0.5], "0.5"),
        (Binary(3, dtype=torch.bool), [0, 1, 2], "2"),
        (MultiCategorical([3, 4], dtype=torch.uint8), [-1, 2], "-1"),
        (Bounded(0, 255, (2,), dtype=torch.uint8), np.array([0, 256]), "256"),
        (Unbounded((2,), dtype=torch.int64), [0.0, math.nan], "nan"),
        (Unbounded((2,), dtype=torch.uint64), [0, -1], "-1"),
        (Unbounded((), dtype=torch.uint16), 2.5, "2.5"),
    ],
)
def test_a_value_that_the_dtype_cannot_hold_is_refused(spec, value, found) -> None:
    with pytest.raises(SpecError, match=rf"'x': expected values that {spec.dtype} can hold, found .*{found}"):
        spec.encode(value, key="x")


def test_whole_floats_are_encoded_as_integers() -> None:
    assert Categorical(5).encode(3.0).tolist() == 3
    assert Bounded(0, 255, (2,), dtype=torch.uint8).encode(np.array([0.0, 255.0])).tolist() == [0, 255]
    assert Categorical(2, (1,), dtype=torch.bool).encode([1]).tolist() == [True]


def test_a_list_of_one_value_encodes_that_value() -> None:
    frame = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    spec = Bounded(0, 255, (2, 2, 3), dtype=torch.uint8)
    assert np.array_equal(spec.encode([frame]), frame)
    assert spec.encode(frame[None]).shape == (1, 2, 2, 3)
    with pytest.raises(SpecError, match=r"expected shape \(2, 2, 3\), found \(1, 2, 2, 3\)"):
        spec.encode(frame[None], lead=())
    with pytest.raises(SpecError, match=r"found \(2, 2, 2, 3\)"):
        spec.encode([frame, frame], lead=())


@pytest.mark.parametrize("spec", [Bounded(0, 1, (2,)), Categorical(3, (2,)), Composite(a=Bounded(0, 1, (2,)))])
def test_values_are_validated_if_checks_are_switched_on(monkeypatch, spec) -> None:
    """encode and to_numpy validate values if the environment variable says so."""
    wrong = {"a": [0, 9]} if isinstance(spec, Composite) else [0, 9]
    encoded = spec.encode(wrong)
    spec.to_numpy(encoded)
    monkeypatch.setattr("steppe.specs.base.CHECKED", True)
    with pytest.raises(SpecError, match=r"found .*9"):
        spec.encode(wrong)
    with pytest.raises(SpecError, match=r"found .*9"):
        spec.to_numpy(encoded)
    spec.to_numpy(encoded, safe=False)
    assert spec.is_in(spec.encode(spec.to_numpy(spec.rand())))


ROWS = {
    "Bounded": Bounded(torch.zeros(2, 3), torch.ones(3)),
    "Bounded of bytes": Bounded(0, 255, (2, 3), dtype=torch.uint8),
    "Unbounded": Unbounded(()),
    "Categorical": Categorical(4),
    "OneHot": OneHot(4),
    "OneHot of one": OneHot(1),
    "MultiCategorical": MultiCategorical([2, 3], (4, 2)),
    "MultiOneHot": MultiOneHot([2, 3], (4, 5)),
    "Binary": Binary(3),
    "Stacked": torch.stack([Bounded(0, 1, (3,)), Bounded(3, 4, (3,))], 1),
    "Stacked OneHot": torch.stack([OneHot(3), OneHot(3, mask=torch.tensor([True, False, True]))]),
    "Composite": Composite({"a": Unbounded((1,)), "b": OneHot(3), ("n", "c"): Bounded(0, 1, (2, 2))}),
    "Composite with a batch": Composite({"a": Unbounded((3,)), ("n", "c"): OneHot(5, (3, 5))}, shape=(3,)),
    "StackedComposite": torch.stack(
        [
            Composite(a=Bounded(0, 1, (3,)), c=OneHot(4), own=Unbounded((1,))),
            Composite(a=Bounded(0, 2, (4,)), c=OneHot(4, mask=torch.tensor([True, False, True, True]))),
        ]
    ),
    "Composite of a stack": Composite(agents=torch.stack([Composite(), Composite(a=Bounded(0, 1, (3,)))])),
    "stack along a second dimension": torch.stack([Composite(a=Unbounded((3, n)), shape=(3,)) for n in (1, 2)], 1),
    "stack of stacks": torch.stack(
        [torch.stack([Composite(a=Unbounded((n,)), b=Unbounded((k,))) for n in (1, 2)]) for k in (3, 4)]
    ),
}


@pytest.mark.parametrize("lead", [(6,), (5, 2), (0,)], ids=str)
@pytest.mark.parametrize("name", ROWS)
def test_rows_go_to_numpy_and_back(name, lead) -> None:
    spec = ROWS[name]
    rows = spec.rand(lead, generator=torch.Generator().manual_seed(0))
    for encoded in (spec.encode(rows), spec.encode(spec.to_numpy(rows), lead=lead), spec.encode(rows, lead=lead)):
        spec.assert_is_in(encoded)
        assert encoded.shape == rows.shape
        assert bool((encoded == rows).all())
    with pytest.raises(SpecError):
        spec.encode(rows, lead=())
    with pytest.raises(SpecError):
        spec.encode(rows, lead=(7,))


def test_text_of_many_rows_is_encoded_with_the_data_beside_it() -> None:
    spec = Composite(x=Unbounded((2,)), text=NonTensor(example_data="a"))
    encoded = spec.encode({"x": np.zeros((3, 2)), "text": ["p", "q", "r"]}, lead=(3,))
    assert encoded.batch_size == (3,)
    assert encoded["text"] == ["p", "q", "r"]
    assert spec.encode({"x": np.zeros(2), "text": ["p", "q"]})["text"] == ["p", "q"]


def test_entries_of_unequal_rows_are_refused() -> None:
    spec = Composite(a=Unbounded((2,)), b=Unbounded((3,)))
    with pytest.raises(SpecError, match=r"'b': expected shape \(4, 3\), found \(3,\)"):
        spec.encode({"a": np.zeros((4, 2)), "b": np.zeros(3)}, lead=(4,))
    with pytest.raises(SpecError, match=r"'b': expected shape \(3,\), found \(4, 3\)"):
        spec.encode({"a": np.zeros(2), "b": np.zeros((4, 3))})
    stack = torch.stack([Bounded(0, 1, (2,)), Bounded(0, 2, (2,))])
    with pytest.raises(SpecError, match=r"expected shape \(4, 2\), found \(2,\)"):
        stack.encode([np.zeros((4, 2)), np.zeros(2)], lead=(4,))
