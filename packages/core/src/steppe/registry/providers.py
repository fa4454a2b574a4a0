"""Which installed packages provide a name, and which of them are hidden by settings."""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Iterable, Sequence
from typing import Final

from ..errors import PluginBlocked, PluginConflict
from . import discovery, known, messages
from .records import Kind, PluginRecord, canonical

DISABLE = "STEPPE_DISABLE_PLUGINS"
ONLY = "STEPPE_PLUGINS"


class Providers:
    """The plugins in package metadata, looked up once. Safe to use from several threads.

    Args:
        path: folders in which to look for packages; None for ``sys.path``.
        table: the names known to exist, installed or not.
    """

    def __init__(self, path: Sequence[str] | None, table: known.Known) -> None:
        self._path: Final = path
        self._table: Final = table
        self._lock: Final = threading.RLock()
        self._records: discovery.Records | None = None
        self._settings: dict[str, str | None] | None = None

    @property
    def settings(self) -> dict[str, str | None]:
        """The variables that hide plugins, as they are in force here: those of the environment, unless assigned."""
        return self._settings or {DISABLE: os.environ.get(DISABLE), ONLY: os.environ.get(ONLY)}

    @settings.setter
    def settings(self, value: dict[str, str | None] | None) -> None:
        self._settings = value

    def found(self) -> discovery.Records:
        """Every plugin found, by kind and name, hidden ones too."""
        with self._lock:
            if self._records is None:
                self._records = discovery.scan(path=self._path, preferred=self._table.alternatives)
            return self._records

    def refresh(self) -> None:
        """Forget what was found, so that packages installed since are seen."""
        with self._lock:
            importlib.invalidate_caches()
            self._records = None

    def names(self, kind: Kind) -> list[str]:
        """The names of a kind that are installed and not hidden, sorted."""
        return sorted(name for name, providers in self.found()[kind].items() if self.visible(providers))

    def hidden_by(self, record: PluginRecord) -> str:
        """The setting that hides a plugin; "" where none does."""
        settings = self.settings
        own = {canonical(record.name), canonical(record.dist)}
        # A package whose environments are hidden is hidden with all that it brings.
        spaces = self._namespaces_of(record.dist) if record.kind != "env" else set()
        disabled, only = settings[DISABLE], settings[ONLY]
        if disabled and (own & _names(disabled) or (spaces and spaces <= _names(disabled))):
            return f"{DISABLE}={disabled}"
        if only is not None and not (own | spaces) & _names(only):
            return f"{ONLY}={only}"
        return ""

    def _namespaces_of(self, dist: str) -> set[str]:
        return {
            canonical(name) for name, records in self.found()["env"].items() if any(r.dist == dist for r in records)
        }

    def visible(self, providers: Iterable[PluginRecord]) -> list[PluginRecord]:
        """Those of some plugins that are not hidden."""
        return [record for record in providers if not self.hidden_by(record)]

    def sole(self, kind: Kind, name: str) -> PluginRecord | None:
        """The one plugin of a name that is not hidden, None where no installed package has it.

        Raises:
            PluginConflict: two packages provide it.
            PluginBlocked: the package that does is hidden.
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
        """The text of the error that several packages provide a name."""
        table = self._table.of(kind)
        first = table[name].package if name in table else ""
        ordered = sorted(providers, key=lambda record: (record.dist != first, record.dist))
        return messages.conflict(
            f"'{name}:'" if kind == "env" else f"the {kind} {name!r}",
            providers=[f"{one.dist} {one.version} ({one.target})" for one in ordered],
            hide=[one.dist for one in ordered[1:]],
        )

    def blocked_text(self, record: PluginRecord) -> str:
        """The text of the error that a plugin is hidden."""
        kind = record.subject.partition(" ")[0]
        setting = self.hidden_by(record)
        return messages.blocked(kind, record.name, dist=record.dist, version=record.version, setting=setting)


def _names(setting: str) -> set[str]:
    return {canonical(part.strip()) for part in setting.split(",") if part.strip()}
