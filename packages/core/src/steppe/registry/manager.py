"""The registry: who provides which name, loaded at the first use of that name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from ..errors import (
    CollectorNotFound,
    EnvNotFound,
    LoggerNotFound,
    PluginBroken,
    PluginConflict,
    PluginError,
    PluginNotFound,
    TransformNotFound,
)
from . import answers, discovery, known, messages, requirements
from .ids import EnvId
from .loaded_plugins import Plugins
from .providers import Providers
from .records import GROUPS, Kind, LibraryInfo, PluginRecord, State
from .registrations import Registration, Registrations


class Registry:
    """Finds plugins in package metadata, loads one at the first use of its name, and calls its hooks.

    Safe to use from several threads: a plugin is imported once, and different plugins do not wait for each other.

    Args:
        path: folders in which to look for packages; None for ``sys.path``, an empty list for no packages at all.
        steppe_version: the version that plugins are checked against; None for the one that is running.
        table: the names known to exist, installed or not.
        checks_envs: refuse what a plugin makes that is no environment of steppe; False for plugins of tests.

    Attributes:
        providers: which installed packages provide a name, and which of them are hidden.
        registrations: what is registered in this process.
        plugins: what is imported, with the hooks.
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
        self.providers: Final = Providers(path, table)
        self.registrations: Final = Registrations()
        self.plugins: Final = Plugins(self.check, lambda: self.steppe_version)

    # Finding

    def refresh(self) -> None:
        """Forget what was found, so that packages installed since are seen, and broken plugins are tried again."""
        self.providers.refresh()
        self.plugins.forget_failures()

    def found(self) -> list[PluginRecord]:
        """Every plugin found, by kind and name, without a look at whether it can be used. Imports none."""
        return [record for record, _ in self._found()]

    def records(self) -> list[PluginRecord]:
        """Every plugin found, with its state and what is wrong with it, by kind and name. Imports none."""
        return [self._judged(record, providers) for record, providers in self._found()]

    def _found(self) -> Iterator[tuple[PluginRecord, list[PluginRecord]]]:
        """Every plugin found, with all that have its name."""
        found = self.providers.found()
        for kind in found:
            for _, providers in sorted(found[kind].items()):
                for record in providers:
                    yield record, providers

    def namespaces(self) -> list[str]:
        """The namespaces that ids can start with: installed and not hidden, or registered in process."""
        return sorted({*self.providers.names("env"), *self.registrations.namespaces()})

    def availability(self) -> dict[str, bool]:
        """Every namespace that is installed, known or registered, and whether it can be used as things stand."""
        states = {record.name: record.state for record in self.records() if record.kind == "env"}
        names = sorted({*self._table.of("env"), *self.namespaces(), *states})
        registered = self.registrations.namespaces()
        return {name: name in registered or states.get(name) in ("available", "loaded") for name in names}

    def not_installed(self) -> list[tuple[Kind, str, known.Provider]]:
        """The known names that no installed package provides."""
        found = self.providers.found()
        return [
            (kind, name, provider)
            for kind in GROUPS.values()
            for name, provider in sorted(self._table.of(kind).items())
            if name not in found[kind]
        ]

    def known_provider(self, kind: Kind, name: str) -> known.Provider | None:
        """The first-party package that has a name, installed or not; None if none is known."""
        return self._table.of(kind).get(name)

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
        record = self.providers.sole("env", name)
        if record is None:
            # A notebook may have installed it since: look once more before saying no.
            self.providers.refresh()
            record = self.providers.sole("env", name)
        if record is not None:
            return record
        asked, installed = str(env_id), self.namespaces()
        if provider := self.known_provider("env", name):
            raise PluginNotFound(
                messages.plugin_not_installed(
                    name, asked=asked, package=provider.package, extra=provider.extra, installed=installed
                )
            )
        candidates = [*installed, *self._table.of("env")]
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
        registered = self.registrations.find(env_id)
        if registered is not None:
            maker = function = "the function registered in this process"
            subject = f"'{env_id.namespace}:' (registered in this process)"
        else:
            record = self.find(env_id)
            plugin = self.plugins.load(record)
            maker, subject = f"{record.dist} {record.version}", record.subject
        try:
            if registered is not None:
                env = registered(**kwargs)
            else:
                env = self.plugins.call(plugin, "steppe_make_env", name=env_id.name, kwargs=kwargs)
        except EnvNotFound:
            raise
        except Exception as error:
            if isinstance(error, KeyError) and registered is None and env_id.name in str(error):
                self._check_name(env_id, cause=error)
            if hasattr(error, "add_note"):
                error.add_note(f"while making {text!r} with {maker}")
            raise
        if env is None:
            if registered is None:
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
        registered = self.registrations.find(env_id)
        if registered is None:
            self.check(self.find(env_id))
        return registered

    def env_names(self, namespace: str) -> list[str]:
        """The names in a namespace, sorted; loads the plugin. Empty where it does not list them."""
        own = self.registrations.env_names(namespace)
        if namespace in self.registrations.all() or (own and namespace not in self.providers.found()["env"]):
            return sorted(own)
        record = self.find(EnvId(namespace, "*"))
        found = self.plugins.call(self.plugins.load(record), "steppe_env_names")
        return sorted({*own, *answers.checked_names(found, record.subject, namespace=namespace)})

    def library(self, namespace: str) -> LibraryInfo | None:
        """The library behind a namespace, as its plugin reports it; loads the plugin."""
        record = self.find(EnvId(namespace, "*"))
        found = self.plugins.call(self.plugins.load(record), "steppe_library")
        return answers.checked_library(found, record.subject)

    def register_with_library(self, namespace: str, id: str, make: Any, options: dict[str, Any]) -> None:
        """Have the plugin of a namespace register an environment with its library; loads the plugin."""
        record = self.find(EnvId(namespace, "*"))
        if not self.plugins.call(self.plugins.load(record), "steppe_register", id=id, make=make, options=options):
            raise PluginError(f"{record.subject} cannot register environments with its library: it has no such hook.")

    def env_not_found(self, namespace: str, name: str, *, names: Iterable[str] | None) -> EnvNotFound:
        """The error of a plugin that has no such environment, with the closest name and their number."""
        subject = f"Plugin {namespace!r}"
        try:
            record = self.providers.sole("env", namespace)
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
        if providers := self.providers.visible(self.providers.found()["env"].get(namespace, [])):
            raise PluginConflict(
                messages.namespace_taken(namespace, dist=providers[0].dist, version=providers[0].version)
            )
        self.registrations.add(name, make, names=names)

    # Transforms, loggers and commands

    def find_class(self, kind: Kind, name: str, *, core: Iterable[str] = ()) -> Any:
        """Load the class of a plugin; see `steppe.registry.find_transform`, `find_collector` and `find_logger`.

        Args:
            kind: ``"transform"``, ``"collector"`` or ``"logger"``.
            name: name of the class, of a logger also its short form.
            core: the names of the core's own classes, for suggestions.
        """
        known = [*self.providers.found()[kind], *self._table.of(kind)]
        if name.startswith("_"):
            raise AttributeError(messages.unknown_class(kind, name, candidates=()))
        record = self._find(kind, _full_name(name, known) if kind == "logger" else name, requested=name)
        if record is None:
            raise AttributeError(messages.unknown_class(kind, name, candidates=[*core, *known]))
        value = self.plugins.load(record)
        if not isinstance(value, type):
            raise PluginBroken(messages.not_a_class(record.subject, target=record.target))
        return value

    def find_command(self, name: str, *, core: Sequence[str] = ()) -> Any:
        """Load a command of an installed package, a `steppe.cli.Command`.

        Args:
            name: what stands after ``steppe`` on the command line.
            core: the names of the core's own commands, for the error.

        Raises:
            PluginNotFound: no installed package has it; the text says which package to install, or a similar name.
            PluginError: its package cannot be used, is hidden, or is one of two with the command.
        """
        record = self._find("command", name, requested=name)
        if record is None:
            commands = {*core, *self.providers.names("command")}
            candidates = [*commands, *self._table.of("command")]
            raise PluginNotFound(messages.unknown_command(name, commands=commands, candidates=candidates))
        command = self.plugins.load(record)
        missing = [part for part in ("help", "add_arguments", "run") if not hasattr(command, part)]
        if missing:
            raise PluginBroken(messages.not_a_command(record.subject, target=record.target, missing=missing))
        return command

    def _find(self, kind: Kind, name: str, *, requested: str) -> PluginRecord | None:
        """The plugin that provides a name; None if neither an installed nor a known package does."""
        record = self.providers.sole(kind, name)
        if record is None and (provider := self.known_provider(kind, name)):
            error = _NOT_INSTALLED[kind]
            raise error(messages.not_installed(kind, requested, package=provider.package, extra=provider.extra))
        return record

    # Workers

    def enter_worker(
        self,
        *,
        settings: dict[str, str | None] | None,
        registered: dict[str, Registration],
        worker: int | None,
    ) -> None:
        """Take over what holds in the parent process, and prepare the plugins that are loaded already."""
        self.providers.settings = settings
        self.registrations.update(registered)
        self.plugins.enter_worker(worker, self.providers.found())

    def _judged(self, record: PluginRecord, providers: list[PluginRecord]) -> PluginRecord:
        state: State = "available"
        problem = ""
        if self.providers.hidden_by(record):
            state, problem = "blocked", self.providers.blocked_text(record)
        elif len(visible := self.providers.visible(providers)) > 1:
            state, problem = "conflict", self.providers.conflict_text(record.kind, record.name, visible)
        elif self.plugins.is_loaded(record):
            state = "loaded"
        elif failure := self.plugins.failure(record):
            state, problem = "broken", str(failure)
        else:
            try:
                self.check(record)
            except PluginBroken as error:
                state, problem = "broken", str(error)
            except PluginError as error:
                state, problem = "unmet", str(error)
        return replace(record, state=state, problem=problem)


_NOT_INSTALLED = {
    "transform": TransformNotFound,
    "collector": CollectorNotFound,
    "logger": LoggerNotFound,
    "command": PluginNotFound,
}


def _full_name(name: str, classes: Iterable[str]) -> str:
    """The class that a short name stands for: ``"csv"`` for ``"CSVLogger"``; the name itself where there is none."""
    folded = {one.casefold(): one for one in classes}
    if name in folded.values():
        return name
    return folded.get(name.casefold()) or folded.get(f"{name}logger".casefold()) or name


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
