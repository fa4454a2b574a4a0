"""Data is pickled with the memory of its tensors beside the pickle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from steppe_remote import dumps, loads
from steppe_testing import assert_equal_data

VALUES: dict[str, Any] = {
    "a tensor": torch.arange(6).reshape(2, 3),
    "a view of every second column": torch.arange(12.0).reshape(3, 4)[:, ::2],
    "a scalar": torch.tensor(1.5),
    "nothing": torch.empty(0, 3),
    "bfloat16": torch.ones(3, dtype=torch.bfloat16),
    "complex numbers": torch.tensor([1 + 2j]),
    "a parameter": torch.nn.Parameter(torch.ones(2)),
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_tensors_arrive_as_they_were(value: torch.Tensor) -> None:
    copy = loads(dumps(value))

    assert torch.equal(copy, value)
    assert (copy.dtype, copy.requires_grad, type(copy)) == (value.dtype, value.requires_grad, type(value))


def test_a_batch_arrives_with_its_names_and_nested_entries() -> None:
    batch = TensorDict({"a": torch.rand(2, 3), "next": {"b": torch.rand(2, 3, 4)}}, [2, 3], names=[None, "time"])
    copy = loads(dumps(batch))

    assert_equal_data(copy, batch)
    assert copy.names == [None, "time"]


def test_the_memory_of_tensors_is_not_copied() -> None:
    tensor = torch.zeros(1000)
    packed = dumps({"a": tensor})
    tensor += 1

    assert len(packed.pickle) < 1000
    assert loads(packed)["a"].eq(1).all()


def test_received_tensors_can_be_written() -> None:
    """Engines pass memory on that numpy takes to be read-only, although only the receiver has it."""
    packed = dumps(torch.zeros(3))
    for buffer in packed.buffers:
        buffer.flags.writeable = False
    received = loads(packed)
    received[1] = 2.0

    assert received.tolist() == [0.0, 2.0, 0.0]
    assert isinstance(packed.buffers[0], np.ndarray)
