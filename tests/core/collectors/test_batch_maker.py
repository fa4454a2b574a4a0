"""Memory of the frames of a batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict import TensorDictBase

from steppe import Collector, SerialEnv, StepCounter, TransformedEnv
from steppe.collectors import LocalBackend
from steppe_testing import ArrayCountingEnv, CountingEnv, assert_equal_data
from tests.core.collectors.screen import Screen

ENVS = {
    "rows": lambda: SerialEnv(2, ArrayCountingEnv),
    "transformed": lambda: TransformedEnv(SerialEnv(2, ArrayCountingEnv), StepCounter()),
    "tensordicts": CountingEnv,
}


@pytest.mark.parametrize("make", ENVS.values(), ids=ENVS)
@pytest.mark.parametrize("compact", [False, True])
def test_batches_move_to_memory_given_after_the_first_step(make, compact):
    settings = {"frames_per_batch": 12, "seed": 3, "compact_obs": compact, "return_same_td": True}
    with Collector(make(), **settings) as here, Collector(make(), **settings) as there:
        backend = there.backend
        assert isinstance(backend, LocalBackend)
        spec = backend.prepare()
        assert spec is not None
        tensors = {key: torch.zeros(spec[key].shape, dtype=spec[key].dtype) for key in spec.keys(True, True)}
        backend.batches.keep_batches_in(tensors)

        for _ in range(3):
            expected, batch = next(here), next(there)
            assert_equal_data(expected, batch)
            for key, tensor in tensors.items():
                if key[0] != "collector":
                    assert batch.get(key).data_ptr() == tensor.data_ptr()
                    assert torch.equal(tensor, expected.get(key))


@pytest.mark.parametrize("acts", [False, True])
def test_later_batches_leave_yielded_images_unchanged(acts: bool) -> None:
    def policy(td: TensorDictBase) -> TensorDictBase:
        return td.set("action", (td["pixels"][..., 1, 1] % 5).long())

    settings: dict[str, Any] = {"policy": policy if acts else None, "seed": 1}
    with (
        Collector(SerialEnv(2, Screen), frames_per_batch=24, **settings) as large,
        Collector(SerialEnv(2, Screen), frames_per_batch=4, **settings) as small,
    ):
        batches = [next(large) for _ in range(3)]
        pieces = [next(small) for _ in range(18)]
    memory = {batch["next", "pixels"].data_ptr() for batch in batches}
    assert len(memory) == 3
    expected = torch.cat(pieces, -1).exclude("collector")
    assert (torch.cat(batches, -1).exclude("collector") == expected).all()


def test_the_memory_of_a_batch_of_images_is_used_again() -> None:
    with Collector(Screen, frames_per_batch=24) as collector:
        places = set()
        for _ in range(6):
            batch = next(collector)
            places.add(batch["pixels"].data_ptr())
            del batch
    assert len(places) <= 3
