"""Half-open intervals of versions."""

from __future__ import annotations

from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

__all__ = ["VersionRange"]


@dataclass(frozen=True)
class VersionRange:
    """The versions ``lower <= v < upper`` in the order of PEP 440; None means no bound.

    A pre-release comes before its release: 1.0.0rc1 is inside ``<1.0.0`` and outside ``>=1.0.0``. To include the
    pre-releases of a lower bound, write ``"1.0.0a0"``.
    """

    lower: Version | None = None
    upper: Version | None = None

    def __post_init__(self) -> None:
        if self.lower is not None and self.upper is not None and self.lower >= self.upper:
            raise ValueError(f"No version is >={self.lower} and <{self.upper}: to_version must be above from_version.")

    @classmethod
    def parse(cls, from_version: str | None, to_version: str | None) -> VersionRange:
        """Parse both bounds.

        Args:
            from_version: the first version inside the range, or None.
            to_version: the first version after the range, or None.

        Raises:
            ValueError: a bound is not a version, or the range is empty.
        """
        return cls(_parse(from_version), _parse(to_version))

    def __contains__(self, version: Version) -> bool:
        return (self.lower is None or version >= self.lower) and (self.upper is None or version < self.upper)

    def overlaps(self, other: VersionRange) -> bool:
        """Whether both ranges have a version in common."""
        return (self.lower is None or other.upper is None or self.lower < other.upper) and (
            other.lower is None or self.upper is None or other.lower < self.upper
        )

    def __str__(self) -> str:
        """The range as in a requirement: ``>=0.13,<0.26``; empty without bounds."""
        parts = [f">={self.lower}"] if self.lower is not None else []
        if self.upper is not None:
            parts.append(f"<{self.upper}")
        return ",".join(parts)


def _parse(bound: str | None) -> Version | None:
    if bound is None:
        return None
    try:
        return Version(bound)
    except (InvalidVersion, TypeError) as error:
        raise ValueError(f"{bound!r} is not a version. Write it as in '0.26.0'.") from error
