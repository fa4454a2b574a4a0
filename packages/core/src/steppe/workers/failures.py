"""Failure: an exception of a worker, and the caller's error that is made of it."""

from __future__ import annotations

import traceback
from dataclasses import dataclass

from steppe.errors import WorkerError

__all__ = ["Failure", "ItemError"]


class ItemError(Exception):
    """An exception raised while a worker worked on one of its items, which is its ``__cause__``.

    Args:
        index: index of the item, such as the row of an environment in its batch; None for all of them.
        doing: the method: ``"step"``, ``"reset"``.
    """

    def __init__(self, index: int | None, doing: str) -> None:
        super().__init__(f"{doing} of {index} raised")
        self.index = index
        self.doing = doing


@dataclass(frozen=True)
class Failure:
    """An exception of a worker, in a form that every process can unpickle.

    Attributes:
        doing: the operation of the worker: ``"step"``, ``"reset"``, ``"__init__"``.
        index: index of the item that it worked on; None if no single one is at fault.
        summary: type and text of the exception.
        traceback: the whole traceback, as the worker would have printed it.
    """

    doing: str
    index: int | None
    summary: str
    traceback: str

    @classmethod
    def of(cls, error: BaseException, doing: str) -> Failure:
        """Describe an exception; the ``doing`` of an :class:`ItemError` replaces ``doing``."""
        index = None
        if isinstance(error, ItemError):
            doing, index = error.doing, error.index
            error = error.__cause__ or error
        try:
            summary = f"{type(error).__name__}: {error}"
        except Exception:
            summary = f"{type(error).__name__}, which cannot be printed"
        return cls(doing, index, summary, "".join(traceback.format_exception(error)))

    def error(self, label: str, worker: int | None) -> WorkerError:
        """Return the caller's error.

        Args:
            label: name of the items that workers work on, ``"environment"``.
            worker: index of the worker; None if the caller itself raised, in its share of the work.
        """
        who = f"Worker {worker}" if worker is not None else "The caller's share"
        where = f"{label} {self.index}" if self.index is not None else f"its {label}s"
        return WorkerError(
            f"{who} raised in {self.doing} of {where}: {self.summary}\n\n{self.traceback}",
            worker=worker,
            env=self.index,
            remote_traceback=self.traceback,
        )
