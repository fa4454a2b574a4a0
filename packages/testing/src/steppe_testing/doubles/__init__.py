"""Doubles of libraries that cannot be installed here, built from the libraries' published sources.

A double has the names, arguments, dtypes, shapes and habits of a library, with a small simulation in it. It is
installed for one process and its workers::

    with installed("isaacgym"):
        env = make_env("isaacgym:Cartpole", num_envs=4, device="cpu")

It stands for what its library does. It cannot show that the library does not do something else.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module, invalidate_caches
from pathlib import Path
from typing import NamedTuple

from steppe_testing.fake_dists import FakeDists

__all__ = ["DOUBLES", "Double", "installed", "write"]


class Double(NamedTuple):
    """The files of a double.

    Attributes:
        dists: versions of the distributions of the library, by name.
        files: source files, path -> text. They import the simulation from this package.
    """

    dists: Mapping[str, str]
    files: Mapping[str, str]


#: The modules of this package that define ``DOUBLE``, by the name of the library.
DOUBLES = ("habitat", "isaacgym", "isaaclab", "robohive", "smacv2")


def write(name: str, folder: Path) -> Path:
    """Write the packages of a double into a folder, which works on ``sys.path`` as an installation of the library.

    Args:
        name: one of ``DOUBLES``.
        folder: an existing folder.

    Returns:
        The folder.
    """
    double: Double = import_module(f"{__name__}.{name}_double").DOUBLE
    dists = FakeDists(folder)
    names = list(double.dists)
    for dist in names[1:]:
        dists(dist, double.dists[dist])
    dists(names[0], double.dists[names[0]], files=double.files)
    return folder


@contextmanager
def installed(name: str) -> Iterator[Path]:
    """Install a double while the block runs, in this process and in workers that it starts.

    Args:
        name: one of ``DOUBLES``.

    Yields:
        The folder of its packages.
    """
    from steppe.registry import refresh

    with tempfile.TemporaryDirectory(prefix=f"double-{name}-") as folder:
        path = write(name, Path(folder))
        modules = {file.name.removesuffix(".py") for file in path.iterdir() if not file.name.endswith(".dist-info")}
        sys.path.insert(0, folder)
        invalidate_caches()
        refresh()
        try:
            yield path
        finally:
            sys.path.remove(folder)
            for module in list(sys.modules):
                if module.partition(".")[0] in modules:
                    del sys.modules[module]
            invalidate_caches()
            refresh()
