"""Which entries of a step rollouts, collectors and requests keep: one rule for all of them.

A name that begins with an underscore makes an entry private. Private entries are dropped: masks, for example, and
values that a policy or an environment writes for itself. A private entry is kept if it is declared, by an observation
or state spec (a ``TensorDictPrimer`` with ``_eps_gSDE``, which losses read) or by the ``out_keys`` of the policy.
Names that begin with two underscores are the memory of transforms (``memory_spec``), which is never kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from tensordict import NestedKey, TensorDictBase

from steppe.specs import as_path, is_memory, is_private

if TYPE_CHECKING:
    from steppe.envs.base import EnvBase

__all__ = ["DeclaredKeys", "declared_keys", "is_kept", "without_private"]

DeclaredKeys: TypeAlias = "frozenset[tuple[str, ...]]"


def declared_keys(env: EnvBase, policy: Any = None) -> DeclaredKeys:
    """Return the private keys that are kept because ``env`` or ``policy`` declares them."""
    written: Iterable[Any] = getattr(getattr(policy, "_orig_mod", policy), "out_keys", None) or ()
    keys = [*env.observation_keys, *env.state_keys, *env.action_keys, *env.reward_keys, *written]
    # A TensorDictModule has the out_key "_" for outputs that it drops.
    return frozenset(as_path(key) for key in keys if is_private(key) and not is_memory(key) and key != "_")


def is_kept(key: NestedKey, declared: DeclaredKeys) -> bool:
    """Return whether an entry is kept.

    Args:
        key: the key of an entry or a group, in the root or under ``"next"``.
        declared: the result of :func:`declared_keys`.
    """
    if not is_private(key):
        return True
    path = as_path(key)
    path = path[1:] if path[0] == "next" else path
    return any(declared_path[: len(path)] == path for declared_path in declared)


def without_private(data: TensorDictBase, declared: DeclaredKeys) -> TensorDictBase:
    """Return data without the entries that are not kept; ``data`` itself if all are."""
    hidden = [key for key in data.keys(include_nested=True) if not is_kept(key, declared)]
    return data.exclude(*hidden) if hidden else data
