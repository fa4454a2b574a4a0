"""Where the frames of a batch are written."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from steppe import Collector, SerialEnv, StepCounter, TransformedEnv
from steppe.collectors import LocalBackend
from steppe_testing import ArrayCountingEnv, CountingEnv, assert_equal_data

ENVS = {
    "rows": lambda: SerialEnv(2, ArrayCountingEnv),
    "transformed": lambda: TransformedEnv(SerialEnv(2, ArrayCountingEnv), StepCounter()),
    "tensordicts": CountingEnv,
}


@pytest.mark.parametrize("make", ENVS.values(), ids=ENVS)
@pytest.mark.parametrize("compact", [False, True])
def test_batches_are_written_to_memory_given_after_the_first_step(make, compact):
    settings = {"frames_per_batch": 12, "seed": 3, "compact_obs": compact, "return_same_td": True}
    with Collector(make(), **settings) as here, Collector(make(), **settings) as there:
        backend = there.backend
        assert isinstance(backend, LocalBackend)
        spec = backend.prepare()
        memory = {
            key: np.zeros(spec[key].shape, torch.zeros(0, dtype=spec[key].dtype).numpy().dtype)
            for key in spec.keys(True, True)
        }
        tensors = {key: torch.from_numpy(array) for key, array in memory.items()}
        backend.batches.keep_batches_in(tensors, memory)

        for _ in range(3):
            expected, batch = next(here), next(there)
            assert_equal_data(expected, batch)
            for key, tensor in tensors.items():
                if key[0] != "collector":
                    assert batch.get(key).data_ptr() == tensor.data_ptr()
                    assert torch.equal(tensor, expected.get(key))
