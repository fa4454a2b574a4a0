"""The formats in which ``steppe collect`` writes: a folder of tensordict, an HDF5 file, or a data set of Minari."""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from steppe.cli import UsageError, one_line
from steppe.errors import SteppeError
from steppe.registry import find_class

if TYPE_CHECKING:  # wrong arguments are reported without torch
    from tensordict import TensorDictBase

__all__ = ["FORMATS", "Target", "make_target"]

FORMATS = ("memmap", "minari", "hdf5")


class Target(Protocol):
    """Where collected data goes.

    Attributes:
        shown: where it is in the end, for the report.
    """

    shown: str

    def begin(self) -> Path:
        """Return the folder in which the data is collected, as a memory-mapped TensorDict."""

    def write(self, data: TensorDictBase) -> None:
        """Write all data ``[n, rows]``, which is in the folder."""

    def clean(self) -> None:
        """Remove temporary files."""


def make_target(args: argparse.Namespace) -> Target:
    """Return the target of a command line; nothing is written yet.

    Raises:
        UsageError: the target exists, or needs a package that is not installed.
    """
    kinds: dict[str, Any] = {"memmap": _Memmap, "minari": _Minari, "hdf5": _Hdf5}
    target: Target = kinds[args.format](args)
    return target


class _Memmap:
    """The folder itself."""

    def __init__(self, args: argparse.Namespace) -> None:
        _check_folder(args.out, overwrite=args.overwrite)
        self._out: Path = args.out
        self.shown = str(args.out)

    def begin(self) -> Path:
        return self._out

    def write(self, data: TensorDictBase) -> None:
        pass

    def clean(self) -> None:
        pass


class _Converted:
    """A format to which the data is converted when it is complete.

    Args:
        parent: the folder for temporary files; None: that of the system.
    """

    def __init__(self, parent: Path | None) -> None:
        self._parent, self._work = parent, Path()
        self._failed = False

    def begin(self) -> Path:
        self._work = Path(tempfile.mkdtemp(prefix=".steppe-collect-", dir=self._parent))
        return self._work / "frames"

    def write(self, data: TensorDictBase) -> None:
        try:
            self.convert(data)
        except Exception as error:
            # Frames may have taken hours: they are kept in the format in which they are.
            self._failed = True
            raise UsageError(
                f"the frames cannot be converted: {type(error).__name__}: {one_line(str(error))}; they are kept in "
                f"{str(self._work / 'frames')!r}, which TensorDict.load_memmap reads"
            ) from error

    def convert(self, data: TensorDictBase) -> None:
        """Write all data in the format."""
        raise NotImplementedError

    def clean(self) -> None:
        if not self._failed and self._work != Path():
            shutil.rmtree(self._work, ignore_errors=True)


class _Hdf5(_Converted):
    """An HDF5 file with one array for each entry."""

    def __init__(self, args: argparse.Namespace) -> None:
        if find_spec("h5py") is None:
            raise UsageError("--format hdf5 needs h5py: pip install h5py")
        self._out: Path = args.out.absolute()
        if self._out.is_dir():
            raise UsageError(f"--out {str(args.out)!r} is a folder; --format hdf5 writes a file")
        if self._out.exists() and not args.overwrite:
            raise UsageError(f"--out {str(args.out)!r} exists; --overwrite replaces it")
        try:
            self._out.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"--out {str(args.out)!r} cannot be written: {error}") from error
        super().__init__(self._out.parent)
        self.shown = str(args.out)

    def convert(self, data: TensorDictBase) -> None:
        file = self._work / "data.h5"
        data.to_h5(file).close()
        os.replace(file, self._out)


class _Minari(_Converted):
    """A data set of Minari, whose id is ``--out``."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._id, self._name = args.id, args.out.as_posix()
        self._format = find_class("dataset", "minari")()
        if args.overwrite:
            raise UsageError("--format minari never overwrites a data set: choose another version")
        try:
            self._format.check_new(self._name)
        except SteppeError as error:
            raise UsageError(f"--out {self._name!r}: {error}") from error
        super().__init__(None)
        self.shown = f"minari:{self._name}"

    def convert(self, data: TensorDictBase) -> None:
        self._format.save(data, self._name, self._id)


def _check_folder(out: Path, *, overwrite: bool) -> None:
    if out.exists() and not out.is_dir():
        raise UsageError(f"--out {str(out)!r} is a file")
    if not out.is_dir() or not any(out.iterdir()):
        return
    if not overwrite:
        raise UsageError(f"--out {str(out)!r} is not empty; --overwrite replaces its contents")
    here = out.resolve()
    if any(here == folder or here in folder.parents for folder in (Path.cwd().resolve(), Path.home().resolve())):
        raise UsageError(f"--out {str(out)!r} contains the current or the home folder: it is not overwritten")
