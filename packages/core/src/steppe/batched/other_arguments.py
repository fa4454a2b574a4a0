"""Arguments that batches of other libraries have, and what stands in their place here."""

from __future__ import annotations

import difflib
from typing import Any, NoReturn

__all__ = ["refuse"]

_INSTEAD = {
    "shared_memory": "rows are in shared memory wherever processes need it: leave it out",
    "memmap": "rows are in shared memory wherever processes need it: leave it out",
    "share_individual_td": "rows that differ are stacked lazily by themselves: leave it out",
    "use_buffers": "whether data has a fixed place is found out from the specs: leave it out",
    "metadata_from_workers": "specs always come from the workers: leave it out",
    "consolidate": "rows in messages are sent as they are: leave it out",
    "pin_memory": "memory is page-locked where data goes to a GPU: leave it out",
    "non_blocking": "a device gets its data in one transfer a step: leave it out",
    "policy_proof": "batches do not depend on a policy: leave it out",
    "auto_wrap_envs": "lambdas travel by value as they are: leave it out",
    "daemon": "workers end with this process: leave it out",
    "shutdown_timeout": "close() waits 5 s for environments to close, then ends their workers: leave it out",
    "allow_step_when_done": "a step after the end is the environment's choice: leave it out",
    "num_sub_threads": "a worker uses one thread: call torch.set_num_threads in the factory for more",
    "serial_for_single": "make a SerialEnv for one environment",
    "num_processes": "it is an argument of ParallelEnv",
    "step_timeout": "it is an argument of ParallelEnv",
    "mp_start_method": "it is an argument of ParallelEnv",
    "caller_share": "it is an argument of ParallelEnv",
    "num_threads": "it is an argument of ParallelEnv",
}


def refuse(cls: type, unknown: dict[str, Any], known: list[str]) -> NoReturn:
    """Raise a TypeError for the first of some arguments that a batch does not take."""
    name = next(iter(unknown))
    mend = _INSTEAD.get(name)
    if mend is None:
        close = difflib.get_close_matches(name, known, 1)
        mend = f"did you mean {close[0]!r}?" if close else f"it takes {', '.join(known)}."
        raise TypeError(f"{cls.__name__} has no argument {name!r}: {mend}")
    raise TypeError(f"{cls.__name__} has no argument {name!r}: {mend}.")
