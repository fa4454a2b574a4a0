"""Stacked and StackedComposite."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

from steppe.errors import NotSupported, SpecError
from steppe.specs import (
    Binary,
    Bounded,
    Categorical,
    Composite,
    NonTensor,
    OneHot,
    Stacked,
    StackedComposite,
    Unbounded,
)


def ragged() -> Stacked:
    return torch.stack([Bounded(0, 1, (2, 3)), Bounded(0, 1, (2, 4))])


def unequal() -> Stacked:
    return torch.stack([Bounded(0, 1, (2, 3)), Bounded(5, 6, (2, 3))], 1)


def agents(dim: int = 0) -> StackedComposite:
    return torch.stack(
        [
            Composite({"obs": Unbounded((2, 3)), ("n", "x"): Binary(1, (2, 1)), "only": Unbounded((2, 1))}, shape=(2,)),
            Composite({"obs": Unbounded((2, 4)), ("n", "x"): Binary(1, (2, 1))}, shape=(2,)),
        ],
        dim,
    )


def test_sizes_that_differ_read_minus_one() -> None:
    assert type(ragged()) is Stacked
    assert ragged().shape == (2, 2, -1)
    assert unequal().shape == (2, 2, 3)
    assert ragged().dtype is torch.float32
    assert ragged().ndim == 3


def test_domains_stay_with_their_rows() -> None:
    spec = unequal()
    drawn = spec.rand((5,))
    assert drawn.shape == (5, 2, 2, 3)
    assert spec.expand(5, 2, 2, 3).is_in(drawn)
    assert not spec.is_in(spec.zero())
    assert spec.is_in(spec.project(torch.zeros(2, 2, 3)))
    assert spec.is_in(torch.zeros(2, 3, 3)) is False
    assert spec.is_in(drawn)
    assert spec.is_in(drawn, exact=True) is False
    with pytest.raises(SpecError, match=r"'x': expected values from 5 to 6, found .*\(Stacked spec 1\.\)"):
        spec.assert_is_in(torch.zeros(2, 2, 3), key="x")


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x[0],
        lambda x: x[:, 1],
        lambda x: x[..., 0],
        lambda x: x[:, :1],
        lambda x: x[:, [1, 0, 1]],
        lambda x: x[:, torch.tensor([False, True])],
        lambda x: x[None, 1:, :, None],
        lambda x: x[[1, 0]],
        lambda x: x.unsqueeze(0),
        lambda x: x.unsqueeze(-1),
        lambda x: x.unsqueeze(0).squeeze(0),
        lambda x: x[:1].squeeze(),
        lambda x: x.expand((4, *x.shape)),
        lambda x: x.unflatten(2, (3, 1)),
        lambda x: x.unflatten(0, (2, 1)),
        lambda x: x.unsqueeze(0).flatten(0, 1),
        lambda x: x.reshape(2, 2, 3, 1),
        lambda x: x.unbind(1)[1],
        lambda x: x.unbind(0)[1],
        lambda x: x.unbind(2)[1],
    ],
)
def test_shapes_follow_torch(change) -> None:
    spec = unequal()
    expected, found = change(spec.rand()), change(spec)
    assert found.shape == expected.shape
    assert found.is_in(expected)


@pytest.mark.parametrize(
    "change", [lambda s: s.flatten(), lambda s: s.reshape(-1), lambda s: s[:, [0, 1, 0, 1]].unflatten(1, (2, 2))]
)
def test_unequal_parts_cannot_be_joined(change) -> None:
    with pytest.raises(NotSupported, match="the parts along dimension 1 differ"):
        change(unequal())


def test_specs_of_different_kinds_may_be_stacked() -> None:
    spec = torch.stack([Bounded(0, 1, (3,)), Unbounded((3,))])
    assert spec.is_in(torch.tensor([[0.5] * 3, [9.0] * 3]))
    actions = torch.stack([OneHot(2), OneHot(3)])
    assert actions.shape == (2, -1)
    assert [len(row) for row in actions.rand().unbind()] == [2, 3]


def test_stacks_are_compared_copied_and_pickled() -> None:
    for spec in (ragged(), unequal(), agents(), agents(1)):
        for other in (spec.clone(), copy.deepcopy(spec), pickle.loads(pickle.dumps(spec))):
            assert other == spec
            assert other is not spec
        assert spec != spec.unsqueeze(0)
        assert spec != Unbounded((1,))
        assert str(spec).startswith(type(spec).__name__)
    assert ragged().to("cpu").device == torch.device("cpu")
    assert ragged().to("cpu").clear_device_() == ragged()
    assert unequal().to(torch.float64).dtype is torch.float64


def test_cardinality_needs_parts_that_agree() -> None:
    assert torch.stack([Categorical(3), Categorical(3, mask=torch.tensor([1, 0, 1]).bool())]).cardinality() == 3
    with pytest.raises(NotSupported, match="different ones"):
        torch.stack([Categorical(3), Categorical(4)]).cardinality()


def test_text_may_be_stacked() -> None:
    spec = torch.stack([NonTensor(example_data="a"), NonTensor(example_data="b")])
    assert spec.rand().tolist() == ["a", "b"]
    assert spec.is_in(spec.rand())


def test_selecting_equal_rows_gives_an_ordinary_spec() -> None:
    spec = torch.stack([Composite(a=Unbounded((3,))), Composite(a=Unbounded((4,))), Composite(a=Unbounded((4,)))])
    assert type(spec[1:]) is Composite
    assert type(spec[:2]) is StackedComposite
    assert spec[torch.tensor([True, False, True])]["a"].shape == (2, -1)
    with pytest.raises(IndexError, match="index 3 is out of bounds for dimension 0 with size 3"):
        spec[3]
    with pytest.raises(NotSupported, match="empty selection"):
        spec[3:]


def test_the_text_lists_the_parts() -> None:
    spec = torch.stack([Composite(a=Unbounded((3,))), Composite(a=Unbounded((4,)))])
    assert repr(spec) == (
        "StackedComposite(shape=(2,), dim=0) {\n"
        "    [0]: Composite(shape=(), device=None) {\n"
        "        a: Unbounded(shape=(3,), dtype=float32)\n"
        "    }\n"
        "    [1]: Composite(shape=(), device=None) {\n"
        "        a: Unbounded(shape=(4,), dtype=float32)\n"
        "    }\n"
        "}"
    )


def unlike() -> StackedComposite:
    """Two agents with moves of different sizes; only the second one speaks."""
    return torch.stack(
        [
            Composite(move=Unbounded((3,)), seen=Unbounded((2,))),
            Composite(move=Unbounded((4,)), seen=Bounded(0, 1, (2,)), word=Categorical(9)),
        ]
    )


def test_the_length_of_a_stack_is_its_first_size() -> None:
    assert len(unlike()) == 2
    assert len(unlike().expand(5, 2)) == 5
    assert len(torch.stack([Categorical(3), Categorical(4), Categorical(5)])) == 3
    assert bool(unlike())


def test_arrays_of_a_stack_are_a_list_with_a_dict_of_each_part() -> None:
    spec = unlike()
    drawn = spec.rand()
    arrays = spec.to_numpy(drawn)
    assert [{key: value.shape for key, value in part.items()} for part in arrays] == [
        {"move": (3,), "seen": (2,)},
        {"move": (4,), "seen": (2,), "word": ()},
    ]
    assert int(spec.encode(arrays)[1]["word"]) == int(drawn[1]["word"])
    nested = Composite(agents=spec, done=Binary(1))
    assert nested.is_in(nested.encode(nested.to_numpy(nested.rand())))


def test_a_stack_is_projected_in_place() -> None:
    spec = torch.stack([Composite(a=Bounded(0, 1, (2,))), Composite(a=Bounded(0, 1, (3,)))])
    data = spec.zero().apply(lambda t: t + 5)
    assert spec.project(data) is data
    assert spec.is_in(data)
    rows = spec.rand((4,))
    assert spec.is_in(rows)
    assert spec.is_in(rows, exact=True) is False
    whole = Composite(agents=spec)
    rollout = whole.rand((4,)).apply(lambda t: t + 5)
    assert whole.project(rollout) is rollout
    assert whole.is_in(rollout)
