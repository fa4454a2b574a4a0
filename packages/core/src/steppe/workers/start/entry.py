"""What a process does first when it is to be a worker, however it was started."""

from __future__ import annotations

import os
import signal
import sys

from steppe.systems import name_process

__all__ = ["begin"]


def begin(fds: list[int]) -> None:
    """Be a worker, and end with it; never returns."""
    status = 1
    try:
        # Ctrl-C is for the caller, which then decides what becomes of its workers.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        name_process("steppe-worker")
        import torch

        # A child of a process whose OpenMP pool was in use hangs in its first parallel operation otherwise.
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
            # The caller waits for this. An ending process gives its memory back first, which takes it a while.
            os.close(fds[0])
        except OSError:
            pass
        os._exit(status)
