"""RPCDataCollector. torch's RPC starts once in a process, so each test has a program of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.limits import CHILD

HEAD = """
import os, signal
import torch
from tensordict.nn import TensorDictModule
from steppe import MultiSyncDataCollector, SyncDataCollector
from steppe.errors import StateError, WorkerError
from steppe_distributed import RPCDataCollector
from steppe_testing import ArrayCountingEnv, FailingEnv, assert_equal_data


def make():
    return ArrayCountingEnv(4, noise=True)


class Affine(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(1.0))

    def forward(self, observation):
        action = torch.eye(3, dtype=torch.bool)[1].expand(*observation.shape[:-1], 3)
        return action, self.weight.expand(*observation.shape[:-1], 1)


acting = TensorDictModule(Affine(), ["observation"], ["action", "used"])
"""


def run(tmp_path: Path, program: str) -> list[str]:
    """Run a program behind HEAD, and return the lines that it prints."""
    file = tmp_path / "program.py"
    file.write_text(HEAD + program, encoding="utf-8")
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=CHILD, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_nodes_collect_the_data_of_worker_processes(tmp_path: Path) -> None:
    program = """
arguments = dict(frames_per_batch=12, seed=4)
with MultiSyncDataCollector([make] * 2, acting, **arguments) as collector:
    expected = next(collector).clone()
with RPCDataCollector([make] * 2, acting, sync=True, **arguments) as collector:
    assert_equal_data(next(collector), expected)
    with torch.no_grad():
        acting.module.weight.fill_(5.0)
    collector.update_policy_weights_()
    print(next(collector)["used"].unique().tolist())
    try:
        RPCDataCollector(make, frames_per_batch=4)
    except StateError as error:
        print("runs once at a time in a process" in str(error))
with SyncDataCollector(make, frames_per_batch=6, seed=3) as collector:
    second = next(collector).clone()
with RPCDataCollector(make, frames_per_batch=6, seed=3) as collector:
    assert_equal_data(next(collector), second)
    print("again")
"""
    assert run(tmp_path, program) == ["[5.0]", "True", "again"]


@pytest.mark.exhaustive
def test_failures_of_nodes_are_named(tmp_path: Path) -> None:
    program = """
with RPCDataCollector([make, lambda: FailingEnv(at=3)], frames_per_batch=4) as collector:
    try:
        while True:
            next(collector)
    except WorkerError as error:
        print(error.worker, "failed in step 3" in str(error))
"""
    assert run(tmp_path, program) == ["1 True"]


@pytest.mark.exhaustive
def test_a_node_that_dies_is_named(tmp_path: Path) -> None:
    program = """
with RPCDataCollector([make] * 2, sync=True, frames_per_batch=8) as collector:
    next(collector)
    pid = int(collector.backend.pool.store.get("ready2"))
    os.kill(pid, signal.SIGKILL)
    try:
        while True:
            next(collector)
    except WorkerError as error:
        print(error.worker, f"process {pid}" in str(error))
"""
    assert run(tmp_path, program) == ["1 True"]
