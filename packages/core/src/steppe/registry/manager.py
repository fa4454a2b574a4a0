"""The registry: who provides which name, loaded at the first use of that name."""

from __future__ import annotations

import importlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from ..errors import (
    EnvNotFound,
    LoggerNotFound,
    PluginBlocked,
    PluginBroken,
    PluginConflict,
    PluginError,
    PluginIncompatible,
    PluginNotFound,
    TransformNotFound,
)
from . import answers, discovery, known, messages, requirements
from .ids import EnvId
from .records import Kind, LibraryInfo, PluginRecord, State, canonical

if TYPE_CHECKING:
    from . import callers

DISABLE = "STEPPE_DISABLE_PLUGINS"
ONLY = "STEPPE_PLUGINS"


@dataclass(frozen=True)
class Registration:
    """A name registered in process.

    Attributes:
        make: makes the environment.
        names: what the namespace has; None accepts any name.
        takes_name: whether `make` is given the name after the colon: of a namespace it is, of a whole id it is not.
    """

    make: Callable[..., Any]
    names: tuple[str, ...] | None
    takes_name: bool


class Registry:
    """Finds plugins in package metadata, loads one at the first use of its name, and calls its hooks.

    Safe to use from several threads: a plugin is imported once, and different plugins do not wait for each other.

    Args:
        path: folders in which to look for packages; None for ``sys.path``, an empty list for no packages at all.
        steppe_version: the version that plugins are checked against; None for the one that is running.
        table: the names known to exist, installed or not.
        checks_envs: refuse what a plugin makes that is no environment of steppe; False for plugins of tests.
    """

    def __init__(
        self,
        *,
        path: Sequence[str] | None = None,
        steppe_version: str | None = None,
        table: known.Known = known.FIRST_PARTY,
        checks_envs: bool = True,
    ) -> None:
        self._path: Final = path
        self._version = steppe_version
        self._table: Final = table
        self._checks_envs: Final = checks_envs
        self._lock: Final = threading.RLock()
        self._records: discovery.Records | None = None
        self._registered: dict[str, Registration] = {}
        self._loaded: dict[tuple[Kind, str, str], Any] = {}
        self._failed: dict[tuple[Kind, str, str], PluginError] = {}
        self._loading: dict[tuple[Kind, str, str], threading.RLock] = {}
        self._callers: callers.Callers | None = None
        self._worker: int | None = None
        self._ready: set[int] = set()
        self._settings: dict[str, str | None] | None = None

    # Finding

    def refresh(self) -> None:
        """Forget what was found, so that packages installed since are seen, and broken plugins are tried again."""
        with self._lock:
            importlib.invalidate_caches()
            self._records = None
            self._failed.clear()

    def records(self) -> list[PluginRecord]:
        """Every plugin found, with its state and what is wrong with it, by kind and name. Imports none."""
        found = self._found()
        return [
            self._judged(record, providers)
            for kind in found
            for _, providers in sorted(found[kind].items())
            for record in providers
        ]

    def namespaces(self) -> list[str]:
        """The namespaces that ids can start with: installed and not hidden, or registered in process."""
        visible = [name for name, providers in self._found()["env"].items() if self._visible(providers)]
        return sorted({*visible, *(name.partition(":")[0] for name in self._registered)})

    def availability(self) -> dict[str, bool]:
        """Every namespace that is installed, known or registered, and whether it can be used as things stand."""
        states = {record.name: record.state for record in self.records() if record.kind == "env"}
        names = sorted({*self._table.namespaces, *self.namespaces(), *states})
        registered = {name.partition(":")[0] for name in self._registered}
        return {name: name in registered or states.get(name) in ("available", "loaded") for name in names}

    def not_installed(self) -> list[tuple[Kind, str, known.Provider]]:
        """The known names that no installed package provides."""
        found = self._found()
        tables: list[tuple[Kind, Mapping[str, known.Provider]]] = [
            ("env", self._table.namespaces),
            ("transform", self._table.transforms),
            ("logger", self._table.loggers),
        ]
        return [
            (kind, name, provider)
            for kind, table in tables
            for name, provider in sorted(table.items())
            if name not in found[kind]
        ]

    def parse(self, text: str) -> EnvId:
        """Split an id; raises `EnvIdError`."""
        try:
            return EnvId.parse(text)
        except ValueError:
            return EnvId.parse(text, installed=self.namespaces())

    def find(self, env_id: EnvId) -> PluginRecord:
        """The one plugin that provides an id's namespace, from metadata alone.

        Raises:
            PluginNotFound: no installed package provides it.
            PluginBlocked: the package that does is hidden.
            PluginConflict: two packages provide it.
        """
        name = env_id.namespace
        record = self._sole("env", name)
        if record is None:
            # A notebook may have installed it since: look once more before saying no.
            with self._lock:
                importlib.invalidate_caches()
                self._records = None
            record = self._sole("env", name)
        if record is not None:
            return record
        asked, installed = str(env_id), self.namespaces()
        if provider := self._table.namespaces.get(name):
            raise PluginNotFound(
                messages.plugin_not_installed(
                    name, asked=asked, package=provider.package, extra=provider.extra, installed=installed
                )
            )
        candidates = [*installed, *self._table.namespaces]
        raise PluginNotFound(
            messages.unknown_namespace(name, asked=asked, name=env_id.name, candidates=candidates, installed=installed)
        )

    def check(self, record: PluginRecord) -> None:
        """Raise what is wrong with a plugin's requirements; nothing is imported."""
        cache: dict[str, requirements.Installed | None] = {}

        def installed(name: str) -> requirements.Installed | None:
            if name not in cache:
                cache[name] = discovery.installed(name, path=self._path)
            return cache[name]

        running = None if self.steppe_version in ("0+unknown", "unknown") else self.steppe_version
        requirements.check(record, installed=installed, steppe_version=running)

    @property
    def steppe_version(self) -> str:
        """The version of steppe that plugins are checked against."""
        if self._version is None:
            self._version = discovery.steppe_version()
        return self._version

    # Environments

    def make(self, text: str, kwargs: dict[str, Any]) -> Any:
        """Make the environment of an id. Its own exceptions come out as they are, with a note on Python 3.11."""
        env_id = self.parse(text)
        function = "steppe_make_env"
        if registration := self._registration(env_id):
            maker = function = "the function registered in this process"
            subject = f"'{env_id.namespace}:' (registered in this process)"
        else:
            record = self.find(env_id)
            plugin = self.load(record)
            maker, subject = f"{record.dist} {record.version}", record.subject
        try:
            if registration:
                env = self._bind(registration, env_id)(**kwargs)
            else:
                env = self._hooks().call(plugin, "steppe_make_env", name=env_id.name, kwargs=kwargs)
        except EnvNotFound:
            raise
        except Exception as error:
            if isinstance(error, KeyError) and not registration and env_id.name in str(error):
                self._check_name(env_id, cause=error)
            if hasattr(error, "add_note"):
                error.add_note(f"while making {text!r} with {maker}")
            raise
        if env is None:
            if not registration:
                self._check_name(env_id)
            raise PluginError(messages.made_nothing(subject, name=env_id.name, function=function))
        if self._checks_envs:
            answers.check_env(env, subject, name=env_id.name, function=function)
        return env

    def _check_name(self, env_id: EnvId, *, cause: Exception | None = None) -> None:
        """Raise EnvNotFound if a plugin lists its names, and this one is not among them."""
        try:
            names = self.env_names(env_id.namespace)
        except Exception:  # what is wrong with the list is not what was asked
            names = []
        if names and env_id.name not in names:
            raise self.env_not_found(env_id.namespace, env_id.name, names=names) from cause

    def maker(self, text: str) -> Callable[..., Any] | None:
        """The function behind an id registered in process, None for a plugin's id.

        Everything that can be known without importing the plugin is checked.
        """
        env_id = self.parse(text)
        if registration := self._registration(env_id):
            return self._bind(registration, env_id)
        self.check(self.find(env_id))
        return None

    def env_names(self, namespace: str) -> list[str]:
        """The names in a namespace, sorted; loads the plugin. Empty where it does not list them."""
        own = [name.partition(":")[2] for name in self._registered if name.startswith(f"{namespace}:")]
        registration = self._registered.get(namespace)
        if registration is not None:
            return sorted({*own, *(registration.names or ())})
        if own and namespace not in self._found()["env"]:
            return sorted(own)
        record = self.find(EnvId(namespace, "*"))
        found = self._hooks().call(self.load(record), "steppe_env_names")
        return sorted({*own, *answers.checked_names(found, record.subject, namespace=namespace)})

    def library(self, namespace: str) -> LibraryInfo | None:
        """The library behind a namespace, as its plugin reports it; loads the plugin."""
        record = self.find(EnvId(namespace, "*"))
        found = self._hooks().call(self.load(record), "steppe_library")
        return answers.checked_library(found, record.subject)

    def register_with_library(self, namespace: str, id: str, make: Any, options: dict[str, Any]) -> None:
        """Have the plugin of a namespace register an environment with its library; loads the plugin."""
        record = self.find(EnvId(namespace, "*"))
        if not self._hooks().call(self.load(record), "steppe_register", id=id, make=make, options=options):
            raise PluginError(f"{record.subject} cannot register environments with its library: it has no such hook.")

    def env_not_found(self, namespace: str, name: str, *, names: Iterable[str] | None) -> EnvNotFound:
        """The error of a plugin that has no such environment, with the closest name and their number."""
        subject = f"Plugin {namespace!r}"
        try:
            record = self._sole("env", namespace)
            if record is not None:
                library = self.library(namespace)
                versions = f", {library.dist} {library.version}" if library else ""
                subject = f"Plugin {namespace!r} ({record.dist} {record.version}{versions})"
            listed = sorted(self.env_names(namespace) if names is None else names)
        # What can be said about the plugin only decorates the text: it must not hide that the name is wrong.
        except Exception:
            listed = sorted(names or ())
        return EnvNotFound(messages.unknown_env(subject, namespace=namespace, name=name, names=listed))

    def register(self, name: str, make: Callable[..., Any], *, names: Iterable[str] | None) -> None:
        """Register a namespace or a whole id for this process; see `steppe.register_env`."""
        namespace = name if ":" not in name else str(self.parse(name)).partition(":")[0]
        EnvId.parse(f"{namespace}:x")
        with self._lock:
            if providers := self._visible(self._found()["env"].get(namespace, [])):
                raise PluginConflict(
                    messages.namespace_taken(namespace, dist=providers[0].dist, version=providers[0].version)
                )
            listed = None if names is None else tuple(names)
            self._registered[name] = Registration(make, listed, takes_name=":" not in name)

    def registered(self) -> dict[str, Registration]:
        """What is registered in process, by namespace or id."""
        with self._lock:
            return dict(self._registered)

    # Transforms

    def find_transform(self, name: str, *, core: Iterable[str]) -> Any:
        """The class of a transform that a package provides; see `steppe.registry.find_transform`."""
        if name.startswith("_"):
            raise AttributeError(messages.unknown_transform(name, candidates=()))
        record = self._sole("transform", name)
        if record is not None:
            return self._class(record)
        if provider := self._table.transforms.get(name):
            raise TransformNotFound(
                messages.transform_not_installed(name, package=provider.package, extra=provider.extra)
            )
        raise AttributeError(
            messages.unknown_transform(name, candidates=[*core, *self.transform_names(), *self._table.transforms])
        )

    def transform_names(self) -> list[str]:
        """The transforms of installed packages, sorted; imports none."""
        return self._names("transform")

    # Loggers

    def find_logger(self, name: str) -> Any:
        """The class of a logger that a package provides; see `steppe.registry.find_logger`."""
        if name.startswith("_"):
            raise AttributeError(messages.unknown_logger(name, candidates=()))
        full = _full_name(name, [*self._found()["logger"], *self._table.loggers])
        record = self._sole("logger", full)
        if record is not None:
            return self._class(record)
        if provider := self._table.loggers.get(full):
            raise LoggerNotFound(messages.logger_not_installed(name, package=provider.package, extra=provider.extra))
        raise AttributeError(messages.unknown_logger(name, candidates=[*self.logger_names(), *self._table.loggers]))

    def logger_names(self) -> list[str]:
        """The loggers of installed packages, sorted; imports none."""
        return self._names("logger")

    def _names(self, kind: Kind) -> list[str]:
        return sorted(name for name, providers in self._found()[kind].items() if self._visible(providers))

    def _class(self, record: PluginRecord) -> Any:
        found = self.load(record)
        if not isinstance(found, type):
            raise PluginBroken(messages.not_a_class(record.subject, target=record.target))
        return found

    # Loading

    def load(self, record: PluginRecord) -> Any:
        """Check a plugin's requirements, import it and check its hooks, once; a failed import raises the same again.

        Raises:
            PluginError: what is wrong with it.
        """
        key = (record.kind, record.name, record.dist)
        with self._lock:
            lock = self._loading.setdefault(key, threading.RLock())
        with lock:
            if key in self._loaded:
                plugin = self._loaded[key]
            elif key in self._failed:
                raise self._failed[key].with_traceback(None)
            else:
                self.check(record)  # not remembered: installing the library fixes it
                try:
                    plugin = self._import(record)
                except (PluginBroken, PluginIncompatible) as error:
                    self._failed[key] = error
                    raise
                self._loaded[key] = plugin
            self._prepare(record, plugin)
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
            callers.trace(f"loaded {record.subject} from {record.target} ({spent:.1f} ms)")
        return plugin

    def _prepare(self, record: PluginRecord, plugin: Any) -> None:
        if self._worker is not None and record.kind == "env" and id(plugin) not in self._ready:
            self._ready.add(id(plugin))
            self._hooks().call(plugin, "steppe_worker_setup", worker=self._worker)

    def _hooks(self) -> callers.Callers:
        with self._lock:
            if self._callers is None:
                # The first use of pluggy: finding plugins does without it.
                from . import callers

                self._callers = callers.Callers(steppe_version=self.steppe_version)
            return self._callers

    # Workers

    def settings(self) -> dict[str, str | None]:
        """The variables that hide plugins, as they are in force here."""
        return self._settings or {DISABLE: os.environ.get(DISABLE), ONLY: os.environ.get(ONLY)}

    def enter_worker(
        self,
        *,
        settings: dict[str, str | None] | None,
        registered: dict[str, Registration],
        worker: int | None,
    ) -> None:
        """Take over what holds in the parent process, and prepare the plugins that are loaded already."""
        with self._lock:
            self._settings = settings
            self._registered.update(registered)
            self._worker = worker
            loaded = list(self._loaded.items())
        found = self._found()
        for (kind, name, dist), plugin in loaded:
            for record in found[kind].get(name, []):
                if record.dist == dist:
                    self._prepare(record, plugin)

    # Helpers

    def _found(self) -> discovery.Records:
        with self._lock:
            if self._records is None:
                self._records = discovery.scan(path=self._path, preferred=self._table.alternatives)
            return self._records

    def _hidden_by(self, record: PluginRecord) -> str:
        settings = self.settings()
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
            canonical(name) for name, records in self._found()["env"].items() if any(r.dist == dist for r in records)
        }

    def _visible(self, providers: Iterable[PluginRecord]) -> list[PluginRecord]:
        return [record for record in providers if not self._hidden_by(record)]

    def _sole(self, kind: Kind, name: str) -> PluginRecord | None:
        providers = self._found()[kind].get(name, [])
        visible = self._visible(providers)
        if len(visible) == 1:
            return visible[0]
        if visible:
            raise PluginConflict(self._conflict_text(kind, name, visible))
        if providers:
            raise PluginBlocked(self._blocked_text(providers[0]))
        return None

    def _conflict_text(self, kind: Kind, name: str, providers: list[PluginRecord]) -> str:
        tables = {"env": self._table.namespaces, "transform": self._table.transforms, "logger": self._table.loggers}
        table = tables[kind]
        first = table[name].package if name in table else ""
        ordered = sorted(providers, key=lambda record: (record.dist != first, record.dist))
        return messages.conflict(
            f"'{name}:'" if kind == "env" else f"the {kind} {name!r}",
            providers=[f"{one.dist} {one.version} ({one.target})" for one in ordered],
            hide=[one.dist for one in ordered[1:]],
        )

    def _blocked_text(self, record: PluginRecord) -> str:
        kind = record.subject.partition(" ")[0]
        setting = self._hidden_by(record)
        return messages.blocked(kind, record.name, dist=record.dist, version=record.version, setting=setting)

    def _judged(self, record: PluginRecord, providers: list[PluginRecord]) -> PluginRecord:
        state: State = "available"
        problem = ""
        key = (record.kind, record.name, record.dist)
        if self._hidden_by(record):
            state, problem = "blocked", self._blocked_text(record)
        elif len(visible := self._visible(providers)) > 1:
            state, problem = "conflict", self._conflict_text(record.kind, record.name, visible)
        elif key in self._loaded:
            state = "loaded"
        elif key in self._failed:
            state, problem = "broken", str(self._failed[key])
        else:
            try:
                self.check(record)
            except PluginBroken as error:
                state, problem = "broken", str(error)
            except PluginError as error:
                state, problem = "unmet", str(error)
        return replace(record, state=state, problem=problem)

    def _registration(self, env_id: EnvId) -> Registration | None:
        with self._lock:
            return self._registered.get(str(env_id)) or self._registered.get(env_id.namespace)

    def _bind(self, registration: Registration, env_id: EnvId) -> Callable[..., Any]:
        if not registration.takes_name:
            return registration.make
        if registration.names is not None and env_id.name not in registration.names:
            raise EnvNotFound(
                messages.unknown_registered_env(env_id.namespace, name=env_id.name, names=registration.names)
            )
        return _Bound(registration.make, env_id.name)


@dataclass(frozen=True)
class _Bound:
    """A registered function with the name it is to make; unlike a partial, equal to another of the same two."""

    make: Callable[..., Any]
    name: str

    def __call__(self, **kwargs: Any) -> Any:
        return self.make(self.name, **kwargs)


def _full_name(name: str, classes: Iterable[str]) -> str:
    """The class that a short name stands for: ``"csv"`` for ``"CSVLogger"``; the name itself where there is none."""
    folded = {one.casefold(): one for one in classes}
    if name in folded.values():
        return name
    return folded.get(name.casefold()) or folded.get(f"{name}logger".casefold()) or name


def _names(setting: str) -> set[str]:
    return {canonical(part.strip()) for part in setting.split(",") if part.strip()}


_registry = Registry()


def current() -> Registry:
    """The registry that the functions of `steppe.registry` use."""
    return _registry


@contextmanager
def use(registry: Registry) -> Iterator[Registry]:
    """Put another registry in its place, for tests."""
    global _registry
    before, _registry = _registry, registry
    try:
        yield registry
    finally:
        _registry = before
