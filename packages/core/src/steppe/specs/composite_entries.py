"""CompositeEntries: how a Composite looks up and lists its entries, and the kinds of entries of an environment."""

from __future__ import annotations

import difflib
from abc import abstractmethod
from collections.abc import Iterator, KeysView, Mapping
from typing import Any

from tensordict import NestedKey

from .base import Spec
from .keys import IsLeaf, as_path, is_key

__all__ = ["INPUT_KINDS", "NOTHING", "OUTPUT_KINDS", "SPEC_KINDS", "CompositeEntries"]

#: The kinds of entries that an environment returns and reads. The spec of a kind is ``full_<kind>_spec``.
OUTPUT_KINDS = ("observation", "reward", "done")
INPUT_KINDS = ("action", "state")
SPEC_KINDS = (*OUTPUT_KINDS, *INPUT_KINDS)

NOTHING = object()
"""Default argument that means: raise an error."""


class CompositeEntries(Spec):
    """The part of a Composite that looks up and lists its entries."""

    step_mdp_static: bool

    @property
    @abstractmethod
    def _children(self) -> Mapping[str, Spec | None]:
        """The entries."""

    @property
    def _entries(self) -> dict[str, Spec]:
        """The entries that have a spec; any value is valid for the others."""
        return {name: child for name, child in self._children.items() if child is not None}

    def _walk(
        self,
        include_nested: bool,
        leaves_only: bool,
        is_leaf: IsLeaf,
        static_only: bool = False,
        prefix: tuple[str, ...] = (),
    ) -> Iterator[tuple[Any, Spec | None]]:
        for name, child in self._children.items():
            nested = isinstance(child, CompositeEntries) and not (is_leaf is not None and is_leaf(type(child)))
            if static_only:
                chosen = isinstance(child, CompositeEntries) and child.step_mdp_static
            else:
                chosen = not (nested and leaves_only)
            if chosen:
                yield ((*prefix, name) if prefix else name), child
            if nested and include_nested:
                assert isinstance(child, CompositeEntries)
                yield from child._walk(include_nested, leaves_only, is_leaf, static_only, (*prefix, name))

    def keys(
        self,
        include_nested: bool = False,
        leaves_only: bool = False,
        *,
        is_leaf: IsLeaf = None,
        step_mdp_static_only: bool = False,
    ) -> KeysView[Any]:
        """Return the present keys, a name or a tuple of at least two names each.

        Args:
            include_nested: include the entries of nested Composites; their keys are tuples.
            leaves_only: leave out the keys of Composites.
            is_leaf: called with a class of Composite; returns whether to treat it as a leaf.
            step_mdp_static_only: only the keys of Composites made with ``step_mdp_static=True``.
        """
        walked = self._walk(include_nested, leaves_only, is_leaf, step_mdp_static_only)
        return dict.fromkeys(key for key, _ in walked).keys()

    def items(
        self,
        include_nested: bool = False,
        leaves_only: bool = False,
        *,
        is_leaf: IsLeaf = None,
        step_mdp_static_only: bool = False,
    ) -> list[tuple[Any, Any]]:
        """Return pairs of key and spec, chosen as :meth:`keys` does."""
        return list(self._walk(include_nested, leaves_only, is_leaf, step_mdp_static_only))

    def values(
        self,
        include_nested: bool = False,
        leaves_only: bool = False,
        *,
        is_leaf: IsLeaf = None,
        step_mdp_static_only: bool = False,
    ) -> list[Any]:
        """Return the specs, chosen as :meth:`keys` does."""
        return [child for _, child in self._walk(include_nested, leaves_only, is_leaf, step_mdp_static_only)]

    def get(self, key: NestedKey, default: object = NOTHING) -> Any:
        """Return the entry at a name or a tuple of names.

        Raises:
            KeyError: the entry is missing, and there is no default; the text suggests similar keys.
        """
        spec: Any = self
        path = as_path(key)
        for name in path:
            if not isinstance(spec, CompositeEntries) or name not in spec._children:
                if default is not NOTHING:
                    return default
                raise KeyError(self._not_found(key))
            spec = spec._children[name]
        return spec

    def _not_found(self, key: NestedKey) -> str:
        known = {str(mine): mine for mine in self.keys(include_nested=True)}
        near = [repr(known[match]) for match in difflib.get_close_matches(str(key), known, n=3)]
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        return f"There is no entry {key!r} in this {type(self).__name__}. It has {list(known.values())}.{hint}"

    def __contains__(self, key: object) -> bool:
        return is_key(key) and self.get(key, self) is not self

    def __iter__(self) -> Iterator[str]:
        return iter(self._children)

    def __len__(self) -> int:
        return len(self._children)

    def __bool__(self) -> bool:
        # A spec without entries is true, unlike an empty dict.
        return True

    def is_empty(self, recurse: bool = False) -> bool:
        """Whether there are no entries; with ``recurse``, no entries except empty Composites."""
        if not recurse:
            return not self._children
        return all(
            isinstance(child, CompositeEntries) and child.is_empty(recurse=True) for child in self._children.values()
        )
