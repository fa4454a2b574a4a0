"""Peer: a process of another interpreter that runs slices of a benchmark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

__all__ = ["Peer", "end"]

PEER = Path(__file__).with_name("peer_torchrl.py")


class Peer:
    """A process with TorchRL that runs slices on request."""

    def __init__(
        self, python: str, name: str, steps: int, *, kind: str = "step", extra: list[str] | None = None
    ) -> None:
        self.process = subprocess.Popen(
            [python, str(PEER), kind, name, *(extra or []), str(steps)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if kind == "failure" else None,  # its workers print their errors
            text=True,
        )

    def slice(self, label: str) -> float:
        """Run one slice in the process."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(label) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit("the peer's process ended: does its interpreter have torchrl and gymnasium?")
        return float(json.loads(line))

    def close(self) -> None:
        """End the process."""
        end(self.process)


def end(process: subprocess.Popen[str]) -> None:
    """End a process that reads lines until the end of its input."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
