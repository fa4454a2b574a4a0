"""The settings of the caller's process that its workers take over, so that the same code does the same in both."""

from __future__ import annotations

import os
import random
import sys
import warnings
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict

import cloudpickle
import numpy as np
import torch

import steppe
from steppe.imports import after_import
from steppe.registry import apply_worker_state, worker_state
from steppe.versions import apply_backend, apply_registrations, effective_backend, registrations
from steppe.workers.pickling import pickled as by_value
from steppe.workers.process_settings import ProcessSettings

if TYPE_CHECKING:
    # Entries of warnings.filters: action, message pattern, category, module pattern, line.
    Filter = tuple[str, Any, type[Warning], Any, int]

__all__ = ["Context", "apply_context", "gather_context"]

# Behind all filters of the caller: warnings that none of them matches are not shown.
_QUIET = ("ignore", None, Warning, None, 0)


class Context(TypedDict):
    """What :func:`gather_context` returns: settings of a process, in a form that can be pickled."""

    settings: ProcessSettings
    filters: list[tuple[str, bytes]]
    gym_backend: str | None
    registrations: dict[str, dict[str, bytes]]
    registry: bytes


def gather_context() -> Context:
    """Return the settings of this process that a worker needs."""
    filters = [(entry[2].__module__, payload) for entry in warnings.filters if (payload := _try_pickle(entry))]
    if steppe.filter_warnings_subprocess:
        filters.append((Warning.__module__, cloudpickle.dumps(_QUIET)))
    return {
        "settings": ProcessSettings.now(),
        "filters": filters,
        "gym_backend": effective_backend(),
        "registrations": registrations(by_value),
        "registry": cloudpickle.dumps(worker_state()),
    }


def apply_context(context: Context, *, worker: int) -> None:
    """Give this process, worker number ``worker``, the settings that ``gather_context`` returned in another."""
    context["settings"].apply()
    # Forked processes would all draw the same numbers from the global generators.
    entropy = int.from_bytes(os.urandom(4), "little")
    random.seed(entropy)
    np.random.seed(entropy)
    torch.default_generator.manual_seed(entropy)
    apply_backend(context["gym_backend"])
    for library, records in context["registrations"].items():
        after_import(library, partial(apply_registrations, library, records))
    apply_worker_state(cloudpickle.loads(context["registry"]), worker=worker)
    warnings.filters[:] = []  # type: ignore[index]
    _set_filters(context["filters"])
    for module in {module for module, _ in context["filters"]} - sys.modules.keys():
        after_import(module, partial(_set_filters, context["filters"]))


def _set_filters(filters: list[tuple[str, bytes]]) -> None:
    """Set the caller's filters of warnings, each with the module of its category, behind those added here since.

    A category whose module is not imported here is not imported for that: the filters are set again when it is.
    """
    current: list[Filter] = warnings.filters  # type: ignore[assignment]
    loaded: list[Filter] = []
    for module, payload in filters:
        if module in sys.modules:
            with suppress(Exception):  # a category that cannot be imported here raises no warning here
                loaded.append(cloudpickle.loads(payload))
    current[:] = [entry for entry in current if entry not in loaded] + loaded
    if hasattr(warnings, "_filters_mutated"):
        warnings._filters_mutated()


def _try_pickle(value: object) -> bytes | None:
    try:
        return bytes(cloudpickle.dumps(value))
    except Exception:
        return None
