"""LanePolicy: call the policy of lanes, and write its entries to slots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from steppe.envs import RandomActions, action_rules, with_written
from steppe.errors import SpecError
from steppe.specs import CPU, torch_to_numpy_dtype_dict
from steppe.storage import build_td, entries, find_entry
from steppe_agents.slot_writer import SlotWriter

if TYPE_CHECKING:
    from steppe_agents.lanes import Lanes

__all__ = ["LanePolicy"]

_Array = np.ndarray[Any, np.dtype[Any]]

_ALL = slice(None)
_NO_ENTRIES: dict[str, Any] = {}


class LanePolicy:
    """Call the policy of lanes, and write its entries to the current block of slots.

    Data has a row for each lane here, idle ones included. The policy is called with the rows of active lanes. Each step
    of a small network takes about 100 us, so this class works on the dicts behind TensorDicts and on numpy views.

    Args:
        lanes: the lanes, which have the state of the segment between two runs.

    Attributes:
        began: the lanes that begin an episode with the next step.
        places: for each lane, the row of the infos that it has.
    """

    def __init__(self, lanes: Lanes) -> None:
        self._lanes, self._env, self._n = lanes, lanes.env, lanes.n
        self._has_batch = bool(lanes.env.batch_dims)
        self._adds_init = "is_init" not in lanes.env.observation_keys
        self.began: list[int] = []
        self.places = np.zeros(lanes.n, np.int64)
        self._writer: SlotWriter
        self._init: torch.Tensor
        with torch.inference_mode(False):  # so that it counts the changes of its values
            self._not_init = torch.zeros(lanes.n, 1, dtype=torch.bool, device=CPU)

    # -- one run --------------------------------------------------------------------------------------------------

    def begin(self, root: TensorDictBase, places: list[int]) -> None:
        """Take over the entries of the request from the root of the next step, of all lanes.

        Args:
            root: the root.
            places: for each lane, the row of the infos that it has.
        """
        lanes = self._lanes
        self._act = lanes.act
        self._random = lanes.act if isinstance(lanes.act, RandomActions) else None
        self._infos = lanes.infos_of_lanes if lanes.n_steps is not None else lanes.infos_of_rows
        self.places, self.began = np.array(places, np.int64), []
        self._agent_info, self._env_info = root.get("agent_info", None), root.get("env_info", None)
        self._state = root.get("agent_state", None)
        self._init = root.get("is_init") if self._adds_init else self._not_init
        #: The memory of ``is_init`` as an array.
        self._init_array = self._init.numpy()
        if not bool(self._init.any()):
            self._init = self._no_init()

    def write_to(self, writer: SlotWriter, of_env: set[Any]) -> None:
        """Write to the current block of slots, from its current position on.

        Args:
            writer: the slots.
            of_env: the entries that the environment writes.
        """
        self._writer = writer
        #: The policy's entries: arrays, which numpy copies faster, and tensors of dtypes that numpy lacks.
        self._arrays: list[tuple[Any, _Array, tuple[int, ...], Any]] = []
        self._tensors: list[tuple[Any, torch.Tensor]] = []
        self._states_before: list[tuple[Any, torch.Tensor]] = []
        self._states_after: list[tuple[Any, torch.Tensor]] = []
        self._init_column: _Array | None = None
        self._ids_column: _Array | None = None
        env = self._env
        rules = action_rules(env.full_action_spec, env.full_done_spec, batch_dims=len(env.batch_size))
        self._rules = {rule.key: rule for rule in rules}
        for key, tensor in writer.tensors.items():
            steps = tensor.transpose(0, 1)
            if key == "is_init" and self._adds_init:
                self._init_column = steps.numpy()
                self._init_column[writer.position :] = False
            elif key == ("collector", "traj_ids"):
                self._ids_column = steps.numpy()
            elif key in of_env:
                continue
            elif key[0] == "agent_state":
                self._states_before.append((key, steps))
            elif key[:2] == ("next", "agent_state"):
                self._states_after.append((key, steps))
            elif tensor.dtype in torch_to_numpy_dtype_dict:
                array = steps.numpy()
                self._arrays.append((key, array, array.shape[2:], array.dtype))
            else:
                self._tensors.append((key, steps))

    def set_active(self, active: list[int]) -> None:
        """Call the policy with the rows of these lanes."""
        self._rows: Any = _ALL if len(active) == self._n else active
        self._index = None if len(active) == self._n else torch.tensor(active, dtype=torch.int64, device=CPU)
        if self._index is not None:
            #: For each lane, the index of its action among the active rows. Idle lanes take the first action, which has
            #: no effect.
            self._spread = torch.zeros(self._n, dtype=torch.int64, device=CPU)
            self._spread[self._index] = torch.arange(len(active), device=CPU)

    def begin_rows(self, at: list[int], places: list[int]) -> None:
        """Begin episodes in some lanes with the next step, with infos at some places."""
        self.began = at if not self.began else sorted({*self.began, *at})
        if self._adds_init:
            self._init_array = flags = np.zeros((self._n, 1), np.bool_)
            for lane in self.began:  # an index of a few lanes takes ten times as long
                flags[lane] = True
            self._init = torch.from_numpy(flags)
        agent_info, env_info = self._infos
        # In slices, lanes keep their infos.
        if self._lanes.n_steps is None and (agent_info is not None or env_info is not None):
            self.places[at] = places
            index = torch.from_numpy(self.places)
            self._agent_info = None if agent_info is None else _picked(agent_info, index)
            self._env_info = None if env_info is None else _picked(env_info, index)

    def _no_init(self) -> torch.Tensor:
        """Return ``is_init`` of a step in which no row begins: one tensor, unless the policy has written into it."""
        if self._not_init._version:
            with torch.inference_mode(False):
                self._not_init = torch.zeros(self._n, 1, dtype=torch.bool, device=CPU)
        return self._not_init

    # -- one step -------------------------------------------------------------------------------------------------

    def add_entries(self, td: TensorDictBase) -> TensorDictBase:
        """Add infos, ``is_init`` and the state to data ``[n]`` of all lanes; rows that begin get an initial state."""
        level = entries(td) if type(td) is TensorDict else {}
        if self._adds_init:
            level["is_init"] = self._init
        if self._agent_info is not None:
            level["agent_info"] = self._agent_info
        if self._env_info is not None:
            level["env_info"] = self._env_info
        if type(td) is not TensorDict:
            td.update(level)
        if self._state is not None:
            if self.began:
                self._state = self._lanes.agent_state.begun(td, self._state, self.began)
                self._writer.write_state(self._state, self.began, self.began)
            if type(td) is TensorDict:
                level["agent_state"] = self._state
            else:
                td.set("agent_state", self._state)
        if self.began:
            self.began = []
        return td

    def act(self, root: TensorDictBase) -> TensorDictBase:
        """Call the policy, write its entries to the slots, and return the root of all lanes with actions.

        Args:
            root: the entries of the environment, ``[n]``; without a batch dimension for a single environment.
        """
        lanes, random, index = self._lanes, self._random, self._index
        if random is not None:
            for key, values in random.take(1).items():
                root.set(key, values[0])
        td = out = self.add_entries(root if self._has_batch else root.unsqueeze(0))
        if random is not None:
            index = None
        elif not lanes.compact:
            out, index = self._padded(td), None
        else:
            if index is not None:
                out = _picked(td, index)
            written = self._act(out)
            if written is not out:
                out = with_written(out, written)
        rows = _ALL if index is None else self._rows
        self._write(out, rows)
        before = self._state
        if before is not None:
            state = lanes.agent_state.next_state(out)
            assert state is not None
            self._write_states(before, state, rows)
            self._state = state if index is None else _merged(before, state, index)
        if self._init is not self._not_init or self._init._version:
            self._init = self._no_init()
        if index is None and self._has_batch:
            return out
        for key in self._env.action_keys:
            action = out.get(key)
            root.set(key, action[self._spread] if self._has_batch else action[0])
        return root

    def _padded(self, td: TensorDictBase) -> TensorDictBase:
        """Call the policy with all lanes; ``("collector", "mask")`` marks the active ones."""
        mask = torch.zeros(self._n, dtype=torch.bool, device=CPU)
        mask[self._rows] = True
        td = td.copy()
        td.set(("collector", "mask"), mask)
        acted: TensorDictBase = with_written(td, self._lanes.act(td)).exclude("collector")
        return acted

    def _write(self, out: TensorDictBase, rows: Any) -> None:
        """Write the policy's entries, ``is_init`` and episode numbers to the current position of the block.

        Args:
            out: the output of the policy, of some rows.
            rows: index of these rows.
        """
        t = self._writer.position
        if self._init_column is not None and self._init is not self._not_init:
            self._init_column[t] = self._init_array
        if self._ids_column is not None:
            self._ids_column[t] = self._lanes.episode_of
        level = entries(out) if type(out) is TensorDict else _NO_ENTRIES
        for key, array, shape, dtype in self._arrays:
            try:
                values = level[key].numpy()  # fails for entries that are missing, nested or have gradients
                if values.dtype is not dtype or values.shape[1:] != shape:
                    raise TypeError
            except (KeyError, AttributeError, RuntimeError, TypeError):
                values = self._fitting(key, find_entry(out, key), rows).numpy()
            if rows is _ALL:
                array[t] = values
            else:
                array[t][rows] = values
        for key, tensor in self._tensors:
            tensor[t][rows] = self._fitting(key, find_entry(out, key), rows)

    def _write_states(self, before: TensorDictBase, state: TensorDictBase, rows: Any) -> None:
        """Write the agent's states before a step, of all lanes, and after it, of the rows at an index."""
        t = self._writer.position
        for key, tensor in self._states_before:
            tensor[t] = self._fitting(key, find_entry(before, key[1:]), _ALL)
        for key, tensor in self._states_after:
            tensor[t][rows] = self._fitting(key, find_entry(state, key[2:]), rows)

    def _fitting(self, key: Any, value: Any, rows: Any) -> torch.Tensor:
        """Return an entry ``[k]`` of a step as a plain tensor, if it has the shape and dtype of the first step.

        An action may have another dtype, which is converted.

        Raises:
            SpecError: it has not, or is missing.
        """
        expected = self._writer.tensors[key]
        shape, dtype = tuple(expected.shape[2:]), expected.dtype
        if key in self._rules and isinstance(value, torch.Tensor):
            value = self._rules[key].fit(value.detach(), value.shape[:1], rows=None if rows is _ALL else rows)
        if value is None:
            raise SpecError(f"A step does not have the entries of the first one: {key!r} is missing.")
        if tuple(value.shape[1:]) != shape or value.dtype is not dtype:
            raise SpecError(
                f"A step does not have the entries of the first one: {key!r} has shape {tuple(value.shape[1:])} and "
                f"{value.dtype}, and had {shape} and {dtype} in the first step."
            )
        detached: torch.Tensor = value.detach()
        return detached


def _picked(data: Any, index: torch.Tensor) -> TensorDict:
    """Return some rows of data ``[n]`` in new memory, which takes a third of the time of ``data[index]``."""
    if type(data) is not TensorDict:
        return data[index]  # type: ignore[no-any-return]
    level = {
        name: value.index_select(0, index) if type(value) is torch.Tensor else _picked(value, index)
        for name, value in entries(data).items()
    }
    return build_td(level, torch.Size([len(index), *data.batch_size[1:]]), data.device)


def _merged(whole: TensorDictBase | None, rows: TensorDictBase, index: torch.Tensor) -> TensorDictBase:
    """Return a copy of ``whole`` ``[n]`` with some rows replaced."""
    assert whole is not None
    merged: TensorDictBase = whole.clone()
    for key, value in rows.items(True, True):
        find_entry(merged, key).index_copy_(0, index, value)
    return merged
