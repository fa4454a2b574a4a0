"""Rows of a batch in its storage: write the inputs of a step, copy its results out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from steppe.batched.flags import Flags
from steppe.batched.readout import readout
from steppe.envs import EnvBase, RowLayout, action_rules, missing_action
from steppe.specs import OUTPUT_KINDS, below_next, union
from steppe.storage import TOLIST_LIMIT, Storage, entries, set_array

__all__ = ["WRITTEN", "BatchRows", "arrays_of_rows", "rows_of_masks"]

_Tensor = torch.Tensor

#: Stands in for decoded actions: the actions are in storage, where workers read them.
WRITTEN: Any = ()


class BatchRows:
    """Write the inputs of steps and resets into storage, and copy their data out of it.

    Args:
        batch: the batch, for its specs.
        storage: ``[n]`` rows of root and ``("next", ...)`` leaves.
        flags: the flags of these rows.
        read: keys of the root that the environments read beside the action; None if they may read all of it.

    Attributes:
        actions: for each action its key, the rule for it, the shape of all rows, and its array and tensor.
        root_inputs: for each other input of a step its key, array and tensor.
        root_out: copies the root out.
        next_out: copies ``next`` out.
    """

    def __init__(self, batch: EnvBase, storage: Storage, flags: Flags, read: list[Any] | None) -> None:
        self.storage, self.flags = storage, flags
        root_inputs = (*batch.state_keys, *batch.observation_keys, *batch.done_keys) if read is None else read
        self.root_inputs = [
            (key, storage.arrays.get(key), storage.tensors[key])
            for key in dict.fromkeys(root_inputs)
            if key in storage.tensors
        ]
        size = batch.batch_size
        self.actions = [
            (rule.key, rule, size + (rule.shape or ()), storage.arrays.get(rule.key), storage.tensors[rule.key])
            for rule in action_rules(batch.full_action_spec, batch.full_done_spec, batch_dims=len(size))
            if rule.key in storage.tensors
        ]
        #: Of the only action by name: its key, dtype, shape, whether it is few numbers, array, and test of its choices.
        self._only: tuple[Any, ...] | None = None
        if len(self.actions) == 1:
            key, rule, whole, array, _ = self.actions[0]
            if isinstance(key, str) and array is not None:
                self._only = (rule.dtype, whole, whole.numel() <= TOLIST_LIMIT, array, rule.allows)
        self._info_keys = list(batch.env_info_spec.keys())
        self._reset_masks = [(group.prefix, storage.tensors.get(group.reset_key)) for group in batch.done_groups]
        self.come_out(batch)

    def come_out(self, batch: EnvBase) -> None:
        """Copy data out to the batch's device from now on."""
        obs, done, reward = batch.observation_keys, batch.done_keys, batch.reward_keys
        root = union(batch.full_observation_spec, batch.full_done_spec)
        following = union(*(batch._full_spec(kind) for kind in OUTPUT_KINDS))
        fixed = self.storage.tensors
        keys = {key: key for key in (*obs, *done) if key in fixed}
        self.root_out = readout(self.storage, keys, root, batch.device)
        keys = {key: below_next(key) for key in (*obs, *reward, *done) if below_next(key) in fixed}
        self.next_out = readout(self.storage, keys, following, batch.device)

    def write_inputs(self, tensordict: TensorDictBase, rows: Any = None) -> None:
        """Validate the actions, and write them and the other inputs of a step."""
        self.write_action(tensordict, rows)
        if self.root_inputs:
            self.write_root_inputs(tensordict, rows)

    def write_fitting(self, action: torch.Tensor) -> Any:
        """Write the only action of all rows into storage, ``[n, *shape]``, if it fits.

        Returns:
            WRITTEN; None if it does not fit, or only after a conversion.
        """
        if self._only is None:
            return None
        dtype, shape, few, array, allows = self._only
        if action.dtype is not dtype or action.shape != shape:
            return None
        try:
            array[...] = action.tolist() if few else action.numpy()
        except (TypeError, RuntimeError):  # it requires a gradient, or is on a GPU
            return None
        # Choices are validated in storage, which is cheaper; the general path raises an error that names the rows.
        return WRITTEN if allows is None or bool(allows(array)) else None

    def write_action(self, tensordict: TensorDictBase, rows: Any = None) -> None:
        """Validate the actions and write them into storage."""
        level = entries(tensordict) if type(tensordict) is TensorDict else None
        for key, rule, whole, array, tensor in self.actions:
            value = level.get(key) if level is not None and type(key) is str else tensordict.get(key, None)
            if value is None:
                raise missing_action(tensordict, key)
            if rows is None and type(value) is _Tensor and value.dtype is rule.dtype and value.shape == whole:
                # Choices are validated in storage, which is cheaper.
                set_array(array, tensor, value)
                if rule.allows is None or (array is not None and rule.allows(array)):
                    continue
            fitted = rule.fit(value, tensordict.batch_size, rows=rows)
            if fitted is not value:
                tensordict.set(key, fitted)
            set_array(array, tensor, fitted, rows)

    def write_checked_action(self, tensordict: TensorDictBase) -> None:
        """Write actions that were validated already."""
        for key, *_, array, tensor in self.actions:
            set_array(array, tensor, tensordict.get(key))

    def write_root_inputs(self, tensordict: TensorDictBase, rows: Any = None) -> bool:
        """Write the other inputs of a step or reset; return whether the data had all of them."""
        level = entries(tensordict) if type(tensordict) is TensorDict else None
        complete = True
        for key, array, tensor in self.root_inputs:
            value = level.get(key) if level is not None and type(key) is str else tensordict.get(key, None)
            if value is None:
                complete = False
                self.fill_root(key, rows)
                continue
            set_array(array, tensor, value, rows)
        return complete

    def fill_root(self, key: Any, rows: Any = None) -> bool:
        """Write an input of a step that the data lacks: what the environments returned last.

        Returns:
            Whether they return this entry.
        """
        tensors, following = self.storage.tensors, self.storage.tensors.get(below_next(key))
        if following is None:
            return False
        numbers = np.arange(self.flags.begun.size) if rows is None else np.asarray(rows)
        at = torch.from_numpy(numbers[~self.flags.begun[numbers]])
        tensors[key][at] = following[at]
        return True

    def write_info(self, env_info: Any, rows: list[int], *, whole: bool) -> None:
        """Write the ``env_info`` of rows to be reset; a whole reset without one drops the earlier ones."""
        if not self._info_keys:
            return
        at = np.asarray(rows, np.int64)
        if env_info is None:
            if whole:
                self.flags.has_info[at] = False
            return
        for key in self._info_keys:
            value = env_info.get(key)
            part = value if value.shape[0] == len(rows) else value[torch.from_numpy(at)]
            set_array(self.storage.arrays.get(("env_info", key)), self.storage.tensors["env_info", key], part, at)
        self.flags.has_info[at] = True

    def write_infos(self, at: Sequence[int], infos: Sequence[dict[str, Any] | None]) -> None:
        """Write the ``env_info`` that rows get at each reset from now on, a dict or None for each row."""
        if not self._info_keys:
            return
        for row, info in zip(at, infos, strict=True):
            self.flags.has_info[row] = info is not None
            if info is not None:
                for key in self._info_keys:
                    self.storage.arrays["env_info", key][row] = info[key]

    def write_masks(self, masks: dict[Any, torch.Tensor]) -> None:
        """Write the reset mask of each level, by prefix. A level without a mask is reset completely."""
        for prefix, target in self._reset_masks:
            assert target is not None
            mask = masks.get(prefix)
            if mask is None:
                target.fill_(True)
            else:
                target.copy_(mask.reshape(mask.shape + (1,) * (target.ndim - mask.ndim)).expand(target.shape))

    def require_grad(self, tensordict: TensorDictBase) -> bool:
        """Return whether an input requires grad; its graph would be lost in storage."""
        values = [tensordict.get(key, None) for key, *_ in (*self.actions, *self.root_inputs)]
        return any(value is not None and value.requires_grad for value in values)


def arrays_of_rows(
    layout: RowLayout, storage: Storage, rows: slice = slice(None)
) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Return the arrays in storage of the root and of ``next`` of some rows, for :class:`~steppe.envs.Rows`."""
    arrays = storage.arrays
    keys = layout.next_spec.keys(include_nested=True, leaves_only=True)
    root = {key: arrays[key][rows] for key in layout.root_keys}
    return root, {key: arrays[below_next(key)][rows] for key in keys}


def rows_of_masks(masks: list[torch.Tensor]) -> list[int]:
    """Return the rows in which one of the masks ``[n, ...]`` has a True."""
    some = [mask.reshape(mask.shape[0], -1).any(-1) for mask in masks]
    rows: list[int] = torch.stack(some).any(0).nonzero().squeeze(-1).tolist()
    return rows
