"""StackedComposite: groups of specs with different entries."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tensordict import LazyStackedTensorDict

from steppe.errors import NotSupported, SpecError, StateError
from steppe.specs import (
    Binary,
    Bounded,
    Categorical,
    Composite,
    Stacked,
    StackedComposite,
    Unbounded,
)


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


def test_arrays_are_encoded_row_by_row() -> None:
    spec = unequal()
    encoded = spec.encode(np.full((2, 2, 3), 5.5))
    assert encoded.dtype is torch.float32
    assert spec.to_numpy(encoded).shape == (2, 2, 3)
    with pytest.raises(SpecError, match=r"'x': expected data of shape \(2, 2, 3\), one for each of 2 stacked"):
        spec.encode(np.zeros((2, 3, 3)), key="x")


def test_entries_that_cannot_be_stacked_are_refused() -> None:
    for others, text in (
        ([Unbounded((3,)), Unbounded((3, 1))], "one ndim, found 1 and 2"),
        ([Unbounded((3,)), Unbounded((3,), dtype=torch.int64)], "one dtype"),
        ([Unbounded((3,)), Unbounded((3,), device="cpu")], "one device"),
        ([Unbounded((3,)), Composite()], "Composites only or leaf specs only"),
    ):
        with pytest.raises(SpecError, match=text):
            torch.stack(others)
    with pytest.raises(SpecError, match="at least one spec"):
        Stacked()
    with pytest.raises(SpecError, match="Use StackedComposite"):
        Stacked(Composite())


def test_equal_composites_stack_to_one() -> None:
    one = Composite({"a": Unbounded((2, 3))}, shape=(2,))
    stacked = torch.stack([one, one.clone(), one.clone()], 1)
    assert type(stacked) is Composite
    assert (stacked.shape, stacked["a"].shape) == ((2, 3), (2, 3, 3))


def test_entries_are_those_that_all_parts_have() -> None:
    spec = agents()
    assert type(spec) is StackedComposite
    assert spec.shape == (2, 2)
    assert list(spec.keys(True, True)) == ["obs", ("n", "x")]
    assert spec["obs"].shape == (2, 2, -1)
    assert spec["n", "x"] == Binary(1, (2, 2, 1))
    assert "only" not in spec
    assert "only" in spec[0]
    assert list(spec) == ["obs", "n"]


@pytest.mark.parametrize("dim", [0, 1])
def test_data_is_a_lazy_stack(dim: int) -> None:
    spec = agents(dim)
    drawn = spec.rand((5,), generator=torch.Generator().manual_seed(0))
    assert isinstance(drawn, LazyStackedTensorDict)
    assert drawn.batch_size == (5, 2, 2)
    assert spec.expand(5, 2, 2).is_in(drawn)
    assert spec.is_in(spec.zero())
    assert spec.is_in(spec.one())
    assert spec.is_in(spec.encode(spec.to_numpy(spec.rand())))
    spec.type_check(spec.rand())


def test_faults_name_the_row_and_the_entry() -> None:
    spec = agents()
    data = spec.rand()
    data.tensordicts[1]["obs"] = torch.zeros(2, 3)
    with pytest.raises(SpecError, match=r"\('\[1\]', 'obs'\): expected shape \(2, 4\), found \(2, 3\)"):
        spec.assert_is_in(data)
    assert spec.is_in(data[:1]) is False
    assert spec.is_in(3) is False


def test_projection_goes_row_by_row() -> None:
    spec = agents()
    data = spec.rand()
    data.tensordicts[0]["n", "x"] += 7
    assert not spec.is_in(data)
    assert spec.is_in(spec.project(data))
    assert spec.project(spec.zero()).batch_size == (2, 2)


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x[0],
        lambda x: x[:, 1],
        lambda x: x[:, :1],
        lambda x: x[:, [1, 0]],
        lambda x: x.unsqueeze(0),
        lambda x: x.unsqueeze(-1),
        lambda x: x.expand((4, *x.shape)),
        lambda x: x.unbind(0)[1],
        lambda x: x.unbind(1)[1],
    ],
)
@pytest.mark.parametrize("dim", [0, 1])
def test_shapes_of_composites_follow_tensordict(change, dim: int) -> None:
    spec = agents(dim)
    expected, found = change(spec.zero()), change(spec)
    assert found.shape == expected.batch_size
    found.assert_is_in(expected)


def test_edits_reach_every_part() -> None:
    spec = agents()
    spec["reward"] = Unbounded((2, 2, 1))
    spec["n", "y"] = torch.stack([Unbounded((2, 5)), Unbounded((2, 6))])
    assert [part["n", "y"].shape for part in spec.specs] == [(2, 5), (2, 6)]
    assert spec["reward"].shape == (2, 2, 1)
    assert spec.pop(("n", "x")) == Binary(1, (2, 2, 1))
    assert all(("n", "x") not in part for part in spec.specs)
    spec.update({"n": {"z": Binary(1, (2, 2, 1))}})
    assert list(spec["n"].keys()) == ["y", "z"]
    with pytest.raises(KeyError):
        spec.pop("only")
    assert spec.pop("only", None) is None


def test_selections_of_entries_stay_stacked() -> None:
    spec = agents()
    assert list(spec.exclude("obs", "only").keys()) == ["n"]
    assert spec.empty() == Composite(shape=(2, 2))
    assert not spec.is_empty()
    taken = spec.separates("obs")
    assert taken["obs"].shape == (2, 2, -1)
    assert "obs" not in spec.specs[1]


def test_a_stack_may_be_an_entry() -> None:
    spec = Composite({"agents": agents(), "done": Binary(1, (2, 1))}, shape=(2,))
    assert ("agents", "obs") in spec.keys(True, True)
    drawn = spec.rand((3,))
    assert isinstance(drawn["agents"], LazyStackedTensorDict)
    assert spec.expand(3, 2).is_in(drawn)
    assert spec.clone() == spec
    assert spec[0]["agents"] == agents()[0]


def test_devices_and_shapes_of_parts_can_be_set() -> None:
    spec = agents()
    spec.device = "cpu"
    assert spec.specs[1]["obs"].device == torch.device("cpu")
    assert spec.clear_device_() == agents()
    spec.batch_size = (2,)
    assert [part.shape for part in spec.specs] == [(), ()]
    with pytest.raises(NotSupported, match="has 2 specs"):
        spec.batch_size = (3,)


def test_entries_that_cannot_be_stacked_are_named() -> None:
    spec = torch.stack([Composite(a=Unbounded((3,))), Composite(a=Unbounded((3, 1)))])
    assert list(spec) == ["a"]
    with pytest.raises(SpecError, match="The entry 'a' differs too much among the stacked specs"):
        spec["a"]


def unlike() -> StackedComposite:
    """Two agents with moves of different sizes; only the second one speaks."""
    return torch.stack(
        [
            Composite(move=Unbounded((3,)), seen=Unbounded((2,))),
            Composite(move=Unbounded((4,)), seen=Bounded(0, 1, (2,)), word=Categorical(9)),
        ]
    )


def test_an_entry_is_deleted_from_the_parts_that_have_it() -> None:
    spec = unlike()
    del spec["word"]
    assert all("word" not in part for part in spec.specs)
    del spec["move"]
    assert list(spec.keys()) == ["seen"]
    with pytest.raises(KeyError, match="There is no entry 'word'"):
        del spec["word"]
    with pytest.raises(StateError, match="cannot remove 'seen'"):
        del spec.lock_()["seen"]


def test_a_dict_of_stacked_entries_is_refused() -> None:
    with pytest.raises(SpecError, match=r"expected a TensorDict of batch size \(2,\), or a list of 2, found dict"):
        unlike().encode({"move": [np.zeros(3), np.zeros(4)], "seen": np.zeros((2, 2))})
    with pytest.raises(SpecError, match=r"'agents': expected a TensorDict.*or a list of 2, found list"):
        Composite(agents=unlike()).encode({"agents": [{}]})


def test_dtypes_of_a_stack_are_checked_entry_by_entry() -> None:
    spec = unlike()
    good = spec.rand()
    spec.type_check(good)
    spec.type_check(good, ["move", "seen"])
    spec.type_check(torch.zeros(2, 2), "seen")
    wrong = spec.rand()
    wrong.tensordicts[1]["word"] = torch.tensor(0.0)
    spec.type_check(wrong, "move")
    with pytest.raises(SpecError, match=r"'word'.*: expected dtype torch\.int64, found torch\.float32"):
        spec.type_check(wrong)
    with pytest.raises(SpecError, match=r"expected dtype torch\.float32"):
        spec.type_check(torch.zeros(2, 2, dtype=torch.int64), "seen")
    for missing in ("nothing", "word"):  # only one part has a word
        with pytest.raises(KeyError, match=f"There is no entry '{missing}'"):
            spec.type_check(good, missing)


def test_pop_reaches_into_a_stack_that_is_an_entry():
    parts = [Composite(x=Bounded(0, high, shape=(2,)), y=Unbounded(3)) for high in (1, 2)]
    spec = Composite(agents=torch.stack(parts))

    removed = spec.pop(("agents", "x"))

    assert isinstance(removed, Stacked)
    assert list(spec.keys(True, True)) == [("agents", "y")]
    assert spec.pop(("agents", "x"), None) is None
