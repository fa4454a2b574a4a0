"""What a worker is given of its caller's process, so that the same code does the same in both."""

from __future__ import annotations

import os
import random
import sys
import warnings
from functools import partial
from typing import Any

import cloudpickle
import numpy as np
import torch

import steppe
from steppe.imports import after_import
from steppe.registry import apply_worker_state, worker_state
from steppe.versions import apply_backends, apply_registrations, effective_backends, registrations
from steppe.workers.pickling import pickled as by_value

__all__ = ["apply", "gather"]

# The filter that stands behind all others: what no filter of the caller's names is not shown.
_QUIET = ("ignore", None, Warning, None, 0)


def gather() -> dict[str, Any]:
    """Take down what a worker that starts now has to be given; the result can be pickled."""
    filters = [(one[2].__module__, pickled) for one in warnings.filters if (pickled := _try_pickle(one)) is not None]
    if steppe.filter_warnings_subprocess:
        filters.append((Warning.__module__, cloudpickle.dumps(_QUIET)))
    return {
        "environ": dict(os.environ),
        "path": list(sys.path),
        "cwd": _folder(),
        "dtype": torch.get_default_dtype(),
        "filters": filters,
        "backends": effective_backends(),
        "registrations": registrations(by_value),
        "registry": cloudpickle.dumps(worker_state()),
    }


def apply(given: dict[str, Any], *, worker: int) -> None:
    """Make this process, worker number ``worker``, like the one that ``gather`` was called in."""
    os.environ.clear()
    os.environ.update(given["environ"])
    sys.path[:] = given["path"]
    if given["cwd"] is not None and os.path.isdir(given["cwd"]):
        os.chdir(given["cwd"])
    torch.set_default_dtype(given["dtype"])
    # Forked processes would all draw the same numbers from the global generators.
    entropy = int.from_bytes(os.urandom(4), "little")
    random.seed(entropy)
    np.random.seed(entropy)
    torch.default_generator.manual_seed(entropy)
    apply_backends(given["backends"])
    for library, records in given["registrations"].items():
        after_import(library, partial(apply_registrations, library, records))
    apply_worker_state(cloudpickle.loads(given["registry"]), worker=worker)
    _set_filters(given["filters"])


def _set_filters(given: list[tuple[str, bytes]]) -> None:
    """Take over filters of warnings, each with the module of its category and pickled.

    A category that is not loaded here is not loaded for that: its filter takes its place when it is.
    """
    found: list[Any] = []
    for module, pickled in given:
        if module not in sys.modules:
            after_import(module, partial(_add_filter, pickled, found, len(found)))
            continue
        try:
            found.append(cloudpickle.loads(pickled))
        except Exception:
            continue  # about a class that this process cannot import, and so never meets
    _filters()[:] = found
    _filters_changed()


def _add_filter(pickled: bytes, found: list[Any], before: int) -> None:
    """Put a filter before the first of those that stand behind it in the caller."""
    try:
        one = cloudpickle.loads(pickled)
    except Exception:
        return
    filters = _filters()
    if one not in filters:
        behind = {id(other) for other in found[before:]}
        places = [place for place, other in enumerate(filters) if id(other) in behind]
        filters.insert(places[0] if places else len(filters), one)
        _filters_changed()


def _filters() -> list[Any]:
    """The filters that hold, which are a list, whatever their type is said to be."""
    filters: list[Any] = warnings.filters  # type: ignore[assignment]
    return filters


def _filters_changed() -> None:
    if hasattr(warnings, "_filters_mutated"):
        warnings._filters_mutated()


def _folder() -> str | None:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None


def _try_pickle(value: Any) -> bytes | None:
    try:
        return bytes(cloudpickle.dumps(value))
    except Exception:
        return None
