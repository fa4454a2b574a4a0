"""Compares a plugin's requirements, from its metadata, with what is installed.

The versions of a wrapped library that a plugin supports are in its ``Requires-Dist`` only. A plugin that needs one of
several libraries lists them in an extra named ``any-of``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from ..errors import LibraryMissing, LibraryVersionError, PluginBroken, PluginIncompatible
from .messages import joined
from .records import Alternative, PluginRecord, canonical

ANY_OF = "any-of"
_OPERATORS = ("===", "==", "~=", ">=", ">", "!=", "<=", "<")


class Installed(NamedTuple):
    """Version and folder of an installed distribution."""

    version: str
    location: str


def split(
    dist: str, lines: Sequence[str], *, extras: Iterable[str], preferred: Sequence[str] = ()
) -> tuple[tuple[str, ...], tuple[Alternative, ...]]:
    """Split a distribution's requirements into those that it always needs, and alternatives of which it needs one.

    ``any-of`` may refer to other extras (``"steppe-gym[gymnasium]"``), or contain their requirements, because build
    tools flatten it; both give the same alternatives.

    Args:
        dist: name of the distribution.
        lines: its ``Requires-Dist``.
        extras: its ``Provides-Extra``.
        preferred: extras in the order in which to suggest them; others follow in the order of ``any-of``.

    Raises:
        InvalidRequirement: a line cannot be parsed.
    """
    parsed = [Requirement(line) for line in lines]
    needed = [requirement for requirement in parsed if _active(requirement, "")]
    optional = [requirement for requirement in parsed if not _active(requirement, "")]

    def of_extra(extra: str, seen: frozenset[str] = frozenset()) -> list[str]:
        texts = []
        for requirement in optional:
            if not _active(requirement, extra):
                continue
            if canonical(requirement.name) != canonical(dist):
                texts.append(requirement_text(requirement))
            else:
                for other in sorted(requirement.extras - seen):
                    texts += of_extra(other, seen | {extra, other})
        return texts

    any_of = of_extra(ANY_OF)
    choices: dict[tuple[str, ...], str] = {}
    for extra in extras:
        texts = tuple(of_extra(extra))
        if canonical(extra) != ANY_OF and texts and set(texts).issubset(any_of):
            choices.setdefault(texts, f"{dist}[{extra}]")
    grouped = {text for texts in choices for text in texts}
    choices.update({(text,): text for text in any_of if text not in grouped})

    order = {f"{dist}[{extra}]": rank for rank, extra in enumerate(preferred)}
    alternatives = [Alternative(install, texts) for texts, install in choices.items()]
    alternatives.sort(key=lambda one: (order.get(one.install, len(order)), any_of.index(one.requires[0])))
    return tuple(map(requirement_text, needed)), tuple(alternatives)


def check(record: PluginRecord, *, installed: Callable[[str], Installed | None], steppe_version: str | None) -> None:
    """Raise the error of the first requirement that is not met; nothing is imported.

    Args:
        record: the plugin.
        installed: returns the version and folder of a distribution, or None.
        steppe_version: the running steppe; not checked if it is None.

    Raises:
        PluginIncompatible: it was written for another steppe.
        LibraryMissing: a library is not installed.
        LibraryVersionError: the plugin does not support the installed version of a library.
        PluginBroken: a requirement cannot be parsed.
    """
    try:
        needed = [Requirement(text) for text in record.requires]
        choices = [[Requirement(text) for text in choice.requires] for choice in record.alternatives]
    except InvalidRequirement as error:
        raise PluginBroken(
            f"{record.label} has a requirement that cannot be read ({error}): its package metadata is wrong."
        ) from error
    libraries = []
    for requirement in needed:
        if canonical(requirement.name) == "steppe":
            _check_steppe(record, requirement, steppe_version)
        else:
            libraries.append((requirement, installed(requirement.name)))
    missing = [requirement_text(requirement) for requirement, library in libraries if library is None]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        pip = "pip install " + " ".join(f"'{text}'" for text in missing)
        raise LibraryMissing(f"{record.label} needs {joined(missing)}, which {verb} not installed: {pip}.")
    for requirement, library in libraries:
        if library is not None and not _within(requirement.specifier, library.version):
            text = requirement_text(requirement)
            raise LibraryVersionError(_version_text(record, requirement, library, supported=text, install=text))
    if choices:
        _check_choices(record, choices, installed)


def _check_steppe(record: PluginRecord, needs: Requirement, running: str | None) -> None:
    if running is None or _within(needs.specifier, running):
        return
    uppers = [Version(s.version) for s in needs.specifier if s.operator in ("<", "<=")]
    newer = any(Version(running) >= upper for upper in uppers)
    text, dist = requirement_text(needs), record.dist
    if newer:
        fix = f"pip install -U {dist}, or pip install '{text}'"
    else:
        article = "an" if dist[:1].lower() in "aeio" else "a"
        fix = f"pip install -U '{text}', or {article} {dist} made for {'.'.join(running.split('.')[:2])}"
    raise PluginIncompatible(f"{record.label} was written for {text}, but steppe {running} is running: {fix}.")


def _check_choices(
    record: PluginRecord, choices: list[list[Requirement]], installed: Callable[[str], Installed | None]
) -> None:
    wrong: tuple[Requirement, Installed] | None = None
    for choice in choices:
        candidates = [(requirement, installed(requirement.name)) for requirement in choice]
        outside = [
            (requirement, here)
            for requirement, here in candidates
            if here and not _within(requirement.specifier, here.version)
        ]
        if not outside and all(here for _, here in candidates):
            return
        if outside and wrong is None:
            wrong = outside[0]
    supported = " or ".join(" and ".join(map(requirement_text, choice)) for choice in choices)
    install = record.alternatives[0].install
    if wrong is None:
        absent = {1: "it is not", 2: "neither is"}.get(len(choices), "none of them is")
        raise LibraryMissing(f"{record.label} needs {supported}; {absent} installed: pip install '{install}'.")
    raise LibraryVersionError(_version_text(record, *wrong, supported=supported, install=install))


def _version_text(
    record: PluginRecord, requirement: Requirement, library: Installed, *, supported: str, install: str
) -> str:
    return (
        f"{record.label} supports {supported}, but {requirement.name} {library.version} is installed in "
        f"{library.location}: pip install '{install}'."
    )


def requirement_text(requirement: Requirement) -> str:
    """Return a requirement without its marker, lower bounds first: ``"gym>=0.13,<0.27"``."""
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
    except InvalidVersion:  # it cannot be compared: the plugin will notice
        return True
