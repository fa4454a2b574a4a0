"""RowSteps: steps and resets on TensorDicts that go through rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import torch
from tensordict import TensorDict, TensorDictBase

from steppe.envs.array.row_loop import Loop
from steppe.envs.array.row_writer import EnvInfo, RowWriter
from steppe.envs.array.rows import Ended, Rows
from steppe.envs.data_types import Key
from steppe.envs.env_info import info_for_library
from steppe.envs.next_root import FlatRoots, StepPlan, begun, put_next, write_begun
from steppe.specs import Composite
from steppe.storage import TensorDictBuilder, build_td, entries, set_array
from steppe.workers import exclusive

__all__ = ["ExclusiveRowSteps", "RowSteps", "row_steps_of"]

_NO_BATCH = torch.Size([])
_from_numpy = torch.from_numpy
_Tensor = torch.Tensor
_P = ParamSpec("_P")
_T = TypeVar("_T")


class RowSteps:
    """Step all rows of a writer, and return copies of them as TensorDicts.

    Args:
        writer: the row writer of one environment or of a batch.
        batch_size: batch size of the data: empty for one environment, ``(n,)`` for a batch of n rows.
        plan: which entries ``step_mdp`` of the environment drops; None if a subclass overrides ``step_mdp``.

    Attributes:
        rows: the rows that the writer writes.
        loop: the writer, bound to these rows.
        part: index of the caller's data in an array of rows: all rows, or row 0.
    """

    def __init__(self, writer: RowWriter, batch_size: torch.Size = _NO_BATCH, plan: StepPlan | None = None) -> None:
        layout = writer.layout
        self.writer, self.layout, self.device = writer, layout, layout.device
        self.in_use, self.batch_size = writer.in_use, batch_size
        self.rows = rows = writer.new_rows()
        self.loop = Loop(writer, rows)
        self._step, self._step_and_reset = self.loop.step, self.loop.step_and_reset
        self._shows_root = layout.reads_root
        if self._shows_root:
            self._step, self._step_and_reset = _hiding_root(rows, self._step), _hiding_root(rows, self._step_and_reset)
        self._all = tuple(range(writer.n))
        done = layout.done_keys
        part = self.part = (...,) if batch_size else (0, ...)
        written = [key for key, _, _ in layout.written if key not in layout.copied_to_next]
        self._next = [(key, rows.next[key][part]) for key in (*written, *done)]
        # Each step calls these methods, so they are looked up once. Copies that the next step reads are kept.
        kept = layout.read_by_all
        self._kept_copies = [(key, array.copy) for key, array in self._next if key in kept]
        self._copies = [(key, array.copy) for key, array in self._next if key not in kept]
        self._kept: dict[Key, tuple[torch.Tensor | None, Any]] = dict.fromkeys(kept, (None, None))
        self._root = [(key, rows.root[key][part]) for key in (*(key for key, _, _ in layout.observations), *done)]
        # A row that was reset has not ended, unless the environment sets its done entries in every step.
        self._begun = [
            (key, array, None if key in done and not layout.flags_every_step else rows.next[key][part])
            for key, array in self._root
        ]
        # A transform that may read any entry of the root gets the caller's data, as rows.root_data.
        read = [key for key in layout.read_by_all if key not in layout.copied_to_next]
        with torch.inference_mode(False):  # later steps write into these, in any mode
            self._root_inputs = [(key, rows.root[key][part], _from_numpy(rows.root[key][part])) for key in read]
            self._copied_to_next = [(key, _from_numpy(rows.root[key][part])) for key in layout.copied_to_next]
        self._inputs_at_root = all(type(key) is str for key in layout.read_by_all)
        self._flat = not any(isinstance(child, Composite) for child in layout.next_spec.values())
        self._next_builder = TensorDictBuilder(layout.next_spec, batch_size, device=self.device)
        self._root_builder = TensorDictBuilder(layout.root_spec, batch_size, device=self.device)
        names = [*written, *done, *layout.copied_to_next]
        self._roots = None if plan is None else FlatRoots.of(plan, names, batch_size, self.device)
        # The key of the only action, and a function that decodes it; others are decoded by the writer.
        keys = layout.action_keys
        self._action = keys[0] if len(keys) == 1 and isinstance(keys[0], str) else None
        self._decode = None if self._action is None else writer.fast_decoder(batch_size)

    # -- actions --------------------------------------------------------------------------------------------------

    def library_actions(self, tensordict: TensorDictBase) -> Any:
        """Return the library actions of all rows. An action of another dtype is converted in ``tensordict`` too.

        Raises:
            ActionError: an action is missing or does not fit; see :mod:`steppe.envs.action_rules`.
        """
        if self._decode is not None:
            find: Any = entries(tensordict).get if type(tensordict) is TensorDict else tensordict.get
            action = find(self._action, None)
            decoded = self._decode(action) if type(action) is _Tensor else None
            if decoded is not None:
                return decoded
        codec = self.layout.actions
        if self.batch_size:
            return self.writer.decode(codec.rows_of(tensordict, self.batch_size))
        if not self.writer.inverts:
            return (codec.from_tensordict(tensordict),)
        return self.writer.decode(codec.rows_of(tensordict))

    # -- steps ----------------------------------------------------------------------------------------------------

    def step(self, tensordict: TensorDictBase) -> TensorDict:
        """Step all rows, and return ``next`` in new memory."""
        actions, passed = self._inputs(tensordict)
        self._step(actions)
        return self._built(self._outputs(passed))

    def step_and_reset(
        self, tensordict: TensorDict, step_mdp: Callable[[TensorDictBase], TensorDictBase]
    ) -> TensorDictBase:
        """Step all rows, put ``next`` into ``tensordict``, and begin episodes in the rows that ended.

        Args:
            tensordict: root data with the action.
            step_mdp: the method of the environment, for data with nested entries.

        Returns:
            The next root. Rows that ended hold the first data of an episode there.
        """
        roots = self._roots
        level = None if roots is None else roots.level_of(tensordict)
        actions, passed = self._inputs(tensordict)
        ended = self._step_and_reset(actions, None if level is not None else self._infos(tensordict))
        data = self._outputs(passed)
        fresh = self.first_data(ended) if ended else None
        if level is not None and roots is not None:
            return roots.put(tensordict, level, data, fresh)
        root = step_mdp(put_next(tensordict, self._built(data)))
        return root if fresh is None else write_begun(root, fresh)

    def advance(self, tensordict: TensorDictBase, *, reset: bool = True, at: Sequence[int] | None = None) -> Ended:
        """Step all rows, leaving the data in ``rows``.

        Args:
            tensordict: root data with the action.
            reset: begin episodes in the rows that ended.
            at: step these rows only, without resets.

        Returns:
            The rows that ended.
        """
        actions, _ = self._inputs(tensordict)
        if at is not None:
            in_rows = hasattr(actions, "__len__") and len(actions) == self.writer.n
            return self._step([actions[row] for row in at] if in_rows else actions, at)
        return self._step_and_reset(actions, self._infos(tensordict)) if reset else self._step(actions)

    def _infos(self, tensordict: TensorDictBase) -> list[EnvInfo | None] | None:
        """Return the ``env_info`` of the last reset of a single row, which stays in the data; None for a batch."""
        info = None if self.batch_size or type(tensordict) is not TensorDict else entries(tensordict).get("env_info")
        return None if info is None else [info_for_library(info)]

    def _inputs(self, tensordict: TensorDictBase) -> tuple[Any, dict[Key, torch.Tensor] | None]:
        """Write the inputs of a step; return library actions and the entries that are passed through to ``next``."""
        actions = self.library_actions(tensordict)
        if self._shows_root:
            self.rows.root_data = tensordict
        if self._root_inputs:
            # TensorDict.get takes nine times as long to look up a name.
            find: Any = tensordict.get
            if self._inputs_at_root and type(tensordict) is TensorDict:
                find = entries(tensordict).get
            for key, array, tensor in self._root_inputs:
                value = find(key, None)
                if value is None:
                    if self.writer.fill_root(key):
                        continue
                    raise self._missing_root_input(key, tensordict)
                kept, memory = self._kept[key]
                if value is kept:  # its own memory, changed or not: numpy copies a few numbers faster than torch
                    array[...] = memory
                else:
                    set_array(array, tensor, value)
        return actions, self._read_copied(tensordict) if self._copied_to_next else None

    def _outputs(self, passed: dict[Key, torch.Tensor] | None) -> dict[Any, Any]:
        """Return the entries of ``next`` in new memory."""
        data = {key: _from_numpy(copy()) for key, copy in self._copies}
        for key, copy in self._kept_copies:
            memory = copy()
            data[key] = value = _from_numpy(memory)
            self._kept[key] = value, memory
        if passed is not None:
            data.update(passed)
        return data

    def _built(self, data: dict[Any, Any]) -> TensorDict:
        return build_td(data, self.batch_size, self.device) if self._flat else self._next_builder(data)

    def first_data(self, ended: Ended) -> dict[Any, torch.Tensor]:
        """Return the entries of the next root, in which these rows have begun an episode."""
        if not self.batch_size:
            return {key: _from_numpy(row.copy()) for key, row in self._root}
        return begun(self._begun, [row for row, _, _ in ended])

    def _read_copied(self, tensordict: TensorDictBase) -> dict[Key, torch.Tensor]:
        """Return the entries that a step copies from the root to ``next``, with their gradients.

        A value that the caller has written under ``next`` takes precedence over the one of the root. The rows get the
        values too, for transforms that read them.
        """
        find: Any = tensordict.get
        if self._inputs_at_root and type(tensordict) is TensorDict:
            find = entries(tensordict).get
        written = find("next", None)
        passed = {}
        for key, row in self._copied_to_next:
            value = None if written is None else written.get(key, None)
            if value is None:
                value = find(key, None)
            if value is None:
                raise self._missing_root_input(key, tensordict)
            row.copy_(value.detach() if value.requires_grad else value)
            passed[key] = value
        return passed

    def _missing_root_input(self, key: Key, tensordict: TensorDictBase) -> KeyError:
        return KeyError(
            f"There is no {key!r} in the data given to step. Step what reset, step_mdp or step_and_maybe_reset "
            f"returned, with an action added to it. Found {sorted(map(str, tensordict.keys()))}."
        )

    # -- resets ---------------------------------------------------------------------------------------------------

    def reset(self, *, env_info: EnvInfo | None = None) -> TensorDict:
        """Begin an episode in each row."""
        self.loop.reset(self._all, [env_info] * len(self._all))
        data: dict[Any, torch.Tensor] = {key: _from_numpy(row.copy()) for key, row in self._root}
        return build_td(data, self.batch_size, self.device) if self._flat else self._root_builder(data)


class ExclusiveRowSteps(RowSteps):
    """RowSteps that raise a StateError if a second thread steps the environments at the same time."""

    step = exclusive("step")(RowSteps.step)
    step_and_reset = exclusive("step_and_maybe_reset")(RowSteps.step_and_reset)
    reset = exclusive("reset")(RowSteps.reset)


def _hiding_root(rows: Rows, act: Callable[_P, _T]) -> Callable[_P, _T]:
    """Return ``act`` so that it resets ``root_data``: later steps may read their roots from the rows."""

    def acting(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return act(*args, **kwargs)
        finally:
            rows.root_data = None

    return acting


def row_steps_of(writer: RowWriter, batch_size: torch.Size, plan: StepPlan | None = None) -> RowSteps:
    """Return the RowSteps of a writer; see the class for the arguments."""
    return (RowSteps if writer.in_use is None else ExclusiveRowSteps)(writer, batch_size, plan)
