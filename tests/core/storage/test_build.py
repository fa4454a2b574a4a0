"""TensorDicts that are built without being checked."""

from __future__ import annotations

import torch
from tensordict import TensorDict

from steppe.storage import build_alike, build_td, entries
from steppe_testing import assert_equal_data


def test_build_td_equals_the_constructor():
    inner = TensorDict({"b": torch.ones(2, 3)}, [2])
    source = {"a": torch.zeros(2), "inner": inner}

    assert_equal_data(build_td(dict(source), torch.Size([2])), TensorDict(source, [2]))


def test_build_alike_copies_batch_device_and_names():
    other = TensorDict({"a": torch.zeros(2, 3)}, [2, 3], names=[None, "time"], device="cpu")
    found = build_alike({"b": torch.ones(2, 3)}, other)

    assert (found.batch_size, found.device, found.names) == (other.batch_size, other.device, [None, "time"])
    found.names = ["row", None]
    assert other.names == [None, "time"]
    assert build_alike({}, TensorDict({}, [2])).names == [None]


def test_entries_returns_the_tensordicts_own_dict():
    td = TensorDict({}, [2])
    entries(td)["a"] = torch.zeros(2)

    assert torch.equal(td["a"], torch.zeros(2))
