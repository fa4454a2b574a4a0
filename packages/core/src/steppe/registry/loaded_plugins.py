"""Plugins: imports each plugin once, validates its hooks and calls them."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import pluggy

from ..errors import PluginBroken, PluginError, PluginIncompatible
from . import hook_checks, hooks, loader
from .records import Kind, PluginRecord

Key = tuple[Kind, str, str]
"""Identifies a plugin: kind, name and distribution."""


def key_of(record: PluginRecord) -> Key:
    """Return the key that identifies a plugin."""
    return record.kind, record.name, record.dist


class Plugins:
    """Import plugins and call their hooks.

    Safe to use from several threads: a plugin is imported once, and different plugins do not wait for each other.

    Args:
        check: raises a PluginError if a plugin's requirements are not met.
        steppe_version: the version of steppe that is running, for errors.
    """

    def __init__(self, check: Callable[[PluginRecord], None], steppe_version: Callable[[], str]) -> None:
        self._check: Final = check
        self._steppe_version: Final = steppe_version
        self._lock: Final = threading.RLock()
        self._loaded: dict[Key, object] = {}
        self._failed: dict[Key, PluginError] = {}
        self._loading: dict[Key, threading.RLock] = {}
        self._manager: Final = pluggy.PluginManager(hooks.PROJECT)
        self._manager.add_hookspecs(hooks)
        self._worker: int | None = None
        self._ready: set[int] = set()

    def is_loaded(self, record: PluginRecord) -> bool:
        """Whether a plugin has been imported."""
        return key_of(record) in self._loaded

    def failure(self, record: PluginRecord) -> PluginError | None:
        """The error of a plugin's failed import, or None."""
        return self._failed.get(key_of(record))

    def forget_failures(self) -> None:
        """Let plugins that failed to import be imported again at their next use."""
        with self._lock:
            self._failed.clear()

    def call(self, plugin: object, hook: str, **arguments: object) -> Any:
        """Call a hook of one imported plugin; returns None if the plugin does not implement it."""
        others = [other for other in self._manager.get_plugins() if other is not plugin]
        caller = self._manager.subset_hook_caller(hook, others)
        if _traces() and caller.get_hookimpls():
            shown = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
            _trace(f"{hook}({shown}) of {self._manager.get_name(plugin)}")
        return caller(**arguments)

    def load(self, record: PluginRecord) -> Any:
        """Check a plugin's requirements, import it and validate its hooks, once; later calls return it or raise again.

        Raises:
            PluginError: the plugin cannot be used.
        """
        key = key_of(record)
        with self._lock:
            lock = self._loading.setdefault(key, threading.RLock())
        with lock:
            if key in self._loaded:
                plugin = self._loaded[key]
            elif key in self._failed:
                raise self._failed[key].with_traceback(None)
            else:
                self._check(record)  # not cached, because installing the library fixes it
                try:
                    plugin = self._import(record)
                except (PluginBroken, PluginIncompatible) as error:
                    self._failed[key] = error
                    raise
                self._loaded[key] = plugin
            self._prepare(record.kind, plugin)
            return plugin

    def _import(self, record: PluginRecord) -> Any:
        start = time.perf_counter()
        plugin = loader.load(record)
        if record.kind == "env":
            with self._lock:
                hook_checks.register(self._manager, record, plugin, steppe_version=self._steppe_version())
        if _traces():
            spent = (time.perf_counter() - start) * 1e3
            _trace(f"loaded {record.label} from {record.target} ({spent:.1f} ms)")
        return plugin

    def _prepare(self, kind: Kind, plugin: object) -> None:
        if self._worker is not None and kind == "env" and id(plugin) not in self._ready:
            self._ready.add(id(plugin))
            self.call(plugin, "steppe_worker_setup", worker=self._worker)

    def enter_worker(self, worker: int | None) -> None:
        """Call ``steppe_worker_setup`` of each imported plugin, and of others before their first use."""
        with self._lock:
            self._worker = worker
            loaded = list(self._loaded.items())
        for (kind, _, _), plugin in loaded:
            self._prepare(kind, plugin)


def _traces() -> bool:
    """Whether ``STEPPE_TRACE_PLUGINS`` is set: every import and hook call is then printed to stderr."""
    return os.environ.get("STEPPE_TRACE_PLUGINS", "") not in ("", "0")


def _trace(text: str) -> None:
    print(f"steppe: {text}", file=sys.stderr, flush=True)
