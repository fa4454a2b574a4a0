"""NewFile: a file that is there whole, or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from steppe.errors import FileExists

__all__ = ["NewFile"]


class NewFile:
    """A file that is written beside its place, and gets its name when it is complete.

    A process that dies before leaves a hidden file whose name ends in ``.part`` and the suffix, never a broken one
    under the name that was asked for. As a context manager it finishes at the end of the block, and discards after an
    error.

    Args:
        file: the name that it will have. Missing folders are made.
        overwrite: replace a file of this name.

    Raises:
        FileExists: there is one, and ``overwrite`` is False.

    Attributes:
        path: where to write until then; it has the suffix of ``file``.
    """

    def __init__(self, file: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        self.file = Path(file)
        self._overwrite = overwrite
        if not overwrite and self.file.exists():
            raise self._taken()
        self.file.parent.mkdir(parents=True, exist_ok=True)
        unique = f"{os.getpid()}-{id(self):x}"
        self.path = self.file.with_name(f".{self.file.stem}-{unique}.part{self.file.suffix}")

    def finish(self) -> None:
        """Give it its name.

        Raises:
            FileExists: a file of this name was created in the meantime; the new one is removed.
        """
        if self._overwrite:
            os.replace(self.path, self.file)
            return
        try:
            os.link(self.path, self.file)  # unlike a rename, this fails where the name is taken
        except FileExistsError:
            raise self._taken() from None
        except OSError:  # a file system without links
            if self.file.exists():
                raise self._taken() from None
            os.replace(self.path, self.file)
        finally:
            self.path.unlink(missing_ok=True)

    def discard(self) -> None:
        """Remove the new file."""
        self.path.unlink(missing_ok=True)

    def _taken(self) -> FileExists:
        return FileExists(f"{str(self.file)!r} exists. Choose another name, or replace it with overwrite=True.")

    def __enter__(self) -> NewFile:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            self.finish()
        else:
            self.discard()
