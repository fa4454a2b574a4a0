"""Data of a Composite: made, checked, converted."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from tensordict import LazyStackedTensorDict, TensorDict, tensorclass

from steppe.errors import SpecError
from steppe.specs import Bounded, Categorical, Composite, NonTensor, OneHot, Unbounded


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
