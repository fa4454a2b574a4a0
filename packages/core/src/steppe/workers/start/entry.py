"""The first steps of a worker process, whatever its start method."""

from __future__ import annotations

import os
import signal
import sys

from steppe.systems import name_process

__all__ = ["begin"]


def begin(fds: list[int]) -> None:
    """Run as a worker with these descriptors, then exit; never returns."""
    status = 1
    try:
        # Ctrl-C reaches all processes of a terminal. Only the caller handles it, and then stops its workers or not.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        name_process("steppe-worker")
        import torch

        # Otherwise a child of a process that has used OpenMP hangs in its first parallel operation.
        torch.set_num_threads(1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        from steppe.workers.worker import work

        work(fds)
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError, AttributeError):
                continue
        try:
            # The caller waits for this, and not for the exit, in which the system first frees the memory.
            os.close(fds[0])
        except OSError:
            pass
        os._exit(status)
