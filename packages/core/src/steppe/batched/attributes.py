"""Attributes and methods of environments, read and called through their batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from steppe.errors import ArgumentError, ClosedError, StateError, SteppeError
from steppe.workers import ItemError

if TYPE_CHECKING:
    from steppe.batched.base import BatchedEnv

__all__ = ["HAS", "Dispatched", "ask_row", "assign", "dispatched"]

#: First part of a path that tests whether an attribute exists, assigns to it, or reads it as text.
HAS, ASSIGN, SHOW = "?", "=", "repr"


class Dispatched:
    """An attribute of every environment of a batch.

    Iterating, indexing or comparing reads it, as a list with one value for each environment. Calling it calls it in
    every environment and returns the list of results. Attributes of it are again such objects: ``env.unwrapped.g``.
    Assigning to one sets it in every environment; a list sets a value in each.
    """

    __slots__ = ("_batch", "_path")
    _batch: BatchedEnv
    _path: tuple[str, ...]

    def __init__(self, batch: BatchedEnv, path: tuple[str, ...]) -> None:
        object.__setattr__(self, "_batch", batch)
        object.__setattr__(self, "_path", path)

    def __setattr__(self, name: str, value: object) -> None:
        assign(self._batch, (*self._path, name), value)

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
        """Show the values, as a list does."""
        try:
            shown = self._batch._ask((SHOW, *self._path), [None] * self._batch.num_workers)
        except SteppeError:
            return f"<{'.'.join(self._path)} of {self._batch.num_workers} environments>"
        return f"[{', '.join(shown)}]"


def assign(batch: BatchedEnv, path: tuple[str, ...], value: object, rows: list[int] | None = None) -> None:
    """Set an attribute in environments of a batch.

    Args:
        batch: the batch.
        path: the names that lead to the attribute, its own name last.
        value: its value; a list holds the value for each environment.
        rows: which environments; all by default.

    Raises:
        ArgumentError: a list has another length.
    """
    n = batch.num_workers if rows is None else len(rows)
    if isinstance(value, list) and len(value) != n:
        raise ArgumentError(
            f"{'.'.join(path)} needs a list of {n} values, one for each environment, found {len(value)}. To set one "
            f"list in each, pass [value] * {n}."
        )
    batch._ask((ASSIGN, *path), value if isinstance(value, list) else [value] * n, rows)


def dispatched(batch: BatchedEnv, name: str) -> Any:
    """Return an attribute of the environments of a batch; ``group_map`` itself, if all have the same groups.

    Raises:
        AttributeError: an environment has no such attribute, or the batch is closed.
    """
    try:
        there = batch._ask((HAS, name), [None] * batch.num_workers)
    except (ClosedError, StateError) as error:
        # hasattr must also work if the batch has failed or another thread uses it.
        raise AttributeError(f"{name!r} cannot be read: {error}") from error
    if not any(there):
        raise AttributeError(f"{type(batch).__name__} has no attribute {name!r}, and neither have its environments.")
    if not all(there):
        lacking = [row for row, has in enumerate(there) if not has]
        raise AttributeError(f"The environments {lacking} of this {type(batch).__name__} lack {name!r}.")
    attribute = Dispatched(batch, (name,))
    if name == "group_map" and (values := attribute.values()).count(values[0]) == len(values):
        return values[0]
    return attribute


def ask_row(env: Any, row: int, path: tuple[str, ...], call: Any) -> Any:
    """Read ``env.a.b``, and call it if ``call`` is ``(args, kwargs)`` and not None; or assign ``call`` to it.

    Raises:
        ItemError: reading or calling raised.
    """
    if path[0] == HAS:
        try:
            return hasattr(env, path[1])
        except Exception:
            return True  # the attribute exists, and reading it raises the error
    try:
        value, names = env, path[path[0] in (ASSIGN, SHOW) :]
        for name in names[: -1 if path[0] == ASSIGN else None]:
            value = getattr(value, name)
        if path[0] == ASSIGN:
            return setattr(value, names[-1], call)
        if call is None:
            return repr(value) if path[0] == SHOW else value
        args, kwargs = call
        return value(*args, **kwargs)
    except Exception as error:
        raise ItemError(row, f"env.{'.'.join(names)}") from error
