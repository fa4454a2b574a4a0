"""Imports of the caller's modules in a server process: whether workers may be forked afterwards, and until when."""

from __future__ import annotations

import importlib
import os
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
from steppe.workers.process_settings import ProcessSettings
from steppe.workers.start.preload import unsafe_roots

__all__ = ["ImportResult", "import_modules", "is_current"]


class ImportResult(NamedTuple):
    """The result of :func:`import_modules`.

    Attributes:
        problem: why no worker may be forked after the import; empty if workers may be forked.
        files: the files that were imported, each with its time of modification and size.
        read: the environment variables that the modules have read, with their values; None if they may have read all.
    """

    problem: str
    files: dict[str, tuple[int, int]]
    read: dict[str, str | None] | None


def is_current(result: ImportResult, before: ProcessSettings, now: ProcessSettings) -> bool:
    """Whether an import with the settings ``before`` would give the same now: same files, settings and variables."""
    if (now.absolute_path, now.dtype) != (before.absolute_path, before.dtype):
        return False
    if result.read is None:
        if now.environ != before.environ:
            return False
    elif any(now.environ.get(name) != value for name, value in result.read.items()):
        return False
    return all(_stamp(file) == stamp for file, stamp in result.files.items())


def import_modules(names: list[str]) -> ImportResult:
    """Import modules of the caller, and find out whether workers may be forked from this process afterwards.

    A fork has the state of its parent. Threads do not survive a fork; open files, CUDA and random generators would be
    shared by all workers.
    """
    importlib.invalidate_caches()
    before, started = set(sys.modules), time.time_ns()
    threads, descriptors, random_states = n_threads(), open_descriptors(), _random_states()
    problem = ""
    read: set[str | None] = set()
    with (
        _one_blas_thread(),
        _record_variables(read),
        _record_fork_handlers() as handlers,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # workers show the warnings of their imports
        for name in names:
            try:
                importlib.import_module(name)
            except BaseException as error:
                problem = f"{name} cannot be imported: {type(error).__name__}: {error}"
                break
    new = {name: module for name, module in list(sys.modules.items()) if name not in before}
    if not problem:
        if n_threads() > threads:
            problem = "a thread runs after the import"
        elif open_descriptors() - descriptors:
            problem = "a file or connection is open after the import"
        elif torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            problem = "CUDA is initialized"
        elif roots := unsafe_roots(new):
            problem = f"{', '.join(sorted(roots))} cannot be forked"
        elif handlers:
            problem = f"{handlers[0]} registers a function that is called before a fork"
        elif _random_states() != random_states:
            problem = "random numbers were drawn or seeded"
        else:
            problem = next(filter(None, map(_problem_of, new.values())), "")
    files = {}
    for module in new.values():
        file = getattr(module, "__file__", None)
        if isinstance(file, str):
            modified, size = _stamp(file)
            # A file that was edited during the import may have been read before or after that: size -1 fits no file.
            files[file] = (modified, size if modified < started else -1)
    values = {name: os.environ.get(name) for name in read if name is not None}
    return ImportResult(problem, files, None if None in read else values)


def _stamp(file: str) -> tuple[int, int]:
    """Time of modification and size of a file; zeros if it does not exist."""
    try:
        stat = os.stat(file)
    except OSError:
        return 0, 0
    return stat.st_mtime_ns, stat.st_size


def _problem_of(module: ModuleType) -> str:
    """Why workers must not share a module: it says so, or has a random generator. Empty if they may."""
    if getattr(module, "__name__", "").partition(".")[0] in sys.stdlib_module_names:
        return ""
    values = dict(vars(module))
    if values.get("fork_safe", True) is False:
        return f"{module.__name__} says fork_safe = False"
    # Each worker seeds these two anew.
    reseeded = (getattr(np.random.seed, "__self__", None), torch.default_generator)
    for name, value in values.items():
        kinds = (np.random.Generator, np.random.RandomState, torch.Generator, random.Random)
        seeded = isinstance(value, kinds) and not isinstance(value, random.SystemRandom)
        if seeded and not any(value is each for each in reseeded):
            return f"{module.__name__}.{name} is a generator, which would give the same numbers in all workers"
    return ""


def _random_states() -> list[object]:
    """The states of the global random generators, to be compared."""
    numpy_state = [part.tolist() if isinstance(part, np.ndarray) else part for part in np.random.get_state()]
    return [random.getstate(), numpy_state, torch.get_rng_state().tolist()]


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    """Let a BLAS library that is loaded meanwhile start no threads, unless the caller's environment says how many.

    SciPy, for example, loads an OpenBLAS of its own, whose threads would forbid forks. Workers use one thread anyway.
    """
    unset = [name for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS") if name not in os.environ]
    os.environ.update(dict.fromkeys(unset, "1"))
    try:
        yield
    finally:
        for name in unset:
            del os.environ[name]


@contextmanager
def _record_variables(read: set[str | None]) -> Iterator[None]:
    """Add the environment variables that Python code reads to ``read``; None if it iterates over all of them."""
    environ: Any = os.environ
    kind = type(environ)

    class Recording(kind):  # type: ignore[misc, valid-type]
        def __getitem__(self, key: str) -> str:
            read.add(key)
            value: str = super().__getitem__(key)
            return value

        def __iter__(self) -> Iterator[str]:
            read.add(None)
            return iter(super().__iter__())

    environ.__class__ = Recording
    try:
        yield
    finally:
        environ.__class__ = kind


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
