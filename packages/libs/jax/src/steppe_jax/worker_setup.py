"""Environment variables that a worker process sets before it imports JAX."""

from __future__ import annotations

import os

__all__ = ["prepare_worker"]


def prepare_worker() -> None:
    """Limit JAX to one thread, and allocate GPU memory on demand.

    Each worker process has one core, but JAX would start one thread for each core of the machine. Variables that the
    user has set are kept. If JAX has been imported already, this has no effect.

    >>> import os
    >>> from unittest import mock
    >>> from steppe_jax import prepare_worker
    >>> with mock.patch.dict(os.environ):  # a worker process calls it before it imports JAX
    ...     prepare_worker()
    ...     "intra_op_parallelism_threads=1" in os.environ["XLA_FLAGS"], os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"]
    (True, 'false')
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_cpu_multi_thread_eigen" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1".strip()
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
