"""VmasRows: the tensors of a VMAS environment, written into rows that the caller owns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from steppe.envs import Ended, Progress, RowLayout, Rows
from steppe.errors import NotSupported

from .agent_data import native_action

if TYPE_CHECKING:
    from .env import VmasWrapper

__all__ = ["NO_PARTIAL_STEP", "VmasRows"]

NO_PARTIAL_STEP = "VMAS steps all its environments at once: there is no partial step. Mask what you do not want."


class VmasRows:
    """A :class:`steppe.envs.RowWriter` whose rows are the environments of one VMAS batch.

    Args:
        env: the environment.
        layout: what each row holds.
    """

    def __init__(self, env: VmasWrapper, layout: RowLayout) -> None:
        self.env, self.layout = env, layout
        self.n = env.batch_size[0]
        self.inverts = False
        # A step of VMAS takes much longer than a TensorDict around it.
        self.on_arrays = False

    def decode(self, actions: dict[Any, np.ndarray[Any, Any]]) -> list[torch.Tensor]:
        """Turn actions ``{(group, "action"): [n, agents, *shape]}`` into those of VMAS, one for each agent."""
        native: list[Any] = [None] * len(self.env.agent_names)
        for group in self.env.groups:
            given = torch.from_numpy(actions[(group.name, "action")])
            for agent, member in enumerate(group.members):
                native[member] = native_action(given[:, agent], self.env.one_hot_sizes[member])
        return native

    def bind(self, rows: Rows, progress: Progress) -> BoundVmas:
        """Prepare to write these rows. What fails in VMAS fails for all of them: no row is noted."""
        return BoundVmas(self, rows)


class BoundVmas:
    """The environment, and the rows that its tensors are written into."""

    def __init__(self, writer: VmasRows, rows: Rows) -> None:
        self.env, self.n, self.rows = writer.env, writer.n, rows
        observed = [key for key, _, _ in writer.layout.observations]
        self._next = self._targets(rows.next, [key for key, _, _ in writer.layout.written])
        self._root = self._targets(rows.root, observed)

    def _targets(self, arrays: Any, keys: list[Any]) -> list[tuple[list[int], tuple[str, ...], torch.Tensor]]:
        members = {group.name: group.members for group in self.env.groups}
        return [(members[key[0]], key[1:], torch.from_numpy(arrays[key])) for key in keys]

    def step(self, actions: Any, at: Sequence[int] | None = None) -> Ended:
        """Step all environments; ``at`` may not leave one out."""
        if at is not None and len(at) != self.n:
            raise NotSupported(NO_PARTIAL_STEP)
        values, terminated, truncated = self.env.advance(actions)
        for members, path, target in self._next:
            torch.stack([values[member][path] for member in members], 1, out=target)
        ended = terminated | truncated
        any_ended = bool(ended.any())
        if any_ended or self.rows.flagged:
            flags = {"done": ended, "terminated": terminated, "truncated": truncated}
            for name, (_, row) in self.rows.done.items():
                row[...] = flags[name].numpy()[:, None]
            self.rows.flagged = any_ended
        if not any_ended:
            return []
        at_end = ended.nonzero()[:, 0]
        return list(zip(at_end.tolist(), terminated[at_end].tolist(), truncated[at_end].tolist(), strict=True))

    def reset(self, at: Sequence[int], env_info: Sequence[dict[str, Any] | None] | None = None) -> None:
        """Begin episodes in some rows; VMAS has no ``env_info``."""
        at = list(at)
        values = self.env.begin(None if len(at) == self.n else at)
        for members, path, target in self._root:
            whole = torch.stack([values[member][path] for member in members], 1)
            target[at] = whole[at]
        self.rows.begin(at)
