"""Composite: entries, data, attributes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tensordict import LazyStackedTensorDict, TensorDict, tensorclass

from steppe.errors import IgnoredArgumentWarning, SpecError, StateError
from steppe.specs import Binary, Bounded, Categorical, Composite, NonTensor, OneHot, Unbounded


@pytest.fixture
def spec() -> Composite:
    return Composite(
        {
            "observation": Bounded(-1, 1, (4, 3)),
            ("agents", "position"): Unbounded((4, 2)),
            ("agents", "move"): OneHot(5, (4, 5)),
        },
        shape=(4,),
    )


def test_combinations_are_listed() -> None:
    spec = Composite({"a": Categorical(2, (5,)), ("n", "b"): OneHot(3, (5, 3))}, shape=(5,))
    listed = spec.enumerate()
    assert spec.cardinality() == 6
    assert listed.batch_size == (6, 5)
    assert len({(int(row["a"][0]), int(row["n", "b"][0].int().argmax())) for row in listed}) == 6
    assert Composite().cardinality() == 1


def test_index_goes_through_entries() -> None:
    spec = Composite({("n", "a"): Categorical(3)})
    picked = spec.index({"n": {"a": torch.tensor(1)}}, {"n": {"a": torch.tensor([4.0, 5.0, 6.0])}})
    assert picked["n"]["a"].item() == 5


def test_index_says_which_entries_it_needs() -> None:
    spec = Composite(a=Categorical(3))
    with pytest.raises(SpecError, match="'tensor_to_index': expected a TensorDict or a dict, found Tensor"):
        spec.index({"a": torch.tensor(1)}, torch.zeros(3))
    with pytest.raises(SpecError, match=r"'index': expected the entries \['a'\], found no \['a'\]. It has \['b'\]"):
        spec.index({"b": torch.tensor(1)}, {"a": torch.zeros(3)})


def test_only_batch_dimensions_can_be_indexed(spec: Composite) -> None:
    assert spec[0]["agents", "move"].shape == (5,)
    assert spec[1:3, ...].shape == (2,)
    assert spec[torch.tensor([True, False, True, True])]["observation"].shape == (3, 3)
    assert spec[None].shape == (1, 4)
    assert spec[()] == spec
    with pytest.raises(IndexError, match="Too many indices: 2 for 1 batch"):
        spec[0, 0]
    with pytest.raises(IndexError, match=r"only one '\.\.\.'"):
        spec[..., ...]


def test_flattening_does_not_touch_the_entries_own_dimensions(spec: Composite) -> None:
    wide = spec.expand(2, 4)
    assert wide.flatten(0, 1)["observation"].shape == (8, 3)
    assert wide.reshape(-1)["agents", "move"].shape == (8, 5)
    assert wide.reshape(8).unflatten(0, (2, 4)) == wide
    assert wide.view(4, 2)["agents"].shape == (4, 2)
    assert spec.unsqueeze(-1)["observation"].shape == (4, 1, 3)
    assert torch.squeeze(spec.unsqueeze(0), 0) == spec
    assert spec.unbind(0)[3]["observation"].shape == (3,)


def test_impossible_shapes_are_errors_of_ours(spec: Composite) -> None:
    with pytest.raises(SpecError, match=r"shape \(4,\): cannot expand to \(3,\)"):
        spec.expand(3)
    with pytest.raises(SpecError, match="cannot reshape"):
        spec.reshape(3)
    with pytest.raises(SpecError, match="cannot unbind"):
        spec["observation"].make_neg_dim(0).unbind(0)


def test_the_batch_size_can_be_assigned(spec: Composite) -> None:
    spec.batch_size = ()
    assert spec.shape == ()
    assert spec["agents"].shape == (4,)
    spec.shape = (4,)
    with pytest.raises(SpecError, match="starts with the batch size"):
        spec.batch_size = (5,)


def test_a_longer_batch_size_reaches_nested_composites() -> None:
    spec = Composite({"n": {"a": Unbounded((2, 3, 1))}})
    spec.batch_size = (2, 3)
    assert spec["n"].shape == (2, 3)


def test_the_device_moves_entries() -> None:
    spec = Composite(a=Unbounded((1,)), n={"b": Unbounded((1,))}, device="cpu")
    assert spec["n", "b"].device == spec["n"].device == torch.device("cpu")
    spec["c"] = Binary(1)
    assert spec["c"].device == torch.device("cpu")
    spec.clear_device_()
    assert [leaf.device for leaf in spec.values(True, True)] == [None] * 3
    spec.device = "cpu"
    assert spec["c"].device == torch.device("cpu")
    assert spec.to("cpu") is spec
    assert Composite(a=Unbounded((1,))).cpu().rand()["a"].device.type == "cpu"


def test_a_dtype_reaches_all_entries() -> None:
    spec = Composite(a=Unbounded((1,)), b=Bounded(0, 1))
    assert {leaf.dtype for leaf in spec.to(torch.float64).values()} == {torch.float64}
    assert spec.to(torch.float32) is spec


def test_nested_specs_get_the_batch_size_of_their_parent() -> None:
    inner = Composite(seen=Unbounded((2, 3)), deeper=Composite(flag=Binary(1, (2, 1))), text=NonTensor())
    spec = Composite(agents=inner, text=NonTensor(example_data="x"), nothing=Composite(), shape=(2,))
    assert spec["agents"].shape == spec["agents", "deeper"].shape == spec["nothing"].shape == (2,)
    assert spec["text"].shape == spec["agents", "text"].shape == (2,)
    assert spec["agents", "seen"].shape == (2, 3)
    assert spec.is_in(spec.rand())
    assert inner.shape == ()


def test_nested_entries_without_the_batch_size_are_refused() -> None:
    with pytest.raises(SpecError, match=r"'b': expected a spec whose shape starts with the batch size \(2,\)"):
        Composite(agents=Composite(a=Unbounded((2, 3)), b=Unbounded((3,))), shape=(2,))
    with pytest.raises(SpecError, match=r"'seen': expected a spec whose shape starts .* \(2, 3\), found Unbounded"):
        Composite(agents=Composite(seen=Unbounded((2, 5)), shape=(2,)), shape=(2, 3))
    with pytest.raises(SpecError, match=r"'agents': expected a spec whose shape starts"):
        Composite(agents=Composite(a=Unbounded((3, 3)), shape=(3,)), shape=(2,))


def test_names_stay_with_their_dimensions() -> None:
    spec = Composite(a=Unbounded((2, 3, 1)), n=Composite(b=Unbounded((2, 3)), shape=(2, 3)), shape=(2, 3))
    spec.names = ["env", "time"]
    assert spec["n"].names == ["env", "time"]
    assert spec[0].names == spec.unbind(0)[1].names == ["time"]
    assert spec[:, 0].names == spec[..., 1].names == ["env"]
    assert spec[:1].names == spec[[0, 1]].names == spec[torch.tensor([True, False])].names == ["env", "time"]
    assert spec[:, None].names == spec.unsqueeze(1).names == ["env", None, "time"]
    assert spec[:, None].squeeze(1).names == spec[:, :1].names == ["env", "time"]
    assert spec[:, :1].squeeze().names == ["env"]
    assert spec.reshape(6).names == [None]
    assert spec[:, 0]["n"].names == ["env"]
    assert Composite(n=Composite(b=Unbounded((2, 3)), shape=(2, 3)), shape=(2,), names=["env"])["n"].names == [
        "env",
        None,
    ]


def test_names_reach_the_data() -> None:
    spec = Composite(a=Unbounded((2, 3, 1)), shape=(2, 3), names=["env", None])
    assert spec.refine_names(..., "time") is spec
    assert spec.zero((5,)).names == [None, "env", "time"]
    assert spec.expand(4, 2, 3).names == [None, "env", "time"]
    with pytest.raises(SpecError, match=r"names \['env', 'time'\] cannot get \['other', "):
        spec.refine_names("other", ...)
    spec.names = None
    assert spec.names == [None, None]


def test_order_of_entries_does_not_matter_for_equality() -> None:
    a, b = Unbounded((1,)), Binary(1)
    assert Composite(a=a, b=b) == Composite(b=b, a=a)
    assert Composite(a=a) != Composite(a=a, b=b)
    assert Composite(a=a) != Composite(a=a, device="cpu")


def test_specs_are_unhashable() -> None:
    for spec in (Composite(), Unbounded()):
        with pytest.raises(TypeError, match="unhashable"):
            hash(spec)


def test_any_size_fits_a_dynamic_one() -> None:
    spec = Unbounded((3, -1, 2))
    for n in (0, 1, 7):
        assert spec.is_in(torch.zeros(3, n, 2))
    assert not spec.is_in(torch.zeros(2, 1, 2))
    assert spec.zero().shape == spec.rand().shape == (3, 1, 2)
    assert spec.encode(np.zeros((3, 5, 2))).shape == (3, 5, 2)


def test_dynamic_sizes_follow_the_shape() -> None:
    spec = Bounded(torch.tensor([[0.0], [1.0]]), 5, shape=(2, -1))
    assert spec.expand(4, 2, -1).shape == spec.expand(4, *spec.shape).shape == (4, 2, -1)
    assert spec[1].low.tolist() == [1]
    assert spec.unsqueeze(0).shape == (1, 2, -1)
    assert Unbounded((2, 3, -1)).flatten().shape == (-1,)
    assert Unbounded((6, -1)).unflatten(0, (2, 3)).shape == (2, 3, -1)
    assert spec.project(torch.zeros(2, 9)).tolist() == [[0.0] * 9, [1.0] * 9]


def test_a_size_can_be_made_dynamic() -> None:
    spec = Composite(a=Bounded(torch.zeros(2, 3), 1), shape=(2,))
    assert spec["a"].clone().make_neg_dim(1).is_in(torch.zeros(2, 8))
    assert spec.make_neg_dim(0) is spec
    assert (spec.shape, spec["a"].shape) == ((-1,), (-1, 3))
    different = Composite(a=Bounded(0, 1, (2, 3)), b=Bounded(torch.arange(2.0), 5), shape=(2,))
    with pytest.raises(SpecError, match="values differ along dimension 0"):
        different.make_neg_dim(0)
    assert different["a"].shape == (2, 3)
    with pytest.raises(StateError, match="cannot make a size dynamic"):
        spec.lock_().make_neg_dim(0)
    with pytest.raises(SpecError, match="values differ along dimension 0"):
        Bounded(torch.arange(2.0), 5).make_neg_dim(0)
    assert OneHot(3, (2, 3)).make_neg_dim(0).is_in(OneHot(3, (2, 3)).rand())


def test_rows_of_different_sizes_are_checked_row_by_row() -> None:
    spec = Composite(a=Bounded(0, 1, (2, -1)), shape=(2,))
    rows = LazyStackedTensorDict.lazy_stack([TensorDict(a=torch.zeros(1)), TensorDict(a=torch.zeros(3))])
    assert spec.is_in(rows)
    rows.tensordicts[1]["a"] += 2
    with pytest.raises(SpecError, match=r"\('\[1\]', 'a'\): expected values from 0 to 1"):
        spec.assert_is_in(rows)


def test_the_text_shows_the_tree() -> None:
    spec = Composite({("a", "b"): Binary(1), "text": NonTensor(example_data="x")})
    assert repr(spec) == (
        "Composite(shape=(), device=None) {\n"
        "    a: Composite(shape=(), device=None) {\n"
        "        b: Binary(shape=(1,), dtype=int8)\n"
        "    }\n"
        "    text: NonTensor(shape=(), example_data='x')\n"
        "}"
    )
    assert repr(Composite()) == "Composite(shape=(), device=None) {}"


def test_state_errors_are_what_locked_specs_raise() -> None:
    with pytest.raises(StateError):
        Composite().lock_().set("a", Unbounded())


def test_static_entries_are_listed() -> None:
    with pytest.warns(IgnoredArgumentWarning, match="entries always go to the next step whole"):
        static = Composite(b=Unbounded((3,)), step_mdp_static=True)
    spec = Composite(a=static, n=Composite(c=static), z=Unbounded())
    assert spec["a"].step_mdp_static is True
    assert spec.step_mdp_static is False
    assert list(spec.keys(True, step_mdp_static_only=True)) == ["a", ("n", "c")]
    assert spec.values(step_mdp_static_only=True) == [static]
    assert [key for key, _ in spec.items(step_mdp_static_only=True)] == ["a"]
    for other in (spec.clone(), spec.expand(4), spec[None], spec.to("cpu"), spec.unsqueeze(0)):
        assert other["a"].step_mdp_static is True


@tensorclass
class Seen:
    image: torch.Tensor
    caption: str


@pytest.fixture
def seen() -> Composite:
    return Composite(image=Unbounded((2,)), caption=NonTensor(example_data="x"), data_cls=Seen)
