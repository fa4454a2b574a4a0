"""Says where JAX cannot be used: in a process that was forked from one that has loaded it."""

from __future__ import annotations

import os

from steppe.errors import NotSupported

__all__ = ["check_not_forked"]

#: The process that has loaded this module, and JAX with it.
_LOADED_IN = os.getpid()


def check_not_forked() -> None:
    """Refuse to go on in a forked copy of a process that has loaded JAX, where JAX would wait for threads for ever.

    Raises:
        NotSupported: this is such a process.
    """
    if os.getpid() != _LOADED_IN:
        raise NotSupported(
            f"This process was forked from one that has loaded JAX (process {_LOADED_IN}): here JAX would wait for "
            "threads that are there. Leave mp_start_method='fork' out: workers then come from a server that has not "
            "loaded JAX; or pass mp_start_method='spawn'."
        )
