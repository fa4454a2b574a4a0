"""VmasWriter: a row writer that copies tensors of VMAS into the caller's rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from steppe.envs import Arrays, BoundWriter, Ended, EnvInfos, Progress, RowLayout, Rows, RowWriter
from steppe.errors import NotSupported

from .agent_data import decode_action

if TYPE_CHECKING:
    from .env import VmasWrapper

__all__ = ["NO_PARTIAL_STEP", "VmasWriter"]

NO_PARTIAL_STEP = (
    "VMAS steps all its environments at once: there is no partial step. Step all of them and ignore the others."
)


class VmasWriter(RowWriter):
    """Row writer whose rows are the environments of one VMAS batch.

    Args:
        env: the environment.
        layout: the entries of each row.
    """

    def __init__(self, env: VmasWrapper, layout: RowLayout) -> None:
        self.env, self.layout = env, layout
        self.n = env.batch_size[0]

    def decode(self, actions: dict[str | tuple[str, ...], np.ndarray]) -> list[torch.Tensor]:
        """Convert actions to the format of VMAS, one for each agent.

        ``actions`` is ``{(group, "action"): [n, agents, *shape]}``.
        """
        decoded: list[Any] = [None] * len(self.env.agent_names)
        for group in self.env.groups:
            encoded = torch.from_numpy(actions[(group.name, "action")])
            for agent, member in enumerate(group.members):
                decoded[member] = decode_action(encoded[:, agent], self.env.one_hot_sizes[member])
        return decoded

    def bind(self, rows: Rows, progress: Progress) -> BoundVmas:
        """Prepare to write these rows.

        ``progress`` is not used: an error in VMAS concerns all rows.
        """
        return BoundVmas(self, rows)


class BoundVmas(BoundWriter):
    """The environment bound to the rows that it writes."""

    def __init__(self, writer: VmasWriter, rows: Rows) -> None:
        self.env, self.n, self.rows = writer.env, writer.n, rows
        observed = [key for key, _, _ in writer.layout.observations]
        self._next = self._targets(rows.next, [key for key, _, _ in writer.layout.written])
        self._root = self._targets(rows.root, observed)

    def _targets(self, arrays: Arrays, keys: list[Any]) -> list[tuple[list[int], tuple[str, ...], torch.Tensor]]:
        members = {group.name: group.members for group in self.env.groups}
        return [(members[key[0]], key[1:], torch.from_numpy(arrays[key])) for key in keys]

    def step(self, actions: list[torch.Tensor], at: Sequence[int] | None = None) -> Ended:
        """Step all environments. ``at`` must name all rows."""
        if at is not None and len(at) != self.n:
            raise NotSupported(NO_PARTIAL_STEP)
        values, terminated, truncated = self.env.advance(actions)
        for members, path, target in self._next:
            torch.stack([values[member][path] for member in members], 1, out=target)
        return self.rows.write_flags((terminated | truncated).numpy(), terminated.numpy(), truncated.numpy())

    def reset(self, at: Sequence[int], env_info: EnvInfos = None) -> None:
        """Reset some rows. ``env_info`` is ignored: VMAS takes none."""
        at = list(at)
        values = self.env.begin(None if len(at) == self.n else at)
        for members, path, target in self._root:
            stacked = torch.stack([values[member][path] for member in members], 1)
            target[at] = stacked[at]
        self.rows.begin(at)
