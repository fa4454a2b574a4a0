"""What the plugin modules of JAX' libraries have in common; they import it as their own. Torch-free."""

from __future__ import annotations

from steppe.registry import hookimpl

__all__ = ["fork_safe", "steppe_worker_setup"]

#: JAX starts threads: a process that has used it cannot be forked.
fork_safe = False


@hookimpl
def steppe_worker_setup(worker: int) -> None:
    """Let JAX compute on the one core that a worker has."""
    from .workers import prepare_worker

    prepare_worker()
