"""Mistakes that the records show and that are not fixed yet; the records hold the right data.

Each has an example that is expected to fail. When it does not fail any longer, delete the entry: everything that it
excepts is compared then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase

__all__ = ["KNOWN_WRONG", "Known", "known_of"]

Case = tuple[str, str | None, str, str]


@dataclass(frozen=True)
class Known:
    """A known error.

    Args:
        reason: what is wrong.
        example: environment, chain, way and program in which it shows.
        covers: says of an environment, chain, way and program whether it may show there.
        paths: patterns of the entries that are wrong; None for all of them, or for an error.
    """

    reason: str
    example: Case
    covers: Callable[[str, str | None, str, str], bool]
    paths: tuple[str, ...] | None = None

    def says(self, line: str) -> bool:
        """Whether a line of differences is about an entry that is known to be wrong."""
        path = line.split(":")[0].removesuffix(" is missing").split(" in row ")[0].split(" @")[0]
        return self.paths is None or any(fnmatchcase(path, pattern) for pattern in self.paths)


KNOWN_WRONG: list[Known] = []


def known_of(name: str, chain: str | None, way: str, program: str) -> list[Known]:
    """Return the known errors of a program."""
    return [known for known in KNOWN_WRONG if known.covers(name, chain, way, program)]
