"""Lockable: specs that cannot be edited, because an environment has read their keys and shapes."""

from __future__ import annotations

import gc
import weakref
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from steppe.errors import StateError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Lockable"]


class Lockable:
    """A spec that can be locked, with its nested specs.

    A locked spec raises an error if an entry is added, replaced or removed, or if its shape, device or names are
    changed. Specs nested in a locked spec cannot be unlocked separately.
    """

    _locked: bool = False

    def __init__(self) -> None:
        self._holders: dict[int, weakref.ref[Lockable]] = {}

    @abstractmethod
    def _nested_specs(self) -> Iterable[Lockable]:
        """Return the direct children that can be locked."""

    @property
    def is_locked(self) -> bool:
        """Whether the spec is locked. Assigning locks or unlocks it."""
        return self._locked

    @is_locked.setter
    def is_locked(self, value: bool) -> None:
        self.lock_() if value else self.unlock_()

    @property
    def locked(self) -> bool:
        """Same as :attr:`is_locked`."""
        return self._locked

    def lock_(self, recurse: bool | None = True) -> Self:
        """Forbid edits, in place.

        Args:
            recurse: lock nested specs too; they stay locked as long as this spec. None is True.
        """
        self._locked = True
        if recurse or recurse is None:
            for nested in self._nested_specs():
                nested.lock_()
                nested._holders[id(self)] = weakref.ref(self)
        return self

    def unlock_(self, recurse: bool | None = True) -> Self:
        """Allow edits again, in place.

        Args:
            recurse: unlock nested specs too. None is True.

        Raises:
            StateError: another locked spec holds this spec or a nested one; nothing is unlocked then.
        """
        inner: list[Lockable] = [self]
        if recurse or recurse is None:
            inner += self._all_nested()
        if _held_elsewhere(inner) is not None:
            gc.collect()  # an unused holder may wait for garbage collection, as part of an environment
            held = _held_elsewhere(inner)
            if held is not None:
                what = "is part of" if held is self else f"holds a {type(held).__name__} that is also part of"
                raise StateError(
                    f"This {type(self).__name__} {what} a locked spec, so it cannot be unlocked alone. "
                    f"Unlock the whole, or a spec that holds all of them; or edit a copy: spec.clone()."
                )
        for spec in inner:
            spec._locked = False
        for nested in self._nested_specs():
            nested._holders.pop(id(self), None)
        return self

    def _all_nested(self) -> Iterator[Lockable]:
        for nested in self._nested_specs():
            yield nested
            yield from nested._all_nested()

    def _holding(self) -> list[Lockable]:
        """Return the locked specs that hold this one."""
        holders = (ref() for ref in self._holders.values())
        return [holder for holder in holders if holder is not None and holder._locked]

    def _check_unlocked(self, doing: str) -> None:
        if self._locked:
            whole = "the spec that holds it" if self._holding() else "it"
            raise StateError(
                f"This {type(self).__name__} is locked: cannot {doing}. "
                f"Unlock {whole} with spec.unlock_(), or edit a copy: spec.clone()."
            )

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "_holders"}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._holders = {}
        if self._locked:
            self.lock_()


def _held_elsewhere(specs: list[Lockable]) -> Lockable | None:
    """Return the first of ``specs`` that is held by a locked spec outside of ``specs``."""
    ids = {id(spec) for spec in specs}
    for spec in specs:
        if any(id(holder) not in ids for holder in spec._holding()):
            return spec
    return None
