"""Steps and resets through rows, for callers that bring a TensorDict to each."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from steppe.envs.action_rules import put_action
from steppe.envs.array.loop import Loop
from steppe.envs.array.rows import Ended, Rows
from steppe.envs.array.writer import RowWriter
from steppe.envs.env_info import native_info
from steppe.envs.step_mdp import put_next
from steppe.specs import Composite
from steppe.storage import TensorDictBuilder, build_td, entries

__all__ = ["RowSteps", "overlay_reset"]

_NO_BATCH = torch.Size([])
_from_numpy = torch.from_numpy
_Tensor = torch.Tensor


class RowSteps:
    """Steps all rows of a writer, and makes TensorDicts of copies of them.

    Args:
        writer: of one environment, or of a batch.
        batch_size: of the data: none for one environment, ``(n,)`` for a batch of n rows.
    """

    def __init__(self, writer: RowWriter, batch_size: torch.Size = _NO_BATCH) -> None:
        layout = writer.layout
        self.writer, self.layout, self.device = writer, layout, layout.device
        self.batch_size = batch_size
        self.rows = rows = Rows.new(layout, writer.n)
        self._loop = Loop(writer, rows)
        self._step = self._loop.step
        self._shows_root = layout.reads_root
        self._all = tuple(range(writer.n))
        done = layout.done_keys
        part: Any = (...,) if batch_size else (0, ...)
        written = [key for key, _, _ in layout.written if key not in layout.handed_on]
        self._next = [(key, rows.next[key][part]) for key in (*written, *done)]
        self._root = [(key, rows.root[key][part]) for key in (*(key for key, _, _ in layout.observations), *done)]
        # Who reads more of the root is shown the caller's data.
        read = [key for key in layout.read_by_all if key not in layout.handed_on]
        with torch.inference_mode(False):  # later steps write into these, in any mode
            self._carried = [(key, _from_numpy(rows.root[key][part])) for key in read]
            self._handed_on = [(key, _from_numpy(rows.root[key][part])) for key in layout.handed_on]
        self._carries_at_root = all(type(key) is str for key in layout.read_by_all)
        self._next_handed_on = [(key, rows.next[key][part]) for key in layout.handed_on]
        if not batch_size:
            rows.copy_next = self._copy_next
        self._flat = not any(isinstance(child, Composite) for child in layout.next_spec.values())
        self._next_builder = TensorDictBuilder(layout.next_spec, batch_size, device=self.device)
        self._root_builder = TensorDictBuilder(layout.root_spec, batch_size, device=self.device)
        self._action = None if batch_size else self._single_action()

    def _single_action(self) -> tuple[Any, ...] | None:
        """The only action, at the root: what the shortest way through ``step`` needs to know of it."""
        keys = self.layout.action_keys
        if len(keys) != 1 or not isinstance(keys[0], str):
            return None
        key, codec = keys[0], self.layout.actions
        leaf, decoder, rule = codec.spec[key], codec.decoders[key], codec.rules[key]
        decode = decoder.one
        if self.writer.inverts:
            find = getattr(self.writer, "decoder_of_one", None)
            judged = None if find is None else find()
            if judged is None:
                return None
            decode = judged
        elif rule.allows is not None and not decoder.judges:
            return None
        return key, torch.Size(leaf.shape), leaf.dtype, decode

    def natives(self, tensordict: TensorDictBase) -> Any:
        """Return the native actions of all rows. What is of another dtype is converted in ``tensordict`` too.

        Raises:
            ActionError: one is missing, or does not fit; see :mod:`steppe.envs.action_rules`.
        """
        if self._action is not None:
            key, shape, dtype, decode = self._action
            action = entries(tensordict).get(key) if type(tensordict) is TensorDict else tensordict.get(key, None)
            if type(action) is _Tensor and action.shape == shape:
                if action.dtype is not dtype:
                    action = self.layout.actions.rules[key].fit(action)
                    put_action(tensordict, key, action)
                return (decode(action),)
        codec = self.layout.actions
        if self.batch_size:
            return self.writer.decode(codec.rows_of(tensordict, self.batch_size))
        if not self.writer.inverts:
            return (codec.from_tensordict(tensordict),)
        return self.writer.decode(codec.rows_of(tensordict))

    def step(self, tensordict: TensorDictBase) -> tuple[TensorDict, Ended]:
        """Act, and return ``next`` in memory of its own, and the rows whose episodes have ended."""
        actions = self.natives(tensordict)
        if self._carried:
            # tensordict itself takes nine times as long to look up a name.
            find: Any = tensordict.get
            if self._carries_at_root and type(tensordict) is TensorDict:
                find = entries(tensordict).get
            for key, row in self._carried:
                value = find(key, None)
                if value is None:
                    raise self._nothing_to_carry(key, tensordict)
                row.copy_(value.detach() if value.requires_grad else value)
        handed_on = self._take_handed_on(tensordict) if self._handed_on else None
        rows = self.rows
        rows.copied = None
        if self._shows_root:
            rows.given = tensordict
            ended = self._step(actions)
            rows.given = None
        else:
            ended = self._step(actions)
        data: dict[Any, torch.Tensor] | None = rows.copied
        if data is None:
            data = {key: _from_numpy(row.copy()) for key, row in self._next}
        else:
            rows.copied = None
        if handed_on is not None:
            data.update(handed_on)
        return build_td(data, self.batch_size, self.device) if self._flat else self._next_builder(data), ended

    def _copy_next(self) -> dict[Any, torch.Tensor]:
        return {key: _from_numpy(row.copy()) for key, row in (*self._next, *self._next_handed_on)}

    def _take_handed_on(self, tensordict: TensorDictBase) -> dict[Any, torch.Tensor]:
        """What goes from the root to ``next`` as it is, with its gradients: as the caller has written it there, or not.

        Rows get the values, for those who look at them.
        """
        find: Any = tensordict.get
        if self._carries_at_root and type(tensordict) is TensorDict:
            find = entries(tensordict).get
        written = find("next", None)
        found = {}
        for key, row in self._handed_on:
            value = None if written is None else written.get(key, None)
            if value is None:
                value = find(key, None)
            if value is None:
                raise self._nothing_to_carry(key, tensordict)
            row.copy_(value.detach() if value.requires_grad else value)
            found[key] = value
        return found

    def _nothing_to_carry(self, key: Any, tensordict: TensorDictBase) -> KeyError:
        return KeyError(
            f"There is no {key!r} in the data given to step. Step what reset, step_mdp or step_and_maybe_reset "
            f"returned, with an action added to it. Found {sorted(map(str, tensordict.keys()))}."
        )

    def reset(self, root: TensorDict | None = None, *, env_info: dict[str, Any] | None = None) -> TensorDict:
        """Begin an episode in each row, in a new TensorDict or into ``root``."""
        self._loop.reset(self._all, None if env_info is None else [env_info])
        data = {key: _from_numpy(row.copy()) for key, row in self._root}
        if not self._flat:
            fresh = self._root_builder(data)
            return fresh if root is None else root.update(fresh)
        if root is None:
            return build_td(data, self.batch_size, self.device)
        entries(root).update(data)
        return root

    def reset_ended(self, root: TensorDict, following: TensorDict, ended: Ended) -> TensorDict:
        """Begin episodes where one has ended.

        Args:
            root: of the next step, made of ``following``.
            following: what :meth:`step` returned, which stays as it is.
            ended: the same.

        Returns:
            ``root``, in which these rows have the first data of their episodes.
        """
        if not self.batch_size:
            # What a caller gave to a reset stays in the data, and holds for the resets that follow.
            return self.reset(root, env_info=native_info(entries(root).get("env_info")))
        at = [row for row, _, _ in ended]
        self._loop.reset(at)
        mask = np.zeros(self.rows.n, bool)
        mask[at] = True
        overlay_reset(root, [(key, row, following.get(key).numpy()) for key, row in self._root], mask)
        return root

    def attach(self, tensordict: TensorDict, following: TensorDictBase) -> TensorDict:
        """Put ``following`` under ``"next"``, with what was there and the environment does not write."""
        if self.batch_size:
            put_next(tensordict, following)
            return tensordict
        before = entries(tensordict).get("next")
        if before is not None:
            following = before.copy().update(following)
        if tensordict.is_locked or (tensordict.device is not self.device and tensordict.device is not None):
            tensordict.set("next", following)
        else:
            entries(tensordict)["next"] = following
        return tensordict


def overlay_reset(
    root: TensorDictBase,
    columns: list[tuple[Any, np.ndarray[Any, Any], np.ndarray[Any, Any]]],
    reset: np.ndarray[Any, Any],
) -> None:
    """Write the first data of rows that were reset into the root of the next step.

    Args:
        root: ``[n]``, gets tensors in memory of their own.
        columns: key, values of rows that were reset, and values of the others, ``[n, *shape]`` each.
        reset: which rows were reset, ``[n]`` bool.
    """
    level = entries(root) if type(root) is TensorDict and not root.is_locked else None
    for key, value in overlaid(columns, reset).items():
        if level is not None and type(key) is str:
            level[key] = value
        else:
            root.set(key, value)


def overlaid(
    columns: list[tuple[Any, np.ndarray[Any, Any], np.ndarray[Any, Any]]], reset: np.ndarray[Any, Any]
) -> dict[Any, torch.Tensor]:
    """Entries of the next root by key, in memory of their own; arguments as those of :func:`overlay_reset`."""
    return {
        key: _from_numpy(np.where(reset.reshape((-1,) + (1,) * (fresh.ndim - 1)), fresh, others))
        for key, fresh, others in columns
    }
