"""The names that first-party packages provide, installed or not: ``known.json``, which ``nox -s sync`` writes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .records import Kind


@dataclass(frozen=True)
class Known:
    """A table of known names.

    Attributes:
        names: distributions by kind of plugin and name.
        alternatives: by distribution, the extras of which one is needed, the preferred one first. Some build tools sort
            requirements, so the metadata may have them in another order.
    """

    names: Mapping[Kind, Mapping[str, str]] = field(default_factory=dict)
    alternatives: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def of(self, kind: Kind) -> Mapping[str, str]:
        """The known names of a kind of plugin, and the distribution of each."""
        return self.names.get(kind, {})


def install(package: str) -> str:
    """Return the command that installs a first-party package: each is an extra of steppe without its prefix."""
    return f"pip install 'steppe[{package.removeprefix('steppe-')}]'"


#: Namespaces by other names of their libraries, for suggestions.
LIBRARIES = {"gymnasium": "gym", "dm_control": "dm", "dm-control": "dm", "dmc": "dm", "mo-gymnasium": "mo-gym"}

FIRST_PARTY = Known(**json.loads(Path(__file__).with_name("known.json").read_text(encoding="utf-8")))
"""The table of the packages that are developed together with steppe."""
