"""What a worker process is told before it imports JAX."""

from __future__ import annotations

import os

__all__ = ["prepare_worker"]


def prepare_worker() -> None:
    """Let JAX compute on one thread of this process, and take memory of a GPU as it needs it.

    Each worker process has a core to itself, where JAX would start as many threads as the machine has cores. What the
    user has set is left as it is. Without effect where JAX has been imported.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_cpu_multi_thread_eigen" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1".strip()
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
