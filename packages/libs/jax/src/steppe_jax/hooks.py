"""Hooks for plugins of JAX libraries.

Plugins import them into their plugin module. This module does not import torch.
"""

from __future__ import annotations

from steppe.registry import hookimpl

__all__ = ["fork_safe", "steppe_worker_setup"]

#: JAX starts threads, so a process that has used JAX must not be forked.
fork_safe = False


@hookimpl
def steppe_worker_setup(worker: int) -> None:
    """Limit JAX to one thread in a worker process."""
    from .worker_setup import prepare_worker

    prepare_worker()
