"""Imports of the caller's modules in a server process: whether workers may be forked afterwards, and until when."""

from __future__ import annotations

import importlib
import os
import pickle
import random
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch

from steppe.systems import n_threads, open_descriptors
from steppe.workers.start.preload import unsafe_roots

__all__ = ["ImportResult", "import_modules"]


class ImportResult(NamedTuple):
    """The result of :func:`import_modules`.

    Attributes:
        is_safe: whether workers may be forked after the import.
        files: the files that were imported, each with its time of modification and size.
    """

    is_safe: bool
    files: dict[str, tuple[int, int]]

    @property
    def is_current(self) -> bool:
        """Whether no file has changed since the import."""
        return all(_stamp(file) == stamp for file, stamp in self.files.items())


def import_modules(names: list[str]) -> ImportResult:
    """Import modules of the caller, and find out whether workers may be forked from this process afterwards.

    A fork has the state of its parent. Threads do not survive a fork; open files, CUDA and random generators would be
    shared by all workers.
    """
    importlib.invalidate_caches()
    before, started = set(sys.modules), time.time_ns()
    threads, descriptors, random_states = n_threads(), open_descriptors(), _random_states()
    failed = False
    with _record_fork_handlers() as handlers, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # workers show the warnings of their imports
        for name in names:
            try:
                importlib.import_module(name)
            except BaseException as error:
                # A name of a module that was made at run time is no reason against the others.
                failed = failed or not (isinstance(error, ModuleNotFoundError) and error.name == name)
    new = {name: module for name, module in list(sys.modules.items()) if name not in before}
    is_safe = not (
        failed
        or n_threads() > threads
        or open_descriptors() - descriptors
        or torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        or unsafe_roots(new)
        or handlers
        or _random_states() != random_states
        or any(map(_must_not_be_shared, new.values()))
    )
    files = {}
    for module in new.values():
        file = getattr(module, "__file__", None)
        if isinstance(file, str):
            modified, size = _stamp(file)
            # A file that was edited during the import may have been read before or after that: size -1 fits no file.
            files[file] = (modified, size if modified < started else -1)
    return ImportResult(is_safe, files)


def _stamp(file: str) -> tuple[int, int]:
    """Time of modification and size of a file; zeros if it does not exist."""
    try:
        stat = os.stat(file)
    except OSError:
        return 0, 0
    return stat.st_mtime_ns, stat.st_size


def _must_not_be_shared(module: ModuleType) -> bool:
    """Whether a module says that workers must not share it, or has a generator, which would repeat its numbers."""
    if getattr(module, "__name__", "").partition(".")[0] in sys.stdlib_module_names:
        return False
    values = dict(vars(module))
    if values.get("fork_safe", True) is False:
        return True
    # Each worker seeds these two anew.
    reseeded = (getattr(np.random.seed, "__self__", None), torch.default_generator)
    kinds = (np.random.Generator, np.random.RandomState, torch.Generator, random.Random)
    return any(
        isinstance(value, kinds)
        and not isinstance(value, random.SystemRandom)
        and not any(value is each for each in reseeded)
        for value in values.values()
    )


def _random_states() -> bytes:
    """The states of the global random generators, to be compared."""
    return pickle.dumps((random.getstate(), np.random.get_state(), torch.get_rng_state().numpy()))


@contextmanager
def _record_fork_handlers() -> Iterator[list[str]]:
    """Yield a list that gets the names of modules that register a function to be called before a fork, as JAX does."""
    modules: list[str] = []
    register: Callable[..., None] = os.register_at_fork

    def record(**handlers: Any) -> None:
        name = sys._getframe(1).f_globals.get("__name__", "?")
        if "before" in handlers and name.partition(".")[0] not in sys.stdlib_module_names:
            modules.append(name)
        register(**handlers)

    os.register_at_fork = record
    try:
        yield modules
    finally:
        os.register_at_fork = register
