"""The launchers of nodes: processes, jobs of submitit, and ranks of torchrun."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from steppe.errors import LibraryMissing
from steppe_distributed import DistributedDataCollector, DistributedSyncDataCollector, submitit_delayed_launcher
from steppe_distributed.launchers import SubmititLauncher
from steppe_distributed.rendezvous import NodeError
from steppe_testing import ArrayCountingEnv
from tests.distributed.in_time import in_time
from tests.limits import CHILD


def nodes() -> list[int]:
    """The processes of nodes that this process has started."""
    return [child.pid for child in psutil.Process().children() if "steppe_distributed" in " ".join(child.cmdline())]


def test_nodes_end_with_their_collector() -> None:
    with DistributedDataCollector(ArrayCountingEnv, num_collectors=2, frames_per_batch=4) as collector:
        next(collector)
        assert len(nodes()) == 2
    assert nodes() == []


@pytest.mark.exhaustive
def test_nodes_end_when_the_process_of_the_collector_is_killed() -> None:
    script = (
        "import os, signal\n"
        "import psutil\n"
        "from steppe_distributed import DistributedDataCollector\n"
        "from steppe_testing import ArrayCountingEnv\n"
        "collector = DistributedDataCollector(ArrayCountingEnv, frames_per_batch=4)\n"
        "next(collector)\n"
        "print(*[child.pid for child in psutil.Process().children()], flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=CHILD, check=False)

    pids = [int(word) for word in result.stdout.split()]
    assert pids, result.stderr
    _, alive = psutil.wait_procs([psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)], timeout=CHILD)
    assert not alive


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        port = listening.getsockname()[1]
        with in_time(), pytest.raises(NodeError, match=rf"port {port} of 127.0.0.1 cannot be opened.*tcp_port="):
            DistributedDataCollector(ArrayCountingEnv, frames_per_batch=4, tcp_port=port)


def test_a_node_that_cannot_start_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(NodeError, match=r"nodes \[1\] of 1.*ended with status 1"):
        DistributedDataCollector(ArrayCountingEnv, frames_per_batch=4)


def test_a_program_that_torchrun_did_not_start_gets_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(NodeError, match=r"started with `torchrun .*launcher='mp' otherwise"):
        DistributedDataCollector(ArrayCountingEnv, frames_per_batch=4, launcher="torchrun")


def test_delayed_nodes_without_their_launcher_raise_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STEPPE_LAUNCH_FOLDER", raising=False)
    with pytest.raises(NodeError, match=r"decorated with submitit_delayed_launcher\(num_jobs="):
        DistributedDataCollector(ArrayCountingEnv, frames_per_batch=4, launcher="submitit_delayed")


def test_submitit_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(LibraryMissing, match=r"pip install 'steppe-distributed\[submitit\]'"):
        DistributedDataCollector(ArrayCountingEnv, frames_per_batch=4, launcher="submitit")


def test_ranks_of_torchrun_become_nodes(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from steppe_distributed import DistributedSyncDataCollector\n"
        "from steppe_testing import ArrayCountingEnv\n"
        "arguments = dict(num_collectors=2, frames_per_batch=8, launcher='torchrun')\n"
        "with DistributedSyncDataCollector(ArrayCountingEnv, **arguments) as collector:\n"
        "    print('collected', tuple(next(collector).shape), flush=True)\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3", str(program)]
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=CHILD, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )

    assert result.returncode == 0, result.stderr
    assert result.stdout.count("collected (2, 4)") == 1


@pytest.mark.exhaustive
def test_jobs_of_submitit_collect(tmp_path: Path) -> None:
    pytest.importorskip("submitit")
    jobs: dict[str, Any] = {"folder": str(tmp_path), "cluster": "local"}
    arguments: dict[str, Any] = {"frames_per_batch": 8, "launcher": "submitit", "slurm_kwargs": jobs}
    with DistributedSyncDataCollector(ArrayCountingEnv, num_collectors=2, **arguments) as collector:
        assert next(collector).shape == (2, 4)
    assert list(tmp_path.glob("*_log.out"))


def test_options_of_jobs_reach_the_batch_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """submitit writes the file that it would hand to Slurm, which is not installed here."""
    pytest.importorskip("submitit")
    binaries = tmp_path / "bin"
    binaries.mkdir()
    for name in ("srun", "sbatch"):
        (binaries / name).write_text("#!/bin/sh\n")
        (binaries / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{binaries}{os.pathsep}{os.environ['PATH']}")
    launcher = SubmititLauncher(
        {"folder": str(tmp_path), "cluster": "slurm", "slurm_partition": "cpu", "timeout_min": 17, "slurm_mem": "5GB"}
    )
    executor = launcher._executor()._executor
    text = executor._make_submission_file_text("python -u -m job", "abc")

    assert not launcher.is_local
    for line in ("--partition=cpu", "--time=17", "--mem=5GB", "--cpus-per-task=8"):
        assert f"#SBATCH {line}" in text


def test_delayed_jobs_wait_for_their_program(tmp_path: Path) -> None:
    pytest.importorskip("submitit")

    @submitit_delayed_launcher(num_jobs=2, folder=str(tmp_path), cluster="local")
    def main(frames: int) -> tuple[int, ...]:
        arguments: dict[str, Any] = {"frames_per_batch": frames, "launcher": "submitit_delayed"}
        with DistributedSyncDataCollector(ArrayCountingEnv, num_collectors=2, **arguments) as collector:
            return tuple(next(collector).shape)

    assert main(10) == (2, 5)
