"""Names for the leaves of a pytree."""

from __future__ import annotations

from typing import Any

import jax

__all__ = ["leaf_paths"]


def leaf_paths(tree: Any) -> list[tuple[str, ...]]:
    """Return the path of each leaf, in the order of ``jax.tree_util.tree_leaves``.

    A path consists of names of attributes, keys of dicts, and indices of sequences as text.

    >>> import jax.numpy as jnp
    >>> from steppe_jax import leaf_paths
    >>> leaf_paths({"arm": {"angle": jnp.zeros(2)}, "speeds": [jnp.zeros(1), jnp.zeros(1)]})
    [('arm', 'angle'), ('speeds', '0'), ('speeds', '1')]
    """
    flat, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [tuple(_name(part) for part in path) for path, _ in flat]


def _name(part: object) -> str:
    for attribute in ("name", "key", "idx"):
        if hasattr(part, attribute):
            return str(getattr(part, attribute))
    return str(part)
