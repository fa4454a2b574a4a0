"""Launchers: how the nodes of a collector are started."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from steppe.errors import LibraryMissing, SpecError
from steppe_distributed.delayed import LAUNCH_FOLDER, announce
from steppe_distributed.node import serve
from steppe_distributed.rendezvous import Meeting, NodeError

__all__ = ["DEFAULT_SLURM", "Launcher", "launcher_for"]

#: Options of a Slurm job of a node unless ``slurm_kwargs`` says otherwise.
DEFAULT_SLURM: dict[str, Any] = {"timeout_min": 60, "slurm_cpus_per_task": 8, "slurm_gpus_per_node": 0}


class Launcher(ABC):
    """Start nodes and end them.

    Attributes:
        is_local: whether nodes are on this machine.
    """

    is_local = False

    def store(self, name: str) -> TCPStore | None:
        """Return the store where nodes meet, if something else has opened it; None: the collector opens one."""
        return None

    @abstractmethod
    def launch(self, meeting: Meeting) -> None:
        """Start all nodes."""

    def problem(self) -> str | None:
        """Return why nodes will not come to the meeting; None if they may."""
        return None

    def end(self, rank: int, timeout: float) -> None:
        """End the process of a node that has not ended after ``timeout`` seconds."""
        return None


class LocalLauncher(Launcher):
    """Processes of this machine (``"mp"``)."""

    is_local = True

    def __init__(self) -> None:
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._log = tempfile.TemporaryFile()  # noqa: SIM115

    def launch(self, meeting: Meeting) -> None:
        for rank in range(1, meeting.size):
            command = [sys.executable, "-m", "steppe_distributed", *meeting.arguments(rank)]
            self._processes[rank] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=self._log)

    def problem(self) -> str | None:
        for rank, process in self._processes.items():
            if process.poll() is not None:
                self._log.seek(0)
                tail = self._log.read().decode(errors="replace")[-2000:]
                return f"the process of node {rank} ended with status {process.returncode}.\n{tail}"
        return None

    def end(self, rank: int, timeout: float) -> None:
        process = self._processes.pop(rank, None)
        if process is not None:
            try:
                process.wait(timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class SubmititLauncher(Launcher):
    """Jobs of submitit: of Slurm where there is one, otherwise processes of this machine (``"submitit"``).

    Args:
        slurm_kwargs: arguments of ``executor.update_parameters``, and ``folder`` for logs and ``cluster`` of the
            executor.
    """

    def __init__(self, slurm_kwargs: Mapping[str, Any] | None) -> None:
        settings = {**DEFAULT_SLURM, **(slurm_kwargs or {})}
        self._folder = str(settings.pop("folder", "steppe_jobs"))
        self._cluster = settings.pop("cluster", None)
        self._settings = settings
        self._jobs: dict[int, Any] = {}
        executor = self._executor()
        self.is_local = executor.cluster != "slurm"

    def _executor(self) -> Any:
        executor = submitit().AutoExecutor(folder=self._folder, cluster=self._cluster)
        executor.update_parameters(**self._settings)
        return executor

    def launch(self, meeting: Meeting) -> None:
        executor = self._executor()
        for rank in range(1, meeting.size):
            self._jobs[rank] = executor.submit(serve, meeting, rank)

    def problem(self) -> str | None:
        for rank, job in self._jobs.items():
            if job.done():
                return f"job {job.job_id} of node {rank} ended in state {job.state}.\n{(job.stderr() or '')[-2000:]}"
        return None

    def end(self, rank: int, timeout: float) -> None:
        job = self._jobs.pop(rank, None)
        if job is None:
            return
        end = time.monotonic() + timeout
        while not job.done() and time.monotonic() < end:
            time.sleep(0.05)
        if not job.done():
            job.cancel(check=False)


class DelayedLauncher(Launcher):
    """Nodes that ``submitit_delayed_launcher`` has started before (``"submitit_delayed"``)."""

    def launch(self, meeting: Meeting) -> None:
        folder = os.environ.get(LAUNCH_FOLDER)
        if folder is None:
            raise NodeError(
                "launcher='submitit_delayed' is for programs whose main function is decorated with "
                "submitit_delayed_launcher(num_jobs=...), which starts the nodes first. Take launcher='submitit' "
                "otherwise."
            )
        announce(Path(folder), meeting)


class TorchrunLauncher(Launcher):
    """Ranks of ``torchrun`` (``"torchrun"``): rank 0 collects, the others become nodes and end with the collector."""

    def __init__(self) -> None:
        missing = [name for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
        if missing:
            raise NodeError(
                f"launcher='torchrun' is for programs started with `torchrun --nproc-per-node=N program.py`; {missing} "
                "are not set. Take launcher='mp' otherwise."
            )
        self._size = int(os.environ["WORLD_SIZE"])

    def become_node(self, transport: str) -> None:
        """Serve the collector of rank 0 if this process has another rank, and end this process then."""
        rank = int(os.environ["RANK"])
        if rank:
            store = _torchrun_store()
            host, port = store.get("steppe_meeting").decode().split()
            serve(Meeting(host, int(port), self._size, transport), rank)
            raise SystemExit(0)

    def launch(self, meeting: Meeting) -> None:
        if meeting.size != self._size:
            raise SpecError(
                f"torchrun has started {self._size} processes, the collector and {self._size - 1} nodes, and "
                f"create_env_fn is for {meeting.size - 1} nodes."
            )
        self._store = _torchrun_store()
        self._store.set("steppe_meeting", f"{meeting.host} {meeting.port}")


def _torchrun_store() -> TCPStore:
    # torchrun serves this store itself unless TORCHELASTIC_USE_AGENT_STORE is False.
    return TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)


def launcher_for(launcher: str, slurm_kwargs: Mapping[str, Any] | None) -> Launcher:
    """Return the launcher with a name.

    Raises:
        SpecError: there is no such launcher.
    """
    if launcher == "submitit":
        return SubmititLauncher(slurm_kwargs)
    kinds: dict[str, Callable[[], Launcher]] = {
        "mp": LocalLauncher,
        "submitit_delayed": DelayedLauncher,
        "torchrun": TorchrunLauncher,
    }
    if launcher not in kinds:
        raise SpecError(f"launcher is one of {[*kinds, 'submitit']}, found {launcher!r}.")
    return kinds[launcher]()


def submitit() -> Any:
    """Return the module.

    Raises:
        LibraryMissing: it is not installed.
    """
    try:
        import submitit as module
    except ImportError as error:
        raise LibraryMissing(
            "launcher='submitit' needs submitit: pip install 'steppe-distributed[submitit]'. launcher='mp' starts "
            "processes on this machine without it."
        ) from error
    return module
