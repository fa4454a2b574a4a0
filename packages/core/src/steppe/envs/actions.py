"""Random actions, drawn in blocks: the same way in every class, so that one seed gives one data set."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from tensordict import TensorDict, TensorDictBase

from steppe.storage import entries

if TYPE_CHECKING:
    from steppe.envs.base import EnvBase

__all__ = ["CHUNK", "action_stream", "draws_in_blocks", "random_block"]

#: How many steps' actions are drawn at once. Part of the contract: it decides which numbers a seed gives.
CHUNK = 128


def draws_in_blocks(env: EnvBase) -> bool:
    """Whether actions may be drawn ahead: nothing the environment does changes what it accepts."""
    from steppe.envs.base import EnvBase

    if type(env).rand_action is not EnvBase.rand_action or "rand_action" in env.__dict__:
        return False
    return (
        all(
            leaf is not None
            and leaf.dtype is not None
            and getattr(leaf, "mask", None) is None
            and not any(size < 0 for size in leaf.shape)
            for leaf in env.full_action_spec.values(include_nested=True, leaves_only=True)
        )
        and type(env.full_action_spec).__name__ == "Composite"
    )


def random_block(env: EnvBase, generator: torch.Generator, lead: tuple[int, ...] = ()) -> dict[Any, torch.Tensor]:
    """Draw ``CHUNK`` steps of actions, ``{key: [CHUNK, *lead, *shape]}``."""
    block = env.full_action_spec.rand((CHUNK, *lead), generator=generator)
    return {key: block.get(key) for key in env.action_keys}


def action_stream(env: EnvBase) -> Callable[[TensorDictBase], TensorDictBase]:
    """Return a policy that writes random actions, drawn ahead where that is possible."""
    if not draws_in_blocks(env):
        return env.rand_action
    generator = env.action_generator()
    queue: list[Any] = []
    keys = list(env.action_keys)
    flat = all(isinstance(key, str) for key in keys)

    def act(td: TensorDictBase) -> TensorDictBase:
        if not queue:
            lead = () if env.batch_locked or env.batch_size else tuple(td.batch_size)
            block = random_block(env, generator, lead)
            queue.extend(reversed(list(zip(*(block[key].unbind(0) for key in keys), strict=True))))
        row = queue.pop()
        if flat and type(td) is TensorDict and not td.is_locked:
            entries(td).update(zip(keys, row, strict=True))
        else:
            for key, value in zip(keys, row, strict=True):
                td.set(key, value)
        return td

    return act
