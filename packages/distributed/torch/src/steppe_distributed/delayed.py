"""submitit_delayed_launcher: jobs for the nodes of a collector are started before the program that needs them."""

from __future__ import annotations

import functools
import json
import os
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from steppe_distributed.rendezvous import Meeting

__all__ = ["LAUNCH_FOLDER", "announce", "submitit_delayed_launcher"]

Result = TypeVar("Result")

#: The environment variable that tells the program where its nodes look for it.
LAUNCH_FOLDER = "STEPPE_LAUNCH_FOLDER"

#: Seconds between two looks for the program.
_LOOK = 0.5

_MAIN: dict[str, Any] = {"timeout_min": 60, "slurm_cpus_per_task": 8}
_NODES: dict[str, Any] = {"timeout_min": 60, "slurm_cpus_per_task": 8, "slurm_gpus_per_node": 0}


def submitit_delayed_launcher(
    num_jobs: int,
    framework: str = "distributed",
    backend: str = "gloo",
    tcpport: int | str | None = None,
    submitit_main_conf: Mapping[str, Any] | None = None,
    submitit_collection_conf: Mapping[str, Any] | None = None,
    *,
    folder: str = "steppe_jobs",
    cluster: str | None = None,
) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Run a function as a job of submitit, with jobs for the nodes of its collector beside it.

    The decorated function makes a collector with ``launcher="submitit_delayed"`` for ``num_jobs`` nodes. All jobs are
    submitted at once, and each node waits until the function has made its collector. The jobs share a folder.

    Args:
        num_jobs: the number of nodes.
        framework, backend, tcpport: accepted for programs of TorchRL: the collector says how nodes are called.
        submitit_main_conf: options of the job of the function, as ``executor.update_parameters`` takes them.
        submitit_collection_conf: options of the jobs of nodes.
        folder: for the logs of jobs, and for the address of the collector; all machines see it.
        cluster: the kind of executor; None: Slurm where there is one, otherwise processes of this machine.

    Returns:
        A decorator. The decorated function returns what the function returns, when its job is done.

    Raises:
        LibraryMissing: submitit is not installed.

    Examples:
        >>> from steppe import DistributedSyncDataCollector, submitit_delayed_launcher
        >>> @submitit_delayed_launcher(num_jobs=2)
        ... def main():
        ...     with DistributedSyncDataCollector(
        ...         ["gym:CartPole-v1"] * 2, frames_per_batch=200, launcher="submitit_delayed"
        ...     ) as collector:
        ...         return next(collector).shape
        >>> main()  # doctest: +SKIP
        torch.Size([2, 100])
    """

    def decorate(function: Callable[..., Result]) -> Callable[..., Result]:
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Result:
            from steppe_distributed.launchers import submitit

            meeting_folder = (Path(folder) / f"meeting-{uuid.uuid4().hex[:8]}").resolve()
            meeting_folder.mkdir(parents=True)
            executor = submitit().AutoExecutor(folder=folder, cluster=cluster)
            executor.update_parameters(**{**_MAIN, **(submitit_main_conf or {})})
            main = executor.submit(_run_main, function, args, kwargs, str(meeting_folder))
            executor.update_parameters(**{**_NODES, **(submitit_collection_conf or {})})
            nodes = [executor.submit(_run_node, str(meeting_folder), rank) for rank in range(1, num_jobs + 1)]
            try:
                result: Result = main.result()
                return result
            finally:
                (meeting_folder / "ended").touch()
                for node in nodes:
                    node.cancel(check=False)

        return run

    return decorate


def _run_main(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], folder: str) -> Any:
    os.environ[LAUNCH_FOLDER] = folder
    return function(*args, **kwargs)


def announce(folder: Path, meeting: Meeting) -> None:
    """Tell the nodes that wait where to meet."""
    written = folder / "address.part"
    written.write_text(json.dumps(asdict(meeting)), encoding="utf-8")
    written.rename(folder / "address.json")


def _run_node(folder: str, rank: int) -> None:
    """Wait for the address of the collector, and collect for it."""
    from steppe_distributed.node import serve

    address = Path(folder) / "address.json"
    while not address.exists():
        if (Path(folder) / "ended").exists():
            return
        time.sleep(_LOOK)
    serve(Meeting(**json.loads(address.read_text(encoding="utf-8"))), rank)
