"""Rows that are more than the memory of their process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.limits import CHILD

#: Shared mappings of files are outside of the limit, which stands for the memory of a machine: the system takes their
#: pages back when it runs short.
PROGRAM = """
import resource, sys
from itertools import islice
from pathlib import Path
import numpy as np
import torch
from tensordict import TensorDict
from steppe_replay import LazyMemmapStorage, ReplayBuffer, SliceSampler, iter_trajectories

N, CHUNK, LENGTH = 10_000_000, 100_000, 250
ONES = torch.ones(15, dtype=torch.float64)
data = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmData"))
limit = int(data.split()[1]) * 1024 + int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
try:
    np.ones((N, 16))
    raise SystemExit("the rows fit into memory")
except MemoryError:
    pass


def rows(first, n):
    number = torch.arange(first, first + n)
    done = (number % LENGTH == LENGTH - 1)[:, None]
    return TensorDict({"number": number, "obs": number[:, None] * ONES, "next": {"done": done}}, [n])


def check(sample):
    assert torch.equal(sample["obs"], sample["number"][:, None] * ONES)


def opened(**kwargs):
    return ReplayBuffer(storage=LazyMemmapStorage(N, scratch_dir=sys.argv[1], existsok=True), batch_size=1000, **kwargs)


buffer = opened()
for first in range(0, N + 3 * CHUNK, CHUNK):
    buffer.extend(rows(first, CHUNK))
assert len(buffer) == N and buffer.write_count == N + 3 * CHUNK
seen = torch.cat([sample["number"] for sample in (buffer.sample() for _ in range(50)) if check(sample) is None])
assert seen.min() >= 3 * CHUNK and seen.max() < N + 3 * CHUNK
assert np.histogram(seen, 10, (3 * CHUNK, N + 3 * CHUNK))[0].min() > 4500
del buffer

buffer = opened(sampler=SliceSampler(num_slices=10))
assert len(buffer) == N
check(buffer[7_000_000:7_000_100])
sample = buffer.sample()
check(sample)
number = sample["number"].reshape(10, 100)
assert torch.equal(number, number[:, :1] + torch.arange(100))
assert torch.equal(number[:, 0] // LENGTH, number[:, -1] // LENGTH)
first = next(iter_trajectories(Path(sys.argv[1])))
assert len(first) == LENGTH
check(first)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits the private memory as Linux does")
def test_ten_million_rows_are_larger_than_memory(tmp_path: Path) -> None:
    """1.3 GB of rows, with less than half of it as memory: written, sampled, opened again, and read."""
    limit = 600 << 20
    try:
        result = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(tmp_path), str(limit)], capture_output=True, text=True, timeout=CHILD
        )
        assert result.returncode == 0, result.stderr
        assert (tmp_path / "rows.bin").stat().st_size > 2 * limit
    finally:
        (tmp_path / "rows.bin").unlink(missing_ok=True)
