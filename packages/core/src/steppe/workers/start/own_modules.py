"""The caller's own modules in a fork server: whether workers may be forked after their import, and for how long."""

from __future__ import annotations

import importlib
import os
import random
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch

from steppe.systems import n_threads, open_descriptors
from steppe.workers.start.preload import unsafe_roots

__all__ = ["Surroundings", "Verdict", "import_own", "is_current"]


class Surroundings(NamedTuple):
    """What an import may depend on beside the files.

    Attributes:
        environ: environment variables.
        path: ``sys.path``, absolute.
        cwd: the current folder; None where it is gone.
        dtype: torch's default.
    """

    environ: dict[str, str]
    path: list[str]
    cwd: str | None
    dtype: torch.dtype

    @classmethod
    def now(cls) -> Surroundings:
        """Those of this process."""
        try:
            cwd: str | None = os.getcwd()
        except FileNotFoundError:
            cwd = None
        path = [os.path.abspath(each) if cwd is not None else each for each in sys.path]
        return cls(dict(os.environ), path, cwd, torch.get_default_dtype())

    def apply(self) -> None:
        """Make this process like that."""
        os.environ.clear()
        os.environ.update(self.environ)
        sys.path[:] = self.path
        if self.cwd is not None and os.path.isdir(self.cwd):
            os.chdir(self.cwd)
        torch.set_default_dtype(self.dtype)


class Verdict(NamedTuple):
    """What came of an import.

    Attributes:
        problem: why no worker may be forked after it; empty where it may.
        files: the files that were imported, each with its time of change and size.
        read: the environment variables that were looked at, with their values; None stands for all of them.
    """

    problem: str
    files: dict[str, tuple[int, int]]
    read: dict[str, str | None] | None


def is_current(verdict: Verdict, made_in: Surroundings, now: Surroundings) -> bool:
    """Whether an import would do the same again: files, variables that it read, path and dtype are as they were."""
    if (now.path, now.dtype) != (made_in.path, made_in.dtype):
        return False
    if verdict.read is None:
        if now.environ != made_in.environ:
            return False
    elif any(now.environ.get(name) != value for name, value in verdict.read.items()):
        return False
    return all(_stamp(file) == stamp for file, stamp in verdict.files.items())


def import_own(names: list[str]) -> Verdict:
    """Import modules of the caller, in a process that is given up where workers must not be forked after that."""
    importlib.invalidate_caches()
    before, started = set(sys.modules), time.time_ns()
    threads, descriptors, randomness = n_threads(), open_descriptors(), _randomness()
    problem = ""
    read: set[str | None] = set()
    with _environment_read(read), _handlers_of_forks() as handlers, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # workers show them, if anybody
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
            problem = f"{handlers[0]} says what is to be done before a fork"
        elif not _equal(_randomness(), randomness):
            problem = "random numbers were drawn or seeded"
        else:
            problem = next(filter(None, map(_problem_of, new.values())), "")
    files = {}
    for module in new.values():
        file = getattr(module, "__file__", None)
        if isinstance(file, str):
            time_of_change, size = _stamp(file)
            # What was edited while it was imported may be either.
            files[file] = (time_of_change, size if time_of_change < started else -1)
    values = {name: os.environ.get(name) for name in read if name is not None}
    return Verdict(problem, files, None if None in read else values)


def _stamp(file: str) -> tuple[int, int]:
    """When a file was changed, and its size; zeros where there is none."""
    try:
        found = os.stat(file)
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


def _problem_of(module: Any) -> str:
    """What a module has that every worker must have for itself; empty for nothing."""
    if getattr(module, "__name__", "").partition(".")[0] in sys.stdlib_module_names:
        return ""
    values = dict(vars(module))
    if values.get("fork_safe", True) is False:
        return f"{module.__name__} says fork_safe = False"
    # Workers seed these two anew.
    shared = (getattr(np.random.seed, "__self__", None), torch.default_generator)
    for name, value in values.items():
        kinds = (np.random.Generator, np.random.RandomState, torch.Generator, random.Random)
        own = isinstance(value, kinds) and not isinstance(value, random.SystemRandom)
        if own and not any(value is one for one in shared):
            return f"{module.__name__}.{name} is a generator, which would give the same numbers in all workers"
    return ""


def _randomness() -> tuple[Any, ...]:
    return random.getstate(), np.random.get_state(), torch.get_rng_state()


def _equal(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    numpy_equal = all(np.array_equal(a, b) for a, b in zip(one[1], other[1], strict=True))
    return one[0] == other[0] and numpy_equal and torch.equal(one[2], other[2])


@contextmanager
def _environment_read(read: set[str | None]) -> Iterator[None]:
    """Note the environment variables that Python code looks at; None for whoever takes all of them."""
    environ: Any = os.environ
    kind = type(environ)

    class Noting(kind):  # type: ignore[misc, valid-type]
        def __getitem__(self, key: str) -> str:
            read.add(key)
            value: str = super().__getitem__(key)
            return value

        def __iter__(self) -> Iterator[str]:
            read.add(None)
            return iter(super().__iter__())

    environ.__class__ = Noting
    try:
        yield
    finally:
        environ.__class__ = kind


@contextmanager
def _handlers_of_forks() -> Iterator[list[str]]:
    """Note the modules that register something to be called before a fork: they have a reason, as JAX does."""
    found: list[str] = []
    register: Callable[..., None] = os.register_at_fork

    def noting(**handlers: Any) -> None:
        name = sys._getframe(1).f_globals.get("__name__", "?")
        if "before" in handlers and name.partition(".")[0] not in sys.stdlib_module_names:
            found.append(name)
        register(**handlers)

    os.register_at_fork = noting
    try:
        yield found
    finally:
        os.register_at_fork = register
