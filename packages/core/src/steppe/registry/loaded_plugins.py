"""Plugins: imports each plugin once, validates its hooks and calls them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ..errors import PluginBroken, PluginError, PluginIncompatible
from .records import Kind, PluginRecord

if TYPE_CHECKING:
    from . import callers

Key = tuple[Kind, str, str]
"""Identifies a plugin: kind, name and distribution."""


def key_of(record: PluginRecord) -> Key:
    """Return the key that identifies a plugin."""
    return record.kind, record.name, record.dist


class Plugins:
    """Imports plugins and calls their hooks.

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
        self._callers: callers.Callers | None = None
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
        """Call a hook of an imported plugin."""
        return self._hooks().call(plugin, hook, **arguments)

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
        from . import callers, loader

        start = time.perf_counter()
        plugin = loader.load(record)
        if record.kind == "env":
            with self._lock:
                self._hooks().add(record, plugin)
        if callers.tracing():
            spent = (time.perf_counter() - start) * 1e3
            callers.trace(f"loaded {record.label} from {record.target} ({spent:.1f} ms)")
        return plugin

    def _prepare(self, kind: Kind, plugin: object) -> None:
        if self._worker is not None and kind == "env" and id(plugin) not in self._ready:
            self._ready.add(id(plugin))
            self.call(plugin, "steppe_worker_setup", worker=self._worker)

    def _hooks(self) -> callers.Callers:
        with self._lock:
            if self._callers is None:
                # Imported here, because finding plugins does not need pluggy.
                from . import callers

                self._callers = callers.Callers(steppe_version=self._steppe_version())
            return self._callers

    def enter_worker(self, worker: int | None) -> None:
        """Call ``steppe_worker_setup`` of each imported plugin, and of others before their first use."""
        with self._lock:
            self._worker = worker
            loaded = list(self._loaded.items())
        for (kind, _, _), plugin in loaded:
            self._prepare(kind, plugin)
