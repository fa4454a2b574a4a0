"""JaxWriter: a row writer that copies JAX arrays into the caller's rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from steppe.envs import BoundWriter, Ended, EnvInfos, Progress, RowLayout, Rows, RowWriter
from steppe.errors import SpecError

if TYPE_CHECKING:
    from .env import JaxEnv

__all__ = ["JaxWriter"]


class JaxWriter(RowWriter):
    """Row writer whose rows are the environments of one batch.

    Args:
        env: the environment. It keeps its state itself (``state_in_data=False``).
        layout: the entries of each row.
    """

    inverts = True  # decode() returns tensors: actions of the library, not those of the layout
    on_arrays = True  # a step copies arrays, and keeps no gradients

    def __init__(self, env: JaxEnv, layout: RowLayout) -> None:
        self.env, self.layout = env, layout
        self.n = max(1, env.numel())

    def decode(self, actions: dict[str | tuple[str, ...], np.ndarray]) -> torch.Tensor:
        """Convert actions ``{key: [k, *shape]}`` to actions of the library, ``[k, ...]``."""
        encoded = torch.from_numpy(actions[self.env.action_entry])
        return self.env.native_action(encoded, len(encoded))

    def bind(self, rows: Rows, progress: Progress) -> BoundJax:
        """Prepare to write these rows.

        ``progress`` is not used: an error in JAX concerns all rows.
        """
        return BoundJax(self, rows)


class BoundJax(BoundWriter):
    """The environment bound to the rows that it writes."""

    def __init__(self, writer: JaxWriter, rows: Rows) -> None:
        self.env, self.n, self.rows = writer.env, writer.n, rows
        self._next = [rows.next[key] for key in writer.env.observation_entries]
        self._reward = rows.next["reward"]
        self._root = [rows.root[key] for key in writer.env.observation_entries]

    def step(self, actions: torch.Tensor | Sequence[torch.Tensor], at: Sequence[int] | None = None) -> Ended:
        """Step some rows, or all. JAX computes all rows in either case."""
        if not isinstance(actions, torch.Tensor):
            actions = torch.stack(list(actions))  # a rollout of one row decodes its actions in advance
        mask: np.ndarray | None = None
        chosen: np.ndarray | slice = slice(None)
        if at is not None and len(at) < self.n:
            chosen = np.asarray(at)
            mask = np.zeros(self.n, bool)
            mask[chosen] = True
            all_actions = torch.zeros((self.n, *actions.shape[1:]), dtype=actions.dtype, device="cpu")
            all_actions[torch.from_numpy(chosen)] = actions
            actions = all_actions
        elif len(actions) != self.n:
            raise SpecError(f"Expected one action for each of the {self.n} environments, found {len(actions)}.")
        result = self.env.advance(actions, mask)
        for target, leaf in zip(self._next, result.observation, strict=True):
            target[chosen] = np.asarray(leaf)[chosen]
        self._reward[chosen] = np.asarray(result.reward)[chosen]
        ended, terminated, truncated = np.asarray(result.flags)[..., 0]
        return self.rows.write_flags(ended, terminated, truncated, chosen if isinstance(chosen, np.ndarray) else None)

    def reset(self, at: Sequence[int], env_info: EnvInfos = None) -> None:
        """Reset some rows. ``env_info`` is ignored: JAX environments take none."""
        rows, leaves = self.env.begin(list(at))
        for target, leaf in zip(self._root, leaves, strict=True):
            target[rows] = np.asarray(leaf)
        self.rows.begin(rows.tolist())
