"""Package metadata to plugin records. Nothing that is found is imported.

The only module that imports ``importlib_metadata``: the backport knows where an editable install comes from, and
behaves alike on every Python.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import unquote, urlparse

from importlib_metadata import Distribution, PackageNotFoundError, distributions
from packaging.requirements import InvalidRequirement

from . import requirements
from .records import GROUPS, Kind, PluginRecord, canonical

Records = dict[Kind, dict[str, list[PluginRecord]]]


def scan(*, path: Sequence[str] | None = None, preferred: Mapping[str, Sequence[str]] | None = None) -> Records:
    """Every plugin on the path, by kind and name. Two records under one name are a conflict.

    A distribution whose metadata cannot be read is left out with a warning; the others are found.

    Args:
        path: folders to look in; None for ``sys.path``.
        preferred: distribution -> its alternatives in the order in which they should be offered.
    """
    records: Records = {kind: {} for kind in GROUPS.values()}
    seen: set[str] = set()
    for dist in _discover(path):
        try:
            # Reading one small file and looking for a word is far cheaper than parsing every package's metadata.
            if "steppe." not in (dist.read_text("entry_points.txt") or ""):
                continue
            name = canonical(dist.name)
            if name in seen or _shadowed(dist, path):
                continue
            found = list(_records(dist, preferred or {}))
        except Exception as error:
            warnings.warn(
                f"steppe leaves out a package in {dist.locate_file('')}: its metadata cannot be read "
                f"({type(error).__name__}: {error})",
                RuntimeWarning,
                stacklevel=2,
            )
            continue
        seen.add(name)
        for record in found:
            same_name = records[record.kind].setdefault(record.name, [])
            if record not in same_name:
                same_name.append(record)
    return records


def installed(name: str, *, path: Sequence[str] | None = None) -> requirements.Installed | None:
    """The version of an installed distribution and the folder it is in; None where it is not installed."""
    dist = _first(name, path)
    if dist is None:
        return None
    try:
        version = dist.version
    except (KeyError, FileNotFoundError):  # what an interrupted installation leaves behind
        version = "unknown"
    return requirements.Installed(version or "unknown", str(dist.locate_file("")))


def steppe_version() -> str:
    """The version of steppe that is running, or ``"0+unknown"`` where it runs without being installed."""
    try:
        return Distribution.from_name("steppe").version
    except PackageNotFoundError:
        return "0+unknown"


def _records(dist: Distribution, preferred: Mapping[str, Sequence[str]]) -> Iterator[PluginRecord]:
    name = dist.name
    lines = dist.requires or []
    extras = dist.metadata.get_all("Provides-Extra") or []
    try:
        needed, choices = requirements.split(name, lines, extras=extras, preferred=preferred.get(canonical(name), ()))
    except InvalidRequirement:
        needed, choices = tuple(lines), ()  # check() says so when the plugin is asked for
    for entry in dist.entry_points:
        if kind := GROUPS.get(entry.group):
            yield PluginRecord(
                kind=kind,
                name=entry.name,
                target=entry.value.partition("[")[0].replace(" ", ""),
                dist=name,
                version=dist.version,
                location=_location(dist),
                requires=needed,
                alternatives=choices,
            )


def _location(dist: Distribution) -> str:
    origin = dist.origin
    if getattr(getattr(origin, "dir_info", None), "editable", False):
        return unquote(urlparse(origin.url).path)
    return str(dist.locate_file(""))


def _shadowed(dist: Distribution, path: Sequence[str] | None) -> bool:
    """Whether another version of the same distribution stands earlier on the path."""
    first = _first(dist.name, path)
    return first is not None and str(first.locate_file("")) != str(dist.locate_file(""))


def _first(name: str, path: Sequence[str] | None) -> Distribution | None:
    return next(iter(_discover(path, name=name)), None)


def _discover(path: Sequence[str] | None, **context: str) -> Iterator[Distribution]:
    return iter(distributions(**context) if path is None else distributions(path=list(path), **context))
