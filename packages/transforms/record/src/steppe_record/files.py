"""NewFile: a file that exists only when it is complete."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from steppe.errors import FileExists

__all__ = ["NewFile"]


class NewFile:
    """A file that is written under a temporary name, and renamed when it is complete.

    A process that dies earlier leaves a hidden file whose name ends in ``.part`` and the suffix, but never an
    incomplete ``file``. A context manager finishes the file at the end of its block, or discards it after an error.

    Args:
        file: final name. Missing folders are created.
        overwrite: replace an existing file.

    Raises:
        FileExists: the file exists, and ``overwrite`` is False.

    Attributes:
        path: temporary name to write to, with the suffix of ``file``.
    """

    def __init__(self, file: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        self.file = Path(file)
        self._overwrite = overwrite
        if not overwrite and self.file.exists():
            raise self._exists_error()
        self.file.parent.mkdir(parents=True, exist_ok=True)
        unique = f"{os.getpid()}-{id(self):x}"
        self.path = self.file.with_name(f".{self.file.stem}-{unique}.part{self.file.suffix}")

    def finish(self) -> None:
        """Rename the file to its final name.

        Raises:
            FileExists: a file of this name was created in the meantime; the new one is removed.
        """
        if self._overwrite:
            os.replace(self.path, self.file)
            return
        try:
            os.link(self.path, self.file)  # unlike a rename, this fails if the name exists
        except FileExistsError:
            raise self._exists_error() from None
        except OSError:  # the file system has no hard links
            if self.file.exists():
                raise self._exists_error() from None
            os.replace(self.path, self.file)
        finally:
            self.path.unlink(missing_ok=True)

    def discard(self) -> None:
        """Remove the temporary file."""
        self.path.unlink(missing_ok=True)

    def _exists_error(self) -> FileExists:
        return FileExists(f"{str(self.file)!r} exists. Choose another name, or replace it with overwrite=True.")

    def __enter__(self) -> NewFile:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            self.finish()
        else:
            self.discard()
