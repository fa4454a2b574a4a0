"""Reads plugin records from package metadata, without importing the packages.

The only module that imports ``importlib_metadata``: the backport knows the folder of an editable install, and behaves
the same on every Python.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from urllib.parse import unquote, urlparse

from importlib_metadata import Distribution, distribution, distributions
from packaging.requirements import InvalidRequirement

from . import requirements
from .messages import suggestion
from .records import GROUPS, Kind, LibraryInfo, PluginRecord, canonical, requirement_name

Records = dict[Kind, dict[str, list[PluginRecord]]]


def scan(*, path: Sequence[str] | None = None, preferred: Mapping[str, Sequence[str]] | None = None) -> Records:
    """Return every plugin on the path, by kind and name. Two records under one name are a conflict.

    A distribution whose metadata cannot be read is left out with a warning.

    Args:
        path: folders to search; None for ``sys.path``.
        preferred: the alternatives of a distribution, by its name, in the order in which to suggest them.
    """
    records: Records = {kind: {} for kind in GROUPS.values()}
    seen: set[str] = set()
    for dist in _discover(path):
        try:
            # Searching one small file for a word is far cheaper than parsing every package's metadata.
            if "steppe." not in (dist.read_text("entry_points.txt") or ""):
                continue
            fields = _fields(dist)
            name = canonical(fields["name"][0])
            if name in seen:  # an earlier folder of the path has it
                continue
            plugins = list(_records(dist, fields, preferred or {}))
        except Exception as error:
            warnings.warn(
                f"steppe leaves out a package in {dist.locate_file('')}: its metadata cannot be read "
                f"({type(error).__name__}: {error})",
                RuntimeWarning,
                stacklevel=2,
            )
            continue
        seen.add(name)
        for record in plugins:
            same_name = records[record.kind].setdefault(record.name, [])
            if record not in same_name:
                same_name.append(record)
    return records


def installed(name: str, *, path: Sequence[str] | None = None) -> requirements.Installed | None:
    """Return the version and the folder of an installed distribution; None if it is not installed."""
    for dist in _discover(path, name=name):
        try:
            return requirements.Installed(_fields(dist)["version"][0], str(dist.locate_file("")))
        except KeyError:
            continue  # left by an interrupted installation
    return None


def steppe_version() -> str:
    """Return the version of the running steppe, or ``"0+unknown"`` if it is not installed as a package."""
    package = installed("steppe")
    return "0+unknown" if package is None else package.version


def misspelt_groups(*, path: Sequence[str] | None = None) -> str:
    """Describe the entry-point groups whose names are close to one of steppe's, each after a space; "" if none is."""
    hints = ""
    for dist in _discover(path):
        for group in sorted({entry.group for entry in dist.entry_points} - {*GROUPS}):
            if group.startswith("steppe.") and (close := suggestion(group, GROUPS, cutoff=0.75)):
                hints += (
                    f" {dist.name} has entry points in the group {group!r}, which does not exist: write "
                    f'[project.entry-points."{close}"] in its pyproject.toml, and install it again.'
                )
    return hints


def installed_library(dist: str, module: str) -> LibraryInfo:
    """Describe an installed library by its metadata, without importing it, for the hook ``steppe_library``.

    Args:
        dist: name of the distribution.
        module: its top-level module.

    Raises:
        importlib_metadata.PackageNotFoundError: it is not installed.
    """
    spec = find_spec(module)
    return LibraryInfo(dist, distribution(dist).version, (spec.origin or "") if spec is not None else "")


def required_library(record: PluginRecord, *, path: Sequence[str] | None = None) -> LibraryInfo | None:
    """Describe the library that a plugin requires: the one with the name of its namespace, or the only one."""
    needs = {requirement_name(text) for text in record.requires} - {"steppe", "torch", "tensordict", "numpy"}
    libraries = {name for name in needs if not name.startswith("steppe-")}
    chosen = libraries & {canonical(record.name)} or libraries
    dist = chosen.pop() if len(chosen) == 1 else ""
    package = installed(dist, path=path) if dist else None
    return LibraryInfo(dist, package.version, package.location) if package else None


def _fields(dist: Distribution) -> dict[str, list[str]]:
    """Return the header fields of a distribution's metadata, by lower-case name.

    Raises:
        KeyError: the metadata has no name or version.
    """
    # Distribution.metadata would parse these lines with the email package, which takes half the time of a listing.
    # Libraries that an old setuptools installed have PKG-INFO, in a folder X.egg-info or as a file of that name.
    text = dist.read_text("METADATA") or dist.read_text("PKG-INFO") or dist.read_text("") or ""
    fields: dict[str, list[str]] = {}
    for line in text.partition("\n\n")[0].splitlines():
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
        needed, choices = tuple(lines), ()  # check() raises the error when the plugin is used
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


def _discover(path: Sequence[str] | None, **context: str) -> Iterator[Distribution]:
    return iter(distributions(**context) if path is None else distributions(path=list(path), **context))
