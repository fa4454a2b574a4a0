"""Package metadata to plugin records. Nothing that is found is imported.

The only module that imports ``importlib_metadata``: the backport knows where an editable install comes from, and
behaves alike on every Python.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from urllib.parse import unquote, urlparse

from importlib_metadata import Distribution, distribution, distributions
from packaging.requirements import InvalidRequirement

from . import requirements
from .records import GROUPS, Kind, LibraryInfo, PluginRecord, canonical

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
            fields = _fields(dist)
            name = canonical(fields["name"][0])
            if name in seen or _shadowed(dist, name, path):
                continue
            found = list(_records(dist, fields, preferred or {}))
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
    unreadable = None
    for dist in _discover(path, name=name):
        location = str(dist.locate_file(""))
        try:
            return requirements.Installed(_fields(dist)["version"][0], location)
        except (KeyError, FileNotFoundError):  # what an interrupted installation leaves behind
            unreadable = requirements.Installed("unknown", location)
    return unreadable


def steppe_version() -> str:
    """The version of steppe that is running, or ``"0+unknown"`` where it runs without being installed."""
    found = installed("steppe")
    return "0+unknown" if found is None else found.version


def installed_library(dist: str, module: str) -> LibraryInfo:
    """Describe an installed library by its metadata, without importing it: what ``steppe_library`` may return.

    Args:
        dist: name of its distribution.
        module: its top-level module.

    Raises:
        importlib_metadata.PackageNotFoundError: it is not installed.
    """
    found = find_spec(module)
    return LibraryInfo(dist, distribution(dist).version, (found.origin or "") if found is not None else "")


def _fields(dist: Distribution) -> dict[str, list[str]]:
    """The fields at the head of a distribution's metadata, by lower-case name.

    Raises:
        FileNotFoundError: it has none.
        KeyError: it has no name or version.
    """
    text = dist.read_text("METADATA")
    if text is None:  # an egg, or nothing at all
        found = dist.metadata
        lines = [f"{name}: {found[name]}" for name in ("Name", "Version") if found[name]]
        lines += [f"Requires-Dist: {line}" for line in dist.requires or []]
    else:
        # Distribution.metadata takes the whole of the email package to read these lines: half of what a listing costs.
        lines = text.partition("\n\n")[0].splitlines()
    fields: dict[str, list[str]] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            fields.setdefault(name.strip().lower(), []).append(value.strip())
    for name in ("name", "version"):
        if not fields.get(name):
            raise KeyError(f"no field {name!r}")
    return fields


def _records(
    dist: Distribution, fields: Mapping[str, list[str]], preferred: Mapping[str, Sequence[str]]
) -> Iterator[PluginRecord]:
    name, lines, extras = fields["name"][0], fields.get("requires-dist", []), fields.get("provides-extra", [])
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
                version=fields["version"][0],
                location=_location(dist),
                requires=needed,
                alternatives=choices,
            )


def _location(dist: Distribution) -> str:
    origin = dist.origin if "editable" in (dist.read_text("direct_url.json") or "") else None
    if origin is not None and getattr(getattr(origin, "dir_info", None), "editable", False):
        return unquote(urlparse(origin.url).path)
    return str(dist.locate_file(""))


def _shadowed(dist: Distribution, name: str, path: Sequence[str] | None) -> bool:
    """Whether another version of the same distribution stands earlier on the path."""
    first = _first(name, path)
    return first is not None and str(first.locate_file("")) != str(dist.locate_file(""))


def _first(name: str, path: Sequence[str] | None) -> Distribution | None:
    return next(iter(_discover(path, name=name)), None)


def _discover(path: Sequence[str] | None, **context: str) -> Iterator[Distribution]:
    return iter(distributions(**context) if path is None else distributions(path=list(path), **context))
