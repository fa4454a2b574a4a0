"""What a worker process does before it works: functions that print or raise replace ``work``."""

from __future__ import annotations

import subprocess
import sys

from tests.limits import CHILD

PROGRAM = """
import os, signal, sys
import steppe.workers.worker as worker
from steppe.workers.start.entry import begin

def look(fds):
    import torch
    handlers = [signal.getsignal(number).name for number in (signal.SIGINT, signal.SIGTERM)]
    print(*handlers, torch.get_num_threads(), fds == [end])

def fail(fds):
    raise ValueError("no such environment")

end = os.open(os.devnull, os.O_RDONLY)
worker.work = globals()[sys.argv[1]]
begin([end])
"""


def run(work: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, work]
    return subprocess.run(command, capture_output=True, text=True, timeout=CHILD)


def test_a_worker_ignores_ctrl_c_and_computes_in_one_thread() -> None:
    done = run("look")

    assert (done.returncode, done.stdout, done.stderr) == (0, "SIG_IGN SIG_DFL 1 True\n", "")


def test_a_worker_that_raises_prints_the_error_and_fails() -> None:
    done = run("fail")

    assert done.returncode == 1
    assert done.stderr.endswith("ValueError: no such environment\n")
