"""Steps and resets of one environment through its row, for callers that bring a TensorDict to each."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase

from steppe.envs.array.loop import Loop
from steppe.envs.array.rows import Rows
from steppe.envs.array.writer import RowWriter
from steppe.specs import Composite
from steppe.storage import TensorDictBuilder, build_td, entries

__all__ = ["SingleRow"]

_NO_BATCH = torch.Size([])
_from_numpy = torch.from_numpy
_ROW = (0,)
_Tensor = torch.Tensor


class SingleRow:
    """Steps one row, and makes TensorDicts of copies of it.

    Args:
        writer: of one environment.
    """

    def __init__(self, writer: RowWriter) -> None:
        layout = writer.layout
        self.writer, self.layout, self.device = writer, layout, layout.device
        self.rows = rows = Rows.new(layout)
        self._loop = Loop(writer, rows)
        self._step = self._loop.step
        done = layout.done_keys
        self._next = [(key, rows.next[key][0, ...]) for key in (*(key for key, _, _ in layout.written), *done)]
        self._root = [(key, rows.root[key][0, ...]) for key in (*(key for key, _, _ in layout.observations), *done)]
        self._carried = [(key, rows.root[key]) for key in layout.carried]
        self._flat = not any(isinstance(child, Composite) for child in layout.next_spec.values())
        self._next_builder = TensorDictBuilder(layout.next_spec, (), device=self.device)
        self._root_builder = TensorDictBuilder(layout.root_spec, (), device=self.device)
        self._action = self._single_action()

    def _single_action(self) -> tuple[Any, ...] | None:
        """The only action, at the root: what the shortest way through ``step`` needs to know of it."""
        keys = self.layout.action_keys
        if self.writer.inverts or len(keys) != 1 or not isinstance(keys[0], str):
            return None
        key, codec = keys[0], self.layout.actions
        leaf, decoder = codec.spec[key], codec.decoders[key]
        if codec.rules[key].allows is not None and not decoder.judges:
            return None
        return key, torch.Size(leaf.shape), leaf.dtype, decoder.one

    def native(self, tensordict: TensorDictBase) -> Any:
        """Return the native action in ``tensordict``. One whose dtype is another is converted there too.

        Raises:
            ActionError: it is missing, or does not fit; see :mod:`steppe.envs.action_rules`.
        """
        if self._action is not None:
            key, shape, dtype, decode = self._action
            action = entries(tensordict).get(key) if type(tensordict) is TensorDict else tensordict.get(key, None)
            if type(action) is _Tensor and action.dtype is dtype and action.shape == shape:
                return decode(action)
        if not self.writer.inverts:
            return self.layout.actions.from_tensordict(tensordict)
        return self.writer.decode(self.layout.actions.rows_of(tensordict))[0]

    def step(self, tensordict: TensorDictBase) -> tuple[TensorDict, bool]:
        """Act, and return ``next`` in memory of its own, and whether the episode has ended."""
        action = self.native(tensordict)
        for key, row in self._carried:
            value = tensordict.get(key, None)
            if value is None:
                raise self._nothing_to_carry(key, tensordict)
            row[0] = value.detach().numpy()
        ended = bool(self._step((action,)))
        data = {key: _from_numpy(row.copy()) for key, row in self._next}
        return build_td(data, _NO_BATCH, self.device) if self._flat else self._next_builder(data), ended

    def _nothing_to_carry(self, key: Any, tensordict: TensorDictBase) -> KeyError:
        return KeyError(
            f"There is no {key!r} in the data given to step. Step what reset, step_mdp or step_and_maybe_reset "
            f"returned, with an action added to it. Found {sorted(map(str, tensordict.keys()))}."
        )

    def reset(self, root: TensorDict | None, *, env_info: dict[str, Any] | None = None) -> TensorDict:
        """Begin an episode, in a new TensorDict or into ``root``."""
        self._loop.reset(_ROW, None if env_info is None else [env_info])
        data = {key: _from_numpy(row.copy()) for key, row in self._root}
        if not self._flat:
            fresh = self._root_builder(data)
            return fresh if root is None else root.update(fresh)
        if root is None:
            return build_td(data, _NO_BATCH, self.device)
        entries(root).update(data)
        return root

    def attach(self, tensordict: TensorDict, following: TensorDictBase) -> TensorDict:
        """Put ``following`` under ``"next"``, with what was there and the environment does not write."""
        before = entries(tensordict).get("next")
        if before is not None:
            following = before.copy().update(following)
        if tensordict.is_locked or (tensordict.device is not self.device and tensordict.device is not None):
            tensordict.set("next", following)
        else:
            entries(tensordict)["next"] = following
        return tensordict
