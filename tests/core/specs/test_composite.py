"""Composite: entries, data, attributes."""

from __future__ import annotations

import copy

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


# Entries ---------------------------------------------------------------------------------------------------------


def test_tuple_keys_nest(spec: Composite) -> None:
    assert list(spec.keys()) == ["observation", "agents"]
    assert spec["agents", "move"] is spec["agents"]["move"] is spec.get(("agents", "move"))
    assert spec["agents"].shape == (4,)


def test_keys_may_be_nested_or_leaves_only(spec: Composite) -> None:
    leaves = ["observation", ("agents", "position"), ("agents", "move")]
    assert list(spec.keys(True, True)) == leaves
    assert list(spec.keys(include_nested=True)) == ["observation", "agents", *leaves[1:]]
    assert list(spec.keys(leaves_only=True)) == ["observation"]
    assert list(spec.keys(True, True, is_leaf=lambda cls: issubclass(cls, Composite))) == ["observation", "agents"]
    assert [type(leaf) for leaf in spec.values(True, True)] == [Bounded, Unbounded, OneHot]
    assert dict(spec.items())["agents"] is spec["agents"]


def test_keys_have_set_operations(spec: Composite) -> None:
    keys = spec.keys(True)
    assert ("agents", "move") in keys
    assert "move" not in keys
    assert spec.keys() - {"agents"} == {"observation"}
    assert len(keys) == 4


def test_entries_can_be_removed_in_a_loop_over_keys(spec: Composite) -> None:
    for key in spec.keys(True, True):
        del spec[key]
    assert spec.is_empty(recurse=True)


def test_containment_and_iteration_are_about_keys(spec: Composite) -> None:
    assert "agents" in spec
    assert ("agents", "move") in spec
    assert ("agents", "nothing") not in spec
    assert ("observation", "x") not in spec
    assert 3 not in spec
    assert list(spec) == ["observation", "agents"]
    assert len(spec) == 2
    assert Composite()


def test_keys_may_be_nested_in_nested_tuples(spec: Composite) -> None:
    nested = ("agents", ("move",))
    assert spec[nested] is spec["agents", "move"]
    assert nested in spec
    assert (("observation",),) in spec
    assert list(Composite({("a", ("b", "c")): Unbounded()}).keys(True, True)) == [("a", "b", "c")]
    spec[("agents", ("n", "m"))] = Unbounded((4, 1))
    assert spec.pop(("agents", ("n", ("m",)))) == Unbounded((4, 1))
    del spec[nested]
    assert nested not in spec


def test_a_missing_key_names_near_ones(spec: Composite) -> None:
    with pytest.raises(KeyError, match=r"no entry 'observations'.*Did you mean 'observation'"):
        spec["observations"]
    with pytest.raises(KeyError, match=r"\('agents', 'position'\)"):
        spec["agents", "positions"]
    assert spec.get("nothing", None) is None


def test_entries_can_be_replaced_and_removed(spec: Composite) -> None:
    spec["agents", "new", "deep"] = Binary(1, (4, 1))
    assert spec["agents", "new"].shape == (4,)
    del spec["agents", "new"]
    assert ("agents", "new") not in spec
    assert isinstance(spec.pop("observation"), Bounded)
    assert spec.pop("observation", None) is None
    with pytest.raises(KeyError, match="no entry 'observation'"):
        spec.pop("observation")


def test_update_merges_nested_entries(spec: Composite) -> None:
    returned = spec.update({"agents": {"speed": Unbounded((4, 1))}, ("agents", "move"): Categorical(5, (4,))})
    assert returned is spec
    assert list(spec["agents"].keys()) == ["position", "move", "speed"]
    assert isinstance(spec["agents", "move"], Categorical)


def test_exclude_leaves_the_spec_unchanged(spec: Composite) -> None:
    before = spec.clone()
    assert list(spec.exclude(("agents", "move"), "nothing").keys(True, True)) == ["observation", ("agents", "position")]
    assert spec == before


def test_separates_moves_entries_out(spec: Composite) -> None:
    taken = spec.separates("observation", ("agents", "move"))
    assert list(taken.keys(True, True)) == ["observation", ("agents", "move")]
    assert list(spec.keys(True, True)) == [("agents", "position")]
    assert spec.separates("nothing") is None
    assert list(spec.separates("nothing", ("agents", "position")).keys(True, True)) == [("agents", "position")]


def test_empty_keeps_shape_device_and_names() -> None:
    spec = Composite({"a": Unbounded((2, 1))}, shape=(2,), device="cpu", names=["x"])
    empty = spec.empty()
    assert (empty.shape, empty.device, empty.names, empty.is_empty()) == ((2,), torch.device("cpu"), ["x"], True)
    assert Composite(a=Composite()).is_empty(recurse=True)
    assert not Composite(a=Composite()).is_empty()


def test_mappings_become_composites() -> None:
    spec = Composite({"a": {"b": Unbounded((2, 1))}}, batch_size=[2], c=None)
    assert spec["a"].shape == (2,)
    assert Composite(spec, shape=(2,)) == spec


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: Composite(a=Unbounded((3,)), shape=(4,)),
            r"'a': expected a spec whose shape starts .*spec\.expand\(4, ",
        ),
        (lambda: Composite(a=3), "'a': expected a spec, a mapping or None, found int 3"),
        (lambda: Composite({}, {}), "at most one mapping"),
        (lambda: Composite({}, shape=(1,), batch_size=(2,)), "are the same thing"),
        (lambda: Composite({3: Unbounded()}), "Expected a name or a tuple of names, found 3"),
        (lambda: Composite({"a": Unbounded(), ("a", "b"): Unbounded()}), "the entry 'a' is a Unbounded"),
        (lambda: Composite(shape=(2,), names=["a", "b"]), r"expected 1 name\(s\)"),
        (lambda: Composite(shape=(2,)).__setitem__(0, Composite()), "rows of a spec cannot be assigned"),
    ],
)
def test_entries_that_do_not_fit_are_refused(make, text: str) -> None:
    with pytest.raises(SpecError, match=text):
        make()


# Data ------------------------------------------------------------------------------------------------------------


def test_random_data_has_the_batch_size_and_device(spec: Composite) -> None:
    drawn = spec.rand((7,))
    assert isinstance(drawn, TensorDict)
    assert drawn.batch_size == (7, 4)
    assert drawn["agents"].batch_size == (7, 4)
    assert drawn.device is None
    assert spec.to("cpu").zero().device == torch.device("cpu")


def test_one_generator_draws_all_entries(spec: Composite) -> None:
    drawn = [spec.rand(generator=torch.Generator().manual_seed(1)) for _ in range(2)]
    assert bool((drawn[0] == drawn[1]).all())
    torch.manual_seed(0)
    spec.rand(generator=torch.Generator().manual_seed(1))
    after = torch.rand(1)
    torch.manual_seed(0)
    assert torch.rand(1) == after


def broken(spec: Composite, key, value) -> TensorDict:
    out = spec.rand()
    out[key] = value
    return out


def test_data_is_checked_entry_by_entry(spec: Composite) -> None:
    good = spec.rand()
    assert spec.is_in(good) is True
    assert spec.is_in(good.exclude(("agents", "move"))) is False
    assert spec.is_in(broken(spec, "extra", torch.zeros(4)), exact=True) is False
    assert spec.is_in(broken(spec, ("agents", "position"), torch.zeros(4, 3))) is False
    assert spec.is_in(broken(spec, "observation", torch.full((4, 3), 2.0))) is False
    assert spec.is_in(good[:2]) is False
    assert spec.is_in(good.unsqueeze(0), exact=True) is False
    assert spec.is_in(torch.zeros(4)) is False
    assert spec.is_in(None) is False


def test_data_of_a_rollout_is_in_the_spec_of_a_step(spec: Composite) -> None:
    rollout = spec.rand((7,))
    rollout["reward"] = torch.zeros(7, 4, 1)
    assert spec.is_in(rollout)
    assert spec["agents", "move"].is_in(rollout["agents", "move"])
    rollout["observation"][6, 3, 2] = 9.0
    with pytest.raises(
        SpecError, match=r"'observation': expected values from -1 to 1, found values from .* to 9\. Use"
    ):
        spec.assert_is_in(rollout)


def test_entries_have_the_rows_of_the_tensordict_that_holds_them() -> None:
    spec = Composite(a=Unbounded((3,)), b=Composite(c=Unbounded(())))
    good = spec.rand((5,))
    assert spec.is_in(good)
    assert not spec.is_in(good.clone().set("a", torch.zeros(5, 2, 3)))
    assert not spec.is_in(good.clone().set(("b", "c"), torch.zeros(5, 2)))
    assert spec.is_in({"a": torch.zeros(3), "b": {"c": torch.zeros(())}})
    assert not spec.is_in({"a": torch.zeros(2, 3), "b": {"c": torch.zeros(2)}})  # a dict has no batch size
    assert not spec.is_in({"a": torch.zeros(2, 3), "b": {"c": torch.zeros(4)}})


def test_an_empty_composite_may_be_missing() -> None:
    spec = Composite(a=Unbounded((3,)), nothing=Composite())
    assert spec.is_in(TensorDict(a=torch.zeros(3)))


def test_lazy_stacks_are_judged_row_by_row() -> None:
    spec = Composite(a=Unbounded((3,)))
    rows = [TensorDict(a=torch.zeros(3)), TensorDict(a=torch.zeros(4))]
    assert spec.is_in(LazyStackedTensorDict(rows[0], rows[0]))
    with pytest.raises(SpecError, match=r"\('\[1\]', 'a'\): expected shape \(3,\), found \(4,\)"):
        spec.assert_is_in(LazyStackedTensorDict(*rows))


def test_the_error_lists_all_that_is_wrong(spec: Composite) -> None:
    data = spec.rand().exclude(("agents", "move"))
    data["agents", "position"] = torch.zeros(4, 2, dtype=torch.float64)
    data["extra"] = torch.zeros(4)
    with pytest.raises(SpecError) as caught:
        spec.assert_is_in(data, exact=True)
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("('agents', 'position'): expected dtype torch.float32, found torch.float64.")
    assert lines[1].startswith("('agents', 'move'): expected a OneHot of shape (4, 5), found no such entry among")
    assert lines[2] == "'extra': expected no such entry. Remove it from the data, or add it to the spec."


def test_a_wrong_batch_size_is_named(spec: Composite) -> None:
    with pytest.raises(SpecError, match=r"Composite: expected batch size \(4,\), found \(2,\)"):
        spec.assert_is_in(spec.rand()[:2])


def test_an_entry_of_none_takes_anything_and_gives_nothing() -> None:
    spec = Composite(a=None, b=Unbounded((1,)))
    assert list(spec.rand().keys()) == ["b"]
    assert spec.is_in(TensorDict({"a": torch.zeros(9), "b": torch.zeros(1)}))
    assert spec.is_in(TensorDict({"b": torch.zeros(1)}))
    assert spec.clone() == spec
    assert spec.expand(3)["a"] is None
    assert spec.encode({"a": torch.ones(2), "b": [1]})["a"].tolist() == [1, 1]


def test_dicts_are_encoded_with_the_key_in_the_error() -> None:
    spec = Composite({"obs": {"image": Bounded(0, 255, (2, 2, 3), dtype=torch.uint8)}, "t": Categorical(9)})
    image = np.zeros((2, 2, 3), np.uint8)
    encoded = spec.encode({"obs": {"image": image}, "t": 3})
    spec.assert_is_in(encoded)
    with pytest.raises(SpecError, match=r"\('obs', 'image'\): expected shape \(2, 2, 3\), found \(3, 2, 2\)"):
        spec.encode({"obs": {"image": image.transpose(2, 0, 1)}, "t": 3})
    assert list(spec.encode({"obs": {"image": image}}).keys()) == ["obs"]
    with pytest.raises(SpecError, match=r"found also \['extra'\]"):
        spec.encode({"obs": {"image": image}, "t": 3, "extra": 1})
    with pytest.raises(SpecError, match="expected a TensorDict or a dict, found list"):
        spec.encode([1])


def test_numpy_gives_nested_dicts(spec: Composite) -> None:
    arrays = spec.to_numpy(spec.rand())
    assert arrays["agents"]["move"].shape == (4,)
    assert spec.is_in(spec.encode(arrays))


def test_type_check_goes_through_all_entries(spec: Composite) -> None:
    spec.type_check(spec.rand())
    with pytest.raises(SpecError, match=r"\('agents', 'position'\): expected dtype"):
        spec.type_check(broken(spec, ("agents", "position"), torch.zeros(4, 2, dtype=torch.int64)))


def test_type_check_of_one_entry(spec: Composite) -> None:
    spec.type_check(torch.zeros(4, 3), "observation")
    spec.type_check(torch.zeros(4, 2), ("agents", "position"))
    wrong = broken(spec, "observation", torch.zeros(4, 3, dtype=torch.int64))
    spec.type_check(wrong, "agents")
    spec.type_check(wrong, ["agents", ("agents", "move")])
    with pytest.raises(SpecError, match=r"'observation': expected dtype torch.float32, found torch.int64"):
        spec.type_check(wrong["observation"], "observation")
    with pytest.raises(SpecError, match=r"'observation': expected dtype"):
        spec.type_check(wrong, ["agents", "observation"])
    with pytest.raises(KeyError, match="Did you mean 'observation'"):
        spec.type_check(torch.zeros(4, 3), "observatoin")


def test_projection_keeps_what_it_does_not_know(spec: Composite) -> None:
    data = broken(spec, "observation", torch.full((4, 3), 5.0))
    data["extra"] = torch.zeros(4)
    projected = spec.project(data)
    assert projected is data
    assert data["observation"].max() == 1
    assert "extra" in data.keys()
    with pytest.raises(SpecError, match="found no"):
        spec.project(data.exclude("observation"))


def test_projection_takes_rows_and_dicts(spec: Composite) -> None:
    rollout = spec.rand((7,))
    rollout["observation"] += 100
    assert spec.project(rollout) is rollout
    assert spec.is_in(rollout)
    entries = {"a": torch.full((5, 2), 3.0)}
    assert Composite(a=Bounded(0, 1, (2,))).project(entries) is entries
    assert entries["a"].max() == 1


def test_projection_of_locked_data_is_a_copy(spec: Composite) -> None:
    data = broken(spec, "observation", torch.full((4, 3), 5.0)).lock_()
    projected = spec.project(data)
    assert spec.is_in(projected)
    assert data["observation"].max() == 5
    assert spec.project(projected) is projected


def test_entries_can_be_written_into_a_tensordict(spec: Composite) -> None:
    data = TensorDict({"other": torch.ones(2, 4)}, batch_size=(2, 4))
    assert spec.zeros_update(data) is data
    assert data["observation"].shape == (2, 4, 3)
    assert spec.is_in(spec.rand_update(data))
    assert bool((spec.ones_update(data)["agents", "position"] == 1).all())
    with pytest.raises(SpecError, match=r"ends with \(4,\), found \(2, 3\)"):
        spec.zeros_update(TensorDict(batch_size=(2, 3)))


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


# Shape, device, names --------------------------------------------------------------------------------------------


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


# Dynamic sizes ---------------------------------------------------------------------------------------------------


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


# Text ------------------------------------------------------------------------------------------------------------


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


# What a Composite says beside its entries -------------------------------------------------------------------------


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


def test_data_of_a_tensorclass_is_made_of_it(seen: Composite) -> None:
    for made in (seen.rand(), seen.zero((3,)), seen.one(), seen.encode({"image": [1, 2], "caption": "y"})):
        assert type(made) is Seen
        assert seen.is_in(made)
    assert seen.encode({"image": [1, 2], "caption": "y"}).caption == "y"
    assert type(Composite(seen=seen, shape=()).rand((4,))["seen"]) is Seen
    assert seen.zero((3,)).batch_size == (3,)
    assert seen.is_in(TensorDict(image=torch.zeros(2), caption="z"))


def test_a_tensorclass_is_projected_and_checked(seen: Composite) -> None:
    spec = seen.clone()
    spec["image"] = Bounded(0, 1, (2,))
    data = Seen(image=torch.full((2,), 7.0), caption="z")
    assert not spec.is_in(data)
    assert spec.project(data) is data
    assert spec.is_in(data)
    assert data.image.tolist() == [1, 1]
    assert spec.to_numpy(data)["caption"] == "z"


def test_the_class_of_data_follows_the_spec(seen: Composite) -> None:
    for other in (seen.clone(), seen.expand(4), seen[None], seen.to(torch.float64), copy.deepcopy(seen), seen.empty()):
        assert other.data_cls is Seen
    assert Composite(a=Unbounded(), data_cls=TensorDict).data_cls is None
    assert seen != Composite(dict(seen.items()))
    with pytest.raises(SpecError, match="expected data_cls to be a tensorclass or TensorDict, found 3"):
        Composite(data_cls=3)
