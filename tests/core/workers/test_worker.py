"""The process of a worker, from its start to its end."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.limits import CHILD

PROGRAM = """
from steppe import ParallelEnv
from steppe_testing import {kind}

with ParallelEnv(3, {kind}, num_processes=2, mp_start_method={method!r}) as env:
    env.rollout(4)
print("closed")
"""


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
@pytest.mark.parametrize("kind", ["ArrayCountingEnv", "TextCountingEnv"])
def test_workers_leave_no_socket_to_the_garbage_collector(kind, method):
    """``-X dev`` shows a ResourceWarning of any process; workers inherit it, and write to the same stderr."""
    program = PROGRAM.format(kind=kind, method=method)
    command = [sys.executable, "-X", "dev", "-W", "error::ResourceWarning", "-c", program]
    run = subprocess.run(command, capture_output=True, text=True, timeout=CHILD)

    assert run.stdout == "closed\n", run.stderr
    assert "ResourceWarning" not in run.stderr
