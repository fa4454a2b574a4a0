"""Attributes and methods of environments, read and called through their batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from steppe.errors import ClosedError, StateError
from steppe.workers import ItemError

if TYPE_CHECKING:
    from steppe.batched.base import BatchedEnv

__all__ = ["HAS", "Dispatched", "ask_row", "dispatched"]

#: First part of a path that tests whether an attribute exists.
HAS = "?"


class Dispatched:
    """An attribute of every environment of a batch.

    Iterating, indexing or comparing reads it, as a list with one value for each environment. Calling it calls it in
    every environment and returns the list of results. Attributes of it are again such objects: ``env.unwrapped.g``.
    """

    __slots__ = ("_batch", "_path")

    def __init__(self, batch: BatchedEnv, path: tuple[str, ...]) -> None:
        self._batch = batch
        self._path = path

    def __getattr__(self, name: str) -> Dispatched:
        if name.startswith("_"):
            raise AttributeError(f"Private attributes are not reached through a batch: {name!r}.")
        return Dispatched(self._batch, (*self._path, name))

    def __call__(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Call the method in every environment, with the same arguments."""
        return self._batch._ask(self._path, [(args, kwargs)] * self._batch.num_workers)

    def values(self) -> list[Any]:
        """Return the value in each environment, by row."""
        return self._batch._ask(self._path, [None] * self._batch.num_workers)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values())

    def __len__(self) -> int:
        return self._batch.num_workers

    def __getitem__(self, index: Any) -> Any:
        return self.values()[index]

    def __eq__(self, other: object) -> bool:
        return self.values() == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{'.'.join(self._path)} of {self._batch.num_workers} environments>"


def dispatched(batch: BatchedEnv, name: str) -> Dispatched:
    """Return an attribute of the environments of a batch.

    Raises:
        AttributeError: an environment has no such attribute, or the batch is closed.
    """
    try:
        there = all(batch._ask((HAS, name), [None] * batch.num_workers))
    except (ClosedError, StateError) as error:
        # hasattr must also work if the batch has failed or another thread uses it.
        raise AttributeError(f"{name!r} cannot be read: {error}") from error
    if not there:
        raise AttributeError(f"{type(batch).__name__} has no attribute {name!r}, and neither have its environments.")
    return Dispatched(batch, (name,))


def ask_row(env: Any, row: int, path: tuple[str, ...], call: Any) -> Any:
    """Read ``env.a.b``, and call it if ``call`` is ``(args, kwargs)`` and not None.

    Raises:
        ItemError: reading or calling raised.
    """
    if path[0] == HAS:
        try:
            getattr(env, path[1])
        except AttributeError:
            return False
        except Exception:
            return True  # the attribute exists, and reading it raises the error
        return True
    try:
        value = env
        for name in path:
            value = getattr(value, name)
        if call is None:
            return value
        args, kwargs = call
        return value(*args, **kwargs)
    except Exception as error:
        raise ItemError(row, f"env.{'.'.join(path)}") from error
