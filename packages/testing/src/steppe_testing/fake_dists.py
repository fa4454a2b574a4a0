"""Fake installed packages: a metadata folder and a few source files each.

They test discovery, conflicts and version checks without building a wheel.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from textwrap import dedent


class FakeDists:
    """Write fake distributions into a folder, one at each call.

    >>> from pathlib import Path
    >>> from steppe.registry import Registry, use
    >>> from steppe_testing import FakeDists
    >>> Path("packages").mkdir()
    >>> dists = FakeDists(Path("packages"))
    >>> _ = dists("steppe-toy", "1.0", envs={"toy": "toy.plugin"}, requires=["toylib>=2"])
    >>> with use(Registry(path=["packages"])) as registry:
    ...     registry.namespaces(), registry.records()[0].requires
    (['toy'], ('toylib>=2',))

    Args:
        path: the folder, which the caller adds to ``sys.path``.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._packages: set[str] = set()

    def __call__(
        self,
        name: str,
        version: str = "1.0",
        *,
        envs: Mapping[str, str] | None = None,
        transforms: Mapping[str, str] | None = None,
        entry_points: Mapping[str, Mapping[str, str]] | None = None,
        requires: Sequence[str] = (),
        extras: Iterable[str] = (),
        files: Mapping[str, str] | None = None,
    ) -> Path:
        """Write a distribution.

        Args:
            name: its name.
            version: its version.
            envs: the entry points of the group ``steppe.envs``.
            transforms: the entry points of the group ``steppe.transforms``.
            entry_points: further groups.
            requires: its ``Requires-Dist``.
            extras: its ``Provides-Extra``.
            files: source files, path -> text. Missing ``__init__.py`` files are added.

        Returns:
            Its metadata folder.
        """
        folder = self.path / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        lines += [f"Requires-Dist: {line}" for line in requires] + [f"Provides-Extra: {extra}" for extra in extras]
        (folder / "METADATA").write_text("\n".join(lines) + "\n")
        groups = {"steppe.envs": envs or {}, "steppe.transforms": transforms or {}, **(entry_points or {})}
        sections = [
            "\n".join([f"[{group}]", *(f"{key} = {value}" for key, value in entries.items())])
            for group, entries in groups.items()
            if entries
        ]
        if sections:
            (folder / "entry_points.txt").write_text("\n".join(sections) + "\n")
        for file, text in (files or {}).items():
            self._write(file, text)
        return folder

    def forget(self) -> None:
        """Remove the modules of these packages from ``sys.modules``."""
        for module in list(sys.modules):
            if module.partition(".")[0] in self._packages:
                del sys.modules[module]

    def _write(self, file: str, text: str) -> None:
        target = self.path / file
        target.parent.mkdir(parents=True, exist_ok=True)
        for parent in target.relative_to(self.path).parents:
            if parent.name:
                (self.path / parent / "__init__.py").touch()
        target.write_text(dedent(text))
        self._packages.add(Path(file).parts[0].removesuffix(".py"))
