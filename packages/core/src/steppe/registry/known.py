"""The names that first-party packages provide, installed or not, and the extra that brings each."""

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
        extra: the extra of steppe that brings it, such as ``"vision"``.
    """

    package: str
    extra: str


@dataclass(frozen=True)
class Known:
    """A table of known names.

    Attributes:
        namespaces: namespace -> package.
        transforms: class name -> package.
        loggers: class name -> package.
        alternatives: distribution -> its extras of which one is needed, the preferred first. Some build tools sort
            requirements, so that the order in which the author wrote them is not in the metadata.
    """

    namespaces: Mapping[str, Provider] = field(default_factory=dict)
    transforms: Mapping[str, Provider] = field(default_factory=dict)
    loggers: Mapping[str, Provider] = field(default_factory=dict)
    alternatives: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def of(self, kind: Kind) -> Mapping[str, Provider]:
        """The names of a kind of plugin."""
        return {"env": self.namespaces, "transform": self.transforms, "logger": self.loggers}[kind]


FIRST_PARTY = Known(
    namespaces={name: Provider(*value) for name, value in _known_table.NAMESPACES.items()},
    transforms={name: Provider(*value) for name, value in _known_table.TRANSFORMS.items()},
    loggers={name: Provider(*value) for name, value in _known_table.LOGGERS.items()},
    alternatives=_known_table.ALTERNATIVES,
)
"""The packages that are developed together with steppe."""
