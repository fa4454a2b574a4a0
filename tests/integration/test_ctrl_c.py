"""Ctrl-C in a terminal while a job runs: the program cancels the job, shuts the collector down, and ends."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from tests.limits import CHILD

pytestmark = pytest.mark.programs

PROGRAM = """
import fcntl, sys, termios, time

import gymnasium
from steppe import Collector, GymWrapper


class Slow(gymnasium.Wrapper):
    def step(self, action):
        print("step", flush=True)
        time.sleep(0.3)
        return self.env.step(action)


def make():
    return GymWrapper(Slow(gymnasium.make("Pendulum-v1", max_episode_steps=10**9)))


if __name__ == "__main__":
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # Ctrl-C of this terminal is for this program and its workers
    collector = Collector(make, num_workers=int(sys.argv[1]), frames_per_batch=20)
    job = collector.execute(n_steps=10**9)
    try:
        job.result()
    except KeyboardInterrupt:
        job.cancel()
        collector.shutdown()
        print("partial:", job.partial(), "progress:", job.progress())
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_a_job_is_cancelled_after_ctrl_c_in_a_terminal(workers, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    keyboard, terminal = pty.openpty()
    program = subprocess.Popen(
        [sys.executable, str(path), str(workers)],
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert program.stdout.readline().startswith("step")
        os.write(keyboard, b"\x03")
        out, error = program.communicate(timeout=CHILD)
    finally:
        program.kill()
        os.close(keyboard)
        os.close(terminal)

    assert (program.returncode, error) == (0, "")
    assert out.endswith(f"partial: None progress: (0, {max(workers, 1)})\n")
