"""What a worker raised, and the one place where it becomes the caller's error."""

from __future__ import annotations

import traceback
from dataclasses import dataclass

from steppe.errors import WorkerError

__all__ = ["Failure", "SubjectError"]


class SubjectError(Exception):
    """What was raised at one of the things that a worker works on; its ``__cause__`` is what was raised.

    Args:
        subject: number of that thing, such as the row of an environment in its batch; None for all of them.
        doing: what it was asked for: ``"step"``, ``"reset"``.
    """

    def __init__(self, subject: int | None, doing: str) -> None:
        super().__init__(f"{doing} of {subject} raised")
        self.subject = subject
        self.doing = doing


@dataclass(frozen=True)
class Failure:
    """What a worker raised, in a form that every process can read.

    Attributes:
        doing: what the worker was doing: ``"step"``, ``"reset"``, ``"__init__"``.
        subject: number of what it was doing it to; None where no single one is at fault.
        summary: type and text of the exception.
        traceback: the whole traceback, as the worker would have printed it.
    """

    doing: str
    subject: int | None
    summary: str
    traceback: str

    @classmethod
    def of(cls, error: BaseException, doing: str) -> Failure:
        """Describe an exception; a :class:`SubjectError` says itself at what it was raised, and in what."""
        subject = None
        if isinstance(error, SubjectError):
            doing, subject = error.doing, error.subject
            error = error.__cause__ or error
        try:
            summary = f"{type(error).__name__}: {error}"
        except Exception:
            summary = f"{type(error).__name__}, which cannot be printed"
        return cls(doing, subject, summary, "".join(traceback.format_exception(error)))

    def error(self, noun: str, worker: int | None) -> WorkerError:
        """The caller's error.

        Args:
            noun: what workers work on, ``"environment"``.
            worker: which one it was; None for the caller's own share of the work.
        """
        who = f"Worker {worker}" if worker is not None else "The caller's share"
        where = f"{noun} {self.subject}" if self.subject is not None else f"its {noun}s"
        return WorkerError(
            f"{who} raised in {self.doing} of {where}: {self.summary}\n\n{self.traceback}",
            worker=worker,
            env=self.subject,
            remote_traceback=self.traceback,
        )
