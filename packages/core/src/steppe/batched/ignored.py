"""Arguments of TorchRL's batches that have no effect, and what steppe does instead."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from steppe.arguments import ignored_argument, unknown_argument

__all__ = ["IGNORED", "IGNORED_IN_ONE_PROCESS", "take_ignored"]

#: Name to (default value when read, what steppe does instead).
IGNORED: dict[str, tuple[Any, str]] = {
    "shared_memory": (True, "rows are in shared memory wherever processes need it"),
    "memmap": (False, "rows are in shared memory wherever processes need it"),
    "share_individual_td": (None, "rows that differ are stacked lazily, all others are contiguous"),
    "use_buffers": (None, "the specs tell whether data has a fixed place in memory"),
    "metadata_from_workers": (True, "specs always come from the workers"),
    "consolidate": (True, "data without a fixed place is sent as it is"),
    "pin_memory": (False, "memory is page-locked where data goes to a GPU"),
    "non_blocking": (True, "a device gets its data in one transfer a step"),
    "policy_proof": (None, "a batch does not depend on a policy"),
    "auto_wrap_envs": (True, "lambdas and closures are sent by value as they are"),
    "daemon": (True, "workers end when this process does"),
    "allow_step_when_done": (False, "a step after the end of an episode is the environment's choice"),
    "serial_for_single": (
        False,
        "a constructor returns its own class; SerialEnv(1, make) steps one environment without a worker",
    ),
}

_NO_WORKERS = "a SerialEnv has no workers"
#: Arguments of workers, which have no effect on a SerialEnv.
IGNORED_IN_ONE_PROCESS: dict[str, tuple[Any, str]] = {
    "num_threads": (None, f"{_NO_WORKERS}, and torch keeps the threads that it has"),
    "num_sub_threads": (1, _NO_WORKERS),
    "mp_start_method": (None, _NO_WORKERS),
    "shutdown_timeout": (10.0, _NO_WORKERS),
}

# Arguments of ParallelEnv that are errors for other classes: the caller expects processes.
_OF_PROCESSES = ("num_processes", "step_timeout", "caller_share")


def take_ignored(
    owner: type, arguments: dict[str, Any], ignored: dict[str, tuple[Any, str]], known: Iterable[str]
) -> dict[str, Any]:
    """Warn about arguments that have no effect, and return them.

    Args:
        owner: the class that the caller passes them to.
        arguments: name to value.
        ignored: the arguments that the class takes without an effect.
        known: the arguments with an effect, as suggestions for a name that does not exist.

    Raises:
        TypeError: an argument does not exist.
    """
    for name in arguments:
        if name not in ignored:
            error = unknown_argument(owner.__name__, name, [*known, *ignored])
            if "did you mean" not in str(error):
                error.args = (
                    f"{error} Arguments of the environments go into "
                    f"create_env_kwargs={{{name!r}: {arguments[name]!r}}}.",
                )
            if name in _OF_PROCESSES:
                error = TypeError(f"{owner.__name__} has no argument {name!r}: it is an argument of ParallelEnv.")
            raise error
    for name in arguments:
        ignored_argument(owner.__name__, name, ignored[name][1])
    return arguments
