"""RowLayout: the entries of one row of an environment, worked out once from its specs."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from steppe.envs.array.actions import ActionCodec
from steppe.envs.data_types import Key
from steppe.specs import Composite, is_host, union
from steppe.storage import Layout, no_storage_reason, split_loose

__all__ = ["RowField", "RowLayout"]

#: Key, shape and dtype of one entry of a row.
RowField = tuple[Key, tuple[int, ...], "np.dtype[Any]"]

_DONE = ("done", "terminated", "truncated")


class RowLayout:
    """Keys, shapes and dtypes of one row. A row is the data of one environment at one step.

    Attributes:
        observations: the fields that a reset and a step write, with the done entries of groups of agents.
        rewards: the fields that only a step writes.
        done_keys: which of ``"done"``, ``"terminated"`` and ``"truncated"`` the environment has. They are written from
            the flags that a step returns.
        done_shapes: the shape of each of them.
        action_keys: the keys of the actions.
        root_inputs: the keys of the root that a step reads beside the action.
        read_by_all: the keys in ``root_inputs`` that the caller's data must have in each step.
        copied_to_next: the keys in ``root_inputs`` that a step only copies to ``next``, unless the caller has written
            them there.
        reads_root: whether a step may read any entry of the root, the action included.
        flags_every_step: whether done entries may change in a step in which no row ends.
        actions: decodes actions.
        root_spec: the spec of the root of one row: observations and done entries.
        next_spec: the spec of ``next`` of one row: observations, rewards and done entries.
        loose: the keys of observations without a fixed layout (text, sizes that vary), which are in none of the
            above.
        device: the device of TensorDicts made of rows: None or the CPU.
    """

    def __init__(
        self,
        *,
        observation: Composite,
        reward: Composite,
        done: Composite,
        action: Composite,
        root_inputs: tuple[Key, ...] = (),
        copied_to_next: tuple[Key, ...] = (),
        reads_root: bool = False,
        flags_every_step: bool = False,
        device: torch.device | None = None,
    ) -> None:
        observation, loose = split_loose(observation)
        self.loose: tuple[Key, ...] = tuple(loose)
        self.done_keys = tuple(name for name in _DONE if name in done.keys())
        self.observations = fields_of(union(observation, done.exclude(*self.done_keys)))
        known = {key for key, _, _ in self.observations}
        self.rewards = [field for field in fields_of(reward) if field[0] not in known]
        self.done_shapes = {name: tuple(done[name].shape) for name in self.done_keys}
        self.actions = ActionCodec(action, done)
        self.action_keys = tuple(self.actions.keys)
        self.reads_root = reads_root
        self.flags_every_step = flags_every_step
        self.read_by_all, self.copied_to_next = root_inputs, copied_to_next
        self.root_inputs = tuple(key for key, _, _ in self.observations) if reads_root else root_inputs
        self.root_spec = union(observation, done)
        self.next_spec = union(observation, reward, done)
        self.device = device

    @classmethod
    def of(cls, env: Any, **reads: Any) -> RowLayout:
        """Return the layout of an environment, or of each row of a batch ``(n,)`` whose rows have equal specs.

        Args:
            env: an object with the full specs, batch size and device of an environment.
            **reads: the arguments ``root_inputs``, ``copied_to_next``, ``reads_root`` and ``flags_every_step`` of the
                class.
        """
        kinds = ("observation", "reward", "done", "action")
        specs = {kind: getattr(env, f"full_{kind}_spec") for kind in kinds}
        for _ in env.batch_size:
            specs = {kind: spec[0] for kind, spec in specs.items()}
        # Rows are on the CPU. If the data is elsewhere, their TensorDicts have no device, and are moved by the caller.
        return cls(**specs, device=env.device if is_host(env.device) else None, **reads)

    @property
    def root_keys(self) -> list[Key]:
        """Keys of the root of a row: observations, done entries, and actions if a step reads the whole root."""
        keys = list(self.root_spec.keys(include_nested=True, leaves_only=True))
        return [*keys, *self.action_keys] if self.reads_root else keys

    @property
    def written(self) -> list[RowField]:
        """Fields that a step writes: observations and rewards."""
        return [*self.observations, *self.rewards]


def fields_of(spec: Composite) -> list[RowField]:
    """Return key, shape and numpy dtype of each leaf whose dtype numpy has; ``no_layout_reason`` refuses others."""
    fields = Layout.of(spec, ()).fields
    return [(field.key, field.shape, dtype) for field in fields if (dtype := field.numpy_dtype) is not None]


def no_layout_reason(env: Any, *, loose: bool = False) -> str | None:
    """Return why the data of an environment, or of each row of a batch, does not fit into rows; None if it does.

    Args:
        env: an object with the specs and the device of an environment.
        loose: whether observations without a fixed layout, such as text, are allowed.
    """
    if not is_host(env.device):
        return f"its data is on {env.device}."
    specs = {kind: getattr(env, f"full_{kind}_spec") for kind in ("observation", "reward", "done", "action")}
    if loose:
        specs["observation"], _ = split_loose(specs["observation"])
    for kind in specs:
        reason = no_storage_reason(specs[kind])
        if reason is not None:
            return reason
    for kind in ("observation", "reward"):
        for field in Layout.of(specs[kind], ()).fields:
            if field.numpy_dtype is None:
                return f"the entry {field.key!r} has the dtype {field.dtype}, which numpy lacks."
    if "done" not in env.full_done_spec.keys():
        return "it has no done entry for the whole episode, at the root."
    if not env.action_keys:
        return "it has no action."
    return None
