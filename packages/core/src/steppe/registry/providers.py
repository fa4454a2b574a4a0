"""Providers: which installed packages provide a name, and which of them are hidden by settings."""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Iterable, Sequence
from typing import Final

from ..errors import PluginBlocked, PluginConflict
from . import discovery, known
from .messages import joined
from .records import Kind, PluginRecord, canonical

DISABLE = "STEPPE_DISABLE_PLUGINS"
ONLY = "STEPPE_PLUGINS"


class Providers:
    """The plugins in package metadata, read once. Safe to use from several threads.

    Args:
        path: folders to search for packages; None for ``sys.path``.
        table: known names, installed or not.
    """

    def __init__(self, path: Sequence[str] | None, table: known.Known) -> None:
        self._path: Final = path
        self._table: Final = table
        self._lock: Final = threading.RLock()
        self._records: discovery.Records | None = None

    def found(self) -> discovery.Records:
        """Return every plugin, by kind and name, hidden ones too."""
        with self._lock:
            if self._records is None:
                self._records = discovery.scan(path=self._path, preferred=self._table.alternatives)
            return self._records

    def refresh(self) -> None:
        """Clear the cache, so that packages that were installed since are found."""
        with self._lock:
            importlib.invalidate_caches()
            self._records = None

    def names(self, kind: Kind) -> list[str]:
        """Return the names of a kind that are installed and not hidden, sorted."""
        return sorted(name for name, providers in self.found()[kind].items() if self.visible(providers))

    def hidden_by(self, record: PluginRecord) -> str:
        """Return the setting that hides a plugin, or ""."""
        names = {canonical(record.name), canonical(record.dist)}
        disabled, only = os.environ.get(DISABLE), os.environ.get(ONLY)
        if disabled and names & _names(disabled):
            return f"{DISABLE}={disabled}"
        if only is not None and not names & _names(only):
            return f"{ONLY}={only}"
        return ""

    def visible(self, providers: Iterable[PluginRecord]) -> list[PluginRecord]:
        """Return the plugins that are not hidden."""
        return [record for record in providers if not self.hidden_by(record)]

    def sole(self, kind: Kind, name: str) -> PluginRecord | None:
        """Return the one visible plugin with a name, None if no installed package has it.

        Raises:
            PluginConflict: two packages provide it.
            PluginBlocked: its package is hidden.
        """
        providers = self.found()[kind].get(name, [])
        visible = self.visible(providers)
        if len(visible) == 1:
            return visible[0]
        if visible:
            raise PluginConflict(self.conflict_text(kind, name, visible))
        if providers:
            raise PluginBlocked(self.blocked_text(providers[0]))
        return None

    def conflict_text(self, kind: Kind, name: str, providers: list[PluginRecord]) -> str:
        """Return the text of a PluginConflict."""
        first = self._table.of(kind).get(name)
        ordered = sorted(providers, key=lambda record: (record.dist != first, record.dist))
        count = {2: "Two", 3: "Three", 4: "Four"}.get(len(ordered), str(len(ordered)))
        what = f"'{name}:'" if kind == "env" else f"the {kind} {name!r}"
        packages = joined([f"{record.dist} {record.version} ({record.target})" for record in ordered])
        hide = [record.dist for record in ordered[1:]]
        fix = "Uninstall one, or hide it" if len(hide) == 1 else "Uninstall all but one, or hide them"
        return f"{count} packages provide {what}: {packages}. {fix}: STEPPE_DISABLE_PLUGINS={','.join(hide)}."

    def blocked_text(self, record: PluginRecord) -> str:
        """Return the text of a PluginBlocked."""
        setting = self.hidden_by(record)
        return f"{record.noun} {record.name!r} is installed ({record.dist} {record.version}) but hidden by {setting}."


def _names(setting: str) -> set[str]:
    return {canonical(part.strip()) for part in setting.split(",") if part.strip()}
