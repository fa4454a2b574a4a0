"""PluginRecord: an installed plugin, as package metadata describes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

#: Makes an environment.
EnvMaker = Callable[..., Any]

Kind = Literal["env", "env class", "transform", "collector", "dataset", "function", "logger", "command"]
State = Literal["available", "blocked", "conflict", "unmet", "loaded", "broken"]

GROUPS: dict[str, Kind] = {
    "steppe.envs": "env",
    "steppe.env_classes": "env class",
    "steppe.transforms": "transform",
    "steppe.collectors": "collector",
    "steppe.functions": "function",
    "steppe.datasets": "dataset",
    "steppe.loggers": "logger",
    "steppe.commands": "command",
}
"""The entry-point groups of plugins, and the kind of plugin in each."""


@dataclass(frozen=True)
class Alternative:
    """One of several sets of requirements, one of which a plugin needs.

    Attributes:
        install: the argument of ``pip install``, such as ``"steppe-gym[gymnasium]"``.
        requires: the requirements, such as ``("gymnasium>=0.28",)``.
    """

    install: str
    requires: tuple[str, ...]


@dataclass(frozen=True)
class LibraryInfo:
    """The installed library of a plugin, as ``steppe_library`` returns it.

    Attributes:
        dist: name of the library's distribution, such as ``"gymnasium"``.
        version: its version.
        module_file: the file of its module, or the folder in which it is installed, or "".
    """

    dist: str
    version: str
    module_file: str = ""


@dataclass(frozen=True)
class PluginRecord:
    """One entry point of an installed package, read from its metadata.

    Attributes:
        kind: the kind of its group in ``GROUPS``.
        name: the namespace of environments or data sets, otherwise the name of a class, function or command.
        target: the value of the entry point, ``"module"`` or ``"module:attribute"``.
        dist: name of the distribution.
        version: version of the distribution.
        location: the folder where it is installed; the source folder of an editable install.
        requires: the requirements of the distribution, lower bounds first.
        alternatives: sets of requirements of which one must be met; may be empty.
        state: ``available``, ``blocked``, ``conflict``, ``unmet``, ``loaded`` or ``broken``.
        problem: the text of the error that its use would raise, or "".
        library: the library that an env plugin reports; only ``steppe plugins --load`` asks for it.
    """

    kind: Kind
    name: str
    target: str
    dist: str
    version: str
    location: str = ""
    requires: tuple[str, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    state: State = "available"
    problem: str = ""
    library: LibraryInfo | None = None

    @property
    def noun(self) -> str:
        """Its kind in errors: ``"Plugin"`` if it makes environments."""
        return "Plugin" if self.kind == "env" else self.kind.capitalize()

    @property
    def label(self) -> str:
        """Its name in errors: ``Plugin 'gym' (steppe-gym 0.1.0)``."""
        return f"{self.noun} {self.name!r} ({self.dist} {self.version})"

    @property
    def module(self) -> str:
        """The module that its entry point names."""
        return self.target.partition(":")[0]

    @property
    def needs(self) -> list[str]:
        """The distributions that it requires, as import names. (Some libraries are imported by another name.)"""
        texts = [*self.requires, *(text for choice in self.alternatives for text in choice.requires)]
        return [requirement_name(text).replace("-", "_") for text in texts]

    @property
    def library_range(self) -> str:
        """The required versions of packages other than steppe, or ""."""
        needed = [text for text in self.requires if requirement_name(text) != "steppe"]
        choice = " or ".join(" and ".join(each.requires) for each in self.alternatives)
        return ", ".join([*needed, choice] if choice else needed)


def requirement_name(text: str) -> str:
    """Return the canonical name at the start of a requirement: ``"dm-control"`` for ``"DM_Control[x]>=1"``."""
    end = next((i for i, char in enumerate(text) if not (char.isalnum() or char in "._-")), len(text))
    return canonical(text[:end])


def canonical(name: str) -> str:
    """Return a distribution's name in normalized form, in which names are compared."""
    return "-".join(part for part in name.lower().replace("_", "-").replace(".", "-").split("-") if part)
