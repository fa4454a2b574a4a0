"""Detect a process that was forked from one that had loaded JAX."""

from __future__ import annotations

import os

from steppe.errors import NotSupported

__all__ = ["check_not_forked"]

#: The id of the process that imported this module, and JAX with it.
_LOADED_IN = os.getpid()


def check_not_forked() -> None:
    """Raise an error if this process was forked after JAX was loaded.

    JAX would hang in such a process. A fork does not copy threads, so JAX would wait forever for threads that exist
    only in the parent process.

    Raises:
        NotSupported: this process was forked from one that had loaded JAX.
    """
    if os.getpid() != _LOADED_IN:
        raise NotSupported(
            f"This process was forked from process {_LOADED_IN}, which had loaded JAX. JAX would hang here, because it "
            "would wait for threads of that process. Leave out mp_start_method='fork': workers then start from a "
            "server that has not loaded JAX. Or pass mp_start_method='spawn'."
        )
