"""The names that first-party packages provide, and how to install each package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from . import _known_table
from .records import Kind


class Provider(NamedTuple):
    """A first-party package.

    Attributes:
        package: its distribution, such as ``"steppe-vision"``.
        extra: the extra of steppe that installs it, such as ``"vision"``.
    """

    package: str
    extra: str


@dataclass(frozen=True)
class Known:
    """A table of known names.

    Attributes:
        names: packages by kind of plugin and name.
        alternatives: by distribution, the extras of which one is needed, the preferred one first. Some build tools sort
            requirements, so the metadata may have them in another order.
    """

    names: Mapping[Kind, Mapping[str, Provider]] = field(default_factory=dict)
    alternatives: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def of(self, kind: Kind) -> Mapping[str, Provider]:
        """The known names of a kind of plugin."""
        return self.names.get(kind, {})


_KINDS: dict[Kind, dict[str, tuple[str, str]]] = {
    "env": _known_table.NAMESPACES,
    "env class": _known_table.ENV_CLASSES,
    "transform": _known_table.TRANSFORMS,
    "collector": _known_table.COLLECTORS,
    "logger": _known_table.LOGGERS,
    "command": _known_table.COMMANDS,
}

FIRST_PARTY = Known(
    names={kind: {name: Provider(*value) for name, value in table.items()} for kind, table in _KINDS.items()},
    alternatives=_known_table.ALTERNATIVES,
)
"""The table of the packages that are developed together with steppe."""
