"""What a plugin requires, read from its metadata, against what is installed.

``Requires-Dist`` is the only place where the versions of a wrapped library stand. A plugin that needs one of several
libraries lists them in an extra named ``any-of``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from ..errors import LibraryMissing, LibraryVersionError, PluginBroken, PluginIncompatible
from . import messages
from .records import Alternative, PluginRecord, canonical

ANY_OF = "any-of"
_OPERATORS = ("===", "==", "~=", ">=", ">", "!=", "<=", "<")


class Installed(NamedTuple):
    """A distribution that is installed: its version and the folder it is in."""

    version: str
    location: str


def split(
    dist: str, lines: Sequence[str], *, extras: Iterable[str], preferred: Sequence[str] = ()
) -> tuple[tuple[str, ...], tuple[Alternative, ...]]:
    """Part a distribution's requirements into what it always needs and what it needs one of.

    ``any-of`` may refer to other extras (``"steppe-gym[gymnasium]"``) or hold what they hold, as build tools flatten
    it; both give the same alternatives.

    Args:
        dist: name of the distribution.
        lines: its ``Requires-Dist``.
        extras: its ``Provides-Extra``.
        preferred: extras in the order in which they should be offered; others follow in metadata order.

    Raises:
        InvalidRequirement: a line cannot be read.
    """
    parsed = [Requirement(line) for line in lines]
    needed = [one for one in parsed if _active(one, "")]
    optional = [one for one in parsed if not _active(one, "")]

    def of_extra(name: str, seen: frozenset[str] = frozenset()) -> list[Requirement]:
        found = []
        for one in optional:
            if not _active(one, name):
                continue
            if canonical(one.name) != canonical(dist):
                found.append(one)
            else:
                found += [deep for extra in one.extras - seen for deep in of_extra(extra, seen | {name, extra})]
        return found

    choices: list[Alternative] = []
    flat: dict[str, Requirement] = {}
    for one in optional:
        if not _active(one, ANY_OF):
            continue
        if canonical(one.name) == canonical(dist):
            held = [deep for extra in sorted(one.extras) for deep in of_extra(extra)]
            choices.append(Alternative(f"{dist}[{','.join(sorted(one.extras))}]", tuple(map(requirement_text, held))))
        else:
            flat[requirement_text(one)] = one
    for extra in extras:
        texts = tuple(map(requirement_text, of_extra(extra)))
        if canonical(extra) != ANY_OF and texts and all(text in flat for text in texts):
            choices.append(Alternative(f"{dist}[{extra}]", texts))
    grouped = {text for choice in choices for text in choice.requires}
    choices += [Alternative(text, (text,)) for text in flat if text not in grouped]

    order = {f"{dist}[{extra}]": rank for rank, extra in enumerate(preferred)}
    choices.sort(key=lambda choice: order.get(choice.install, len(order)))
    return tuple(map(requirement_text, needed)), tuple(choices)


def check(record: PluginRecord, *, installed: Callable[[str], Installed | None], steppe_version: str | None) -> None:
    """Raise the error of the first requirement that does not hold; nothing is imported.

    Args:
        record: the plugin.
        installed: gives a distribution's version and location, or None where it is not installed.
        steppe_version: the running steppe; None where it is unknown, and then not checked.

    Raises:
        PluginIncompatible: it was written for another steppe.
        LibraryMissing: a library is not installed.
        LibraryVersionError: a library is installed in a version outside the plugin's range.
        PluginBroken: a requirement cannot be read.
    """
    try:
        needed = [Requirement(text) for text in record.requires]
        choices = [[Requirement(text) for text in choice.requires] for choice in record.alternatives]
    except InvalidRequirement as error:
        raise PluginBroken(messages.bad_requirements(record.subject, cause=error)) from error
    missing = []
    for one in needed:
        if canonical(one.name) == "steppe":
            _check_steppe(record, one, steppe_version)
        elif installed(one.name) is None:
            missing.append(requirement_text(one))
    if missing:
        raise LibraryMissing(messages.library_missing(record.subject, missing=missing))
    for one in needed:
        found = installed(one.name)
        if canonical(one.name) != "steppe" and found is not None and not _within(one.specifier, found.version):
            text = requirement_text(one)
            raise LibraryVersionError(_version_text(record, one, found, supported=text, install=text))
    if choices:
        _check_choices(record, choices, installed)


def _check_steppe(record: PluginRecord, needs: Requirement, running: str | None) -> None:
    if running is None or _within(needs.specifier, running):
        return
    uppers = [Version(s.version) for s in needs.specifier if s.operator in ("<", "<=")]
    newer = any(Version(running) >= upper for upper in uppers)
    text = messages.other_steppe(
        record.subject, needs=requirement_text(needs), running=running, dist=record.dist, newer_runs=newer
    )
    raise PluginIncompatible(text)


def _check_choices(
    record: PluginRecord, choices: list[list[Requirement]], installed: Callable[[str], Installed | None]
) -> None:
    wrong: tuple[Requirement, Installed] | None = None
    for choice in choices:
        found = [(one, installed(one.name)) for one in choice]
        outside = [(one, here) for one, here in found if here and not _within(one.specifier, here.version)]
        if not outside and all(here for _, here in found):
            return
        if outside and wrong is None:
            wrong = outside[0]
    shown = [" and ".join(map(requirement_text, choice)) for choice in choices]
    install = record.alternatives[0].install
    if wrong is None:
        raise LibraryMissing(messages.none_of_several(record.subject, alternatives=shown, install=install))
    supported = " or ".join(shown)
    raise LibraryVersionError(_version_text(record, *wrong, supported=supported, install=install))


def _version_text(record: PluginRecord, one: Requirement, found: Installed, *, supported: str, install: str) -> str:
    return messages.version_unsupported(
        record.subject,
        supported=supported,
        library=one.name,
        version=found.version,
        where=found.location,
        install=install,
    )


def requirement_text(requirement: Requirement) -> str:
    """A requirement as a person writes it, without its marker and lower bounds first: ``"gym>=0.13,<0.27"``."""
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    if requirement.url:
        return f"{requirement.name}{extras} @ {requirement.url}"
    ordered = sorted(requirement.specifier, key=lambda one: (_OPERATORS.index(one.operator), one.version))
    return f"{requirement.name}{extras}{','.join(map(str, ordered))}"


def _active(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def _within(specifier: SpecifierSet, version: str) -> bool:
    try:
        return specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:  # not a version that could be compared: let the plugin find out
        return True
