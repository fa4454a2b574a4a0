"""Registry: finds the plugin that provides a name, and imports it at the first use of that name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final

from ..errors import (
    ArgumentError,
    ClassNotFound,
    EnvNotFound,
    PluginBroken,
    PluginConflict,
    PluginError,
    PluginNotFound,
    SteppeError,
    TransformNotFound,
    add_note,
)
from . import answers, discovery, known, requirements
from .ids import EnvId
from .loaded_plugins import Plugins
from .messages import did_you_mean, joined, listed, suggestion
from .providers import Providers
from .records import GROUPS, EnvMaker, Kind, LibraryInfo, PluginRecord, State
from .registrations import Registrations


class Registry:
    """Find plugins in package metadata, import each at the first use of its name, and call its hooks.

    Safe to use from several threads: a plugin is imported once, and different plugins do not wait for each other.

    Args:
        path: folders to search for packages; None for ``sys.path``, an empty list for no packages.
        steppe_version: the version that plugins are checked against; None for the running one.
        table: known names, installed or not.
        checks_envs: whether plugins must make environments of steppe; False for tests.

    Attributes:
        providers: which installed packages provide a name, and which of them are hidden.
        registrations: the environments that were registered with `register_env`.
        plugins: the imported plugins.
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
        """Clear the cache, so that newly installed packages are found, and broken plugins imported again."""
        self.providers.refresh()
        self.plugins.forget_failures()

    def found(self) -> list[PluginRecord]:
        """Return every plugin, by kind and name, without its state. Imports none."""
        by_name = (providers for kind in self.providers.found().values() for _, providers in sorted(kind.items()))
        return [record for providers in by_name for record in providers]

    def records(self) -> list[PluginRecord]:
        """Return every plugin with its state and problem, by kind and name. Imports none."""
        return [self._with_state(record) for record in self.found()]

    def namespaces(self) -> list[str]:
        """Return the namespaces that ids can start with: installed and not hidden, or registered."""
        return sorted({*self.providers.names("env"), *self.registrations.namespaces()})

    def availability(self) -> dict[str, bool]:
        """Return every namespace that is installed, known or registered, and whether it can be used now."""
        states = {record.name: record.state for record in self.records() if record.kind == "env"}
        names = sorted({*self._table.of("env"), *self.namespaces(), *states})
        registered = self.registrations.namespaces()
        return {name: name in registered or states.get(name) in ("available", "loaded") for name in names}

    def not_installed(self) -> list[tuple[Kind, str, str]]:
        """Return the known names that no installed package provides: their kinds, the names and their packages."""
        installed = self.providers.found()
        return [
            (kind, name, package)
            for kind in GROUPS.values()
            for name, package in self._table.of(kind).items()
            if name not in installed[kind]
        ]

    def known_package(self, kind: Kind, name: str) -> str | None:
        """Return the first-party package that has a name, installed or not; None for unknown names."""
        return self._table.of(kind).get(name)

    def find(self, env_id: EnvId) -> PluginRecord:
        """Return the plugin that provides an id's namespace, without importing it.

        Raises:
            PluginNotFound: no installed package provides it.
            PluginBlocked: its package is hidden.
            PluginConflict: two packages provide it.
        """
        name = env_id.namespace
        record = self.providers.sole("env", name)
        if record is None:
            # A notebook may have installed the package since the last search.
            self.providers.refresh()
            record = self.providers.sole("env", name)
        if record is not None:
            return record
        asked, installed = str(env_id), self.namespaces()
        if package := self.known_package("env", name):
            raise PluginNotFound(
                f"No installed plugin provides '{name}:' (asked for {asked!r}). It is in the package "
                f"{package}: {known.install(package)}. Installed namespaces: {listed(installed)}."
            )
        # Packages that are not installed are only suggested if the names are very similar.
        near = suggestion(name, installed) or suggestion(name, [*installed, *self._table.of("env")], cutoff=0.75)
        close = known.LIBRARIES.get(name, near)
        hint = f"Did you mean '{close}:{env_id.name}'? " if close else ""
        raise PluginNotFound(
            f"No plugin provides '{name}:' (asked for {asked!r}). {hint}"
            f"Installed namespaces: {listed(installed)} ('steppe plugins' lists them)."
            f"{discovery.misspelt_groups(path=self._path)}"
        )

    def check(self, record: PluginRecord) -> None:
        """Raise a PluginError if a plugin's requirements are not met; nothing is imported."""
        running = None if self.steppe_version == "0+unknown" else self.steppe_version
        requirements.check(record, installed=partial(discovery.installed, path=self._path), steppe_version=running)

    @property
    def steppe_version(self) -> str:
        """The version of steppe that plugins are checked against."""
        if self._version is None:
            self._version = discovery.steppe_version()
        return self._version

    # Environments

    def make(self, text: str, kwargs: dict[str, object]) -> Any:
        """Make the environment of an id. Its exceptions get a note on Python 3.11; missing arguments are named."""
        env_id = EnvId.parse(text, installed=self.namespaces)
        registered = self.registrations.find(env_id)
        if registered is not None:
            maker = function = "the function registered in this process"
            label = f"'{env_id.namespace}:' (registered in this process)"
            call = partial(registered, **kwargs)
        else:
            record = self.find(env_id)
            maker, label, function = f"{record.dist} {record.version}", record.label, "steppe_make_env"
            call = partial(self.plugins.call, self.plugins.load(record), function, name=env_id.name, kwargs=kwargs)
        try:
            env = call()
        except EnvNotFound:
            raise
        except Exception as error:
            if isinstance(error, KeyError) and registered is None and env_id.name in str(error):
                self._check_name(env_id, cause=error)
            add_note(error, f"while making {text!r} with {maker}")
            lacking = re.search(r"missing \d+ required .*arguments?: ('\w+'(?:,? (?:and )?'\w+')*)", str(error))
            if lacking and isinstance(error, TypeError):
                names = re.findall(r"'(\w+)'", lacking[1])
                line = f"make_env({text!r}, {', '.join(f'{name}=...' for name in names)})"
                raise ArgumentError(f"{text!r} needs {joined(names)}: write {line}. {error}.") from error
            raise
        if env is None:
            if registered is None:
                self._check_name(env_id)
            raise PluginError(
                f"{label} made no environment for {env_id.name!r}: {function} returned None. Write: return env"
            )
        if self._checks_envs:
            answers.check_env(env, label, name=env_id.name, function=function)
        return env

    def _check_name(self, env_id: EnvId, *, cause: Exception | None = None) -> None:
        """Raise EnvNotFound if a plugin lists its names without this one."""
        try:
            names = self.env_names(env_id.namespace)
        except Exception:  # an error of the list would hide the error that is being raised
            names = []
        if names and env_id.name not in names:
            raise self.env_not_found(env_id.namespace, env_id.name, names=names) from cause

    def maker(self, text: str) -> EnvMaker | None:
        """Return the function of an id that was registered with `register_env`, None for an id of a plugin.

        The plugin is checked as far as possible without importing it.
        """
        env_id = EnvId.parse(text, installed=self.namespaces)
        registered = self.registrations.find(env_id)
        if registered is None:
            self.check(self.find(env_id))
        return registered

    def env_names(self, namespace: str) -> list[str]:
        """Return the names in a namespace, sorted; imports the plugin. Empty if the plugin does not list them."""
        registered_names = self.registrations.env_names(namespace)
        if namespace in self.registrations.all() or (
            registered_names and namespace not in self.providers.found()["env"]
        ):
            return sorted(registered_names)
        record = self.find(EnvId(namespace, "*"))
        plugin_names = self.plugins.call(self.plugins.load(record), "steppe_env_names")
        return sorted({*registered_names, *answers.checked_names(plugin_names, record.label, namespace=namespace)})

    def library(self, namespace: str) -> LibraryInfo | None:
        """Return the library behind a namespace, as its plugin reports or requires it; imports the plugin."""
        record = self.find(EnvId(namespace, "*"))
        library = self.plugins.call(self.plugins.load(record), "steppe_library")
        return answers.checked_library(library, record.label) or discovery.required_library(record, path=self._path)

    def register_with_library(self, namespace: str, id: str, make: str | EnvMaker, options: dict[str, object]) -> None:
        """Register an environment of steppe with a wrapped library, so that the library can make it.

        Args:
            namespace: the namespace of the plugin that wraps the library, such as ``"gym"``, which is imported.
            id: the id in the library.
            make: an id of steppe, or a callable that makes the environment.
            options: passed to the plugin, which documents them.

        Raises:
            PluginError: the plugin is missing, or cannot do this.
        """
        record = self.find(EnvId(namespace, "*"))
        if not self.plugins.call(self.plugins.load(record), "steppe_register", id=id, make=make, options=options):
            raise PluginError(f"{record.label} cannot register environments with its library: it has no such hook.")

    def env_not_found(self, namespace: str, name: str, *, names: Iterable[str] | None) -> EnvNotFound:
        """Return the error of a plugin for an unknown environment; see `steppe.registry.env_not_found`."""
        label = f"Plugin {namespace!r}"
        try:
            record = self.providers.sole("env", namespace)
            if record is not None:
                library = self.library(namespace)
                versions = f", {library.dist} {library.version}" if library else ""
                label = f"Plugin {namespace!r} ({record.dist} {record.version}{versions})"
            known_names = sorted(self.env_names(namespace) if names is None else names)
        # Details of the plugin only add to the text: their errors must not replace the error about the name.
        except Exception:
            known_names = sorted(names or ())
        count = f" 'steppe envs {namespace}' lists all {len(known_names)}." if known_names else ""
        return EnvNotFound(f"{label} has no environment {name!r}.{did_you_mean(name, known_names)}{count}")

    def register(self, name: str, make: EnvMaker, *, names: Iterable[str] | None) -> None:
        """Register a namespace or a whole id for this process; see `steppe.register_env`."""
        namespace = EnvId.parse(name if ":" in name else f"{name}:x", installed=self.namespaces).namespace
        if providers := self.providers.visible(self.providers.found()["env"].get(namespace, [])):
            dist, version = providers[0].dist, providers[0].version
            raise PluginConflict(
                f"'{namespace}:' cannot be registered in this process: {dist} {version} provides it. "
                f"Choose another name, or hide the package: STEPPE_DISABLE_PLUGINS={dist}."
            )
        self.registrations.add(name, make, names=names)

    # Transforms, loggers, data sets and commands

    def find_class(self, kind: Kind, name: str, *, core: Iterable[str] = (), module: str | None = None) -> Any:
        """Import a class or function that an installed package provides.

        Args:
            kind: any kind but ``"env"`` and ``"command"``.
            name: name of the class or function, or namespace of a format of data sets.
            core: the names of the core's own classes, for suggestions.
            module: the module in which the name was looked up, for errors; by default the module of the kind.

        Raises:
            ClassNotFound: a first-party package has it and is not installed; `TransformNotFound` for a transform.
            AttributeError: no known package has it, or the name starts with an underscore.
            PluginConflict: two packages provide it.
            PluginBlocked: its package is hidden.
            PluginError: its package cannot be used.
        """
        module = module or {"env class": "steppe.envs", "function": "steppe"}.get(kind, f"steppe.{kind}s")
        unknown = f"module {module!r} has no attribute {name!r}"
        if name.startswith("_"):
            raise AttributeError(unknown)
        record = self._find(kind, name)
        if record is None:
            close = suggestion(name, [*core, *self.providers.found()[kind], *self._table.of(kind)])
            raise AttributeError(f"{unknown}. Did you mean {close!r}?" if close else unknown)
        value = self.plugins.load(record)
        if not callable(value):
            raise PluginBroken(
                f"{record.label} names '{record.target}', which cannot be called: its package metadata is wrong."
            )
        return value

    def find_command(self, name: str, *, core: Sequence[str] = ()) -> Any:
        """Load a command of an installed package, a `steppe.cli.Command`.

        Args:
            name: the command after ``steppe`` on the command line.
            core: the names of the core's own commands, for the error.

        Raises:
            PluginNotFound: no installed package has it; the text says which package to install, or a similar name.
            PluginError: its package cannot be used, is hidden, or is one of two with the command.
        """
        record = self._find("command", name)
        if record is None:
            commands = {*core, *self.providers.names("command")}
            hint = did_you_mean(name, [*commands, *self._table.of("command")])
            raise PluginNotFound(f"There is no command {name!r}.{hint} Commands: {listed(commands)}.")
        command = self.plugins.load(record)
        missing = [part for part in ("help", "add_arguments", "run") if not hasattr(command, part)]
        if missing:
            raise PluginBroken(
                f"{record.label} names '{record.target}', which is no command: it has no {joined(missing)}."
            )
        return command

    def _find(self, kind: Kind, name: str) -> PluginRecord | None:
        """Return the plugin that provides a name; None if no known package does."""
        record = self.providers.sole(kind, name)
        if record is None and (package := self.known_package(kind, name)):
            # These groups have agents, actors and readers of infos too.
            noun = "class" if kind in ("collector", "env class") else kind
            errors: dict[str, type[SteppeError]] = {"transform": TransformNotFound, "command": PluginNotFound}
            error = errors.get(kind, ClassNotFound)
            raise error(f"No installed package has the {noun} {name!r}. It is in {package}: {known.install(package)}.")
        return record

    def _with_state(self, record: PluginRecord) -> PluginRecord:
        providers = self.providers.found()[record.kind][record.name]
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
            except PluginError as error:
                state, problem = "broken" if isinstance(error, PluginBroken) else "unmet", str(error)
        return replace(record, state=state, problem=problem)


_registry = Registry()


def current() -> Registry:
    """Return the registry that the functions of `steppe.registry` use."""
    return _registry


@contextmanager
def use(registry: Registry) -> Iterator[Registry]:
    """Replace the registry in a block, for tests."""
    global _registry
    before, _registry = _registry, registry
    try:
        yield registry
    finally:
        _registry = before
