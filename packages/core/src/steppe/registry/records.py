"""What is known about an installed plugin without importing it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["env", "transform", "collector", "logger", "command"]
State = Literal["available", "blocked", "conflict", "unmet", "loaded", "broken"]

GROUPS: dict[str, Kind] = {
    "steppe.envs": "env",
    "steppe.transforms": "transform",
    "steppe.collectors": "collector",
    "steppe.loggers": "logger",
    "steppe.commands": "command",
}
"""The entry-point groups that are read, and the kind of plugin in each."""


@dataclass(frozen=True)
class Alternative:
    """One of several sets of requirements of which a plugin needs any.

    Attributes:
        install: what to give pip, such as ``"steppe-gym[gymnasium]"``.
        requires: the requirements, such as ``("gymnasium>=0.28",)``.
    """

    install: str
    requires: tuple[str, ...]


@dataclass(frozen=True)
class LibraryInfo:
    """The library behind a plugin, as it is now: what ``steppe_library`` returns.

    Attributes:
        dist: name of the library's distribution, such as ``"gymnasium"``.
        version: its version.
        module_file: the file of its module, or "" where there is none.
    """

    dist: str
    version: str
    module_file: str = ""


@dataclass(frozen=True)
class PluginRecord:
    """One entry point of an installed package, read from its metadata.

    Attributes:
        kind: ``"env"``, ``"transform"``, ``"collector"``, ``"logger"`` or ``"command"``.
        name: the namespace of an env plugin, the class name of a transform, collector or logger, the name of a
            command.
        target: what the entry point names, ``"module"`` or ``"module:attribute"``.
        dist: name of the distribution.
        version: version of the distribution.
        location: the folder it is installed in; of an editable install, its source folder.
        requires: what the distribution needs, lower bounds first.
        alternatives: sets of requirements of which one must hold; empty where there is no choice.
        state: ``available``, ``blocked``, ``conflict``, ``unmet``, ``loaded`` or ``broken``.
        problem: the text of the error that using it would raise, or "".
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

    @property
    def subject(self) -> str:
        """How errors call it: ``Plugin 'gym' (steppe-gym 0.1.0)``."""
        return (
            f"{'Plugin' if self.kind == 'env' else self.kind.capitalize()} {self.name!r} ({self.dist} {self.version})"
        )

    @property
    def library_range(self) -> str:
        """The versions of other packages that it takes, steppe's own left out; "" where it needs nothing else."""
        own = [text for text in self.requires if requirement_name(text) != "steppe"]
        choice = " or ".join(" and ".join(one.requires) for one in self.alternatives)
        return ", ".join([*own, choice] if choice else own)


def requirement_name(text: str) -> str:
    """The canonical name at the start of a requirement: ``"dm-control"`` for ``"DM_Control[x]>=1"``."""
    end = next((i for i, char in enumerate(text) if not (char.isalnum() or char in "._-")), len(text))
    return canonical(text[:end])


def canonical(name: str) -> str:
    """A distribution's name in the one form in which names are compared."""
    return "-".join(part for part in name.lower().replace("_", "-").replace(".", "-").split("-") if part)
