"""JaxRows: the arrays of a JAX environment, written into rows that the caller owns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from steppe.envs import Ended, Progress, RowLayout, Rows
from steppe.errors import SpecError

if TYPE_CHECKING:
    from .env import JaxEnv

__all__ = ["JaxRows"]


class JaxRows:
    """A :class:`steppe.envs.RowWriter` whose rows are the environments of one batch.

    Args:
        env: the environment, whose state is kept in it.
        layout: what each row holds.
    """

    def __init__(self, env: JaxEnv, layout: RowLayout) -> None:
        self.env, self.layout = env, layout
        self.n = max(1, env.numel())
        self.inverts = False
        # A call of JAX takes longer than a TensorDict around it.
        self.on_arrays = False

    def decode(self, actions: dict[Any, np.ndarray[Any, Any]]) -> torch.Tensor:
        """Turn actions ``{key: [k, *shape]}`` into native ones, ``[k, ...]``."""
        given = torch.from_numpy(actions[self.env.action_entry])
        return self.env.native_action(given, len(given))

    def bind(self, rows: Rows, progress: Progress) -> BoundJax:
        """Prepare to write these rows. What fails in JAX fails for all of them: no row is noted."""
        return BoundJax(self, rows)


class BoundJax:
    """The environment, and the rows that its arrays are written into."""

    def __init__(self, writer: JaxRows, rows: Rows) -> None:
        self.env, self.n, self.rows = writer.env, writer.n, rows
        self._next = [rows.next[key] for key in writer.env.observation_entries]
        self._reward = rows.next["reward"]
        self._root = [rows.root[key] for key in writer.env.observation_entries]
        self._numbers = np.arange(self.n)

    def step(self, actions: Any, at: Sequence[int] | None = None) -> Ended:
        """Step some rows, or all; all of them are computed."""
        if not isinstance(actions, torch.Tensor):
            actions = torch.stack(list(actions))  # of a rollout of one row, whose actions were decoded ahead
        mask: Any = None
        chosen: Any = slice(None)
        if at is not None and len(at) < self.n:
            chosen = np.asarray(at)
            mask = np.zeros(self.n, bool)
            mask[chosen] = True
            whole = torch.zeros((self.n, *actions.shape[1:]), dtype=actions.dtype, device="cpu")
            whole[torch.from_numpy(chosen)] = actions
            actions = whole
        elif len(actions) != self.n:
            raise SpecError(f"There are {self.n} environments, and {len(actions)} actions were given.")
        result = self.env.advance(actions, mask)
        for target, leaf in zip(self._next, result.observation, strict=True):
            target[chosen] = np.asarray(leaf)[chosen]
        self._reward[chosen] = np.asarray(result.reward)[chosen]
        ended, terminated, truncated = np.asarray(result.flags)[..., 0]
        if mask is not None:
            ended = ended & mask
        any_ended = bool(ended.any())
        if any_ended or self.rows.flagged:
            flags = {"done": ended, "terminated": terminated, "truncated": truncated}
            for name, (_, target) in self.rows.done.items():
                target[chosen] = flags[name][chosen, None]
            self.rows.flagged = any_ended or mask is not None
        if not any_ended:
            return []
        rows = self._numbers[ended]
        return list(zip(rows.tolist(), terminated[rows].tolist(), truncated[rows].tolist(), strict=True))

    def reset(self, at: Sequence[int], env_info: Sequence[dict[str, Any] | None] | None = None) -> None:
        """Begin episodes in some rows; there is no ``env_info``."""
        rows, leaves = self.env.begin(list(at))
        for target, leaf in zip(self._root, leaves, strict=True):
            target[rows] = np.asarray(leaf)
        self.rows.begin(rows.tolist())
