"""What a batch does at each step and reset: data into storage, a command, data out of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from steppe.batched.flags import Flags
from steppe.batched.layout import BatchLayout
from steppe.batched.operations import RESET, RESET_BY_MASKS, RESET_ON_DATA, STEP, STEP_AND_RESET
from steppe.batched.readout import is_host, readout
from steppe.batched.unbuffered import stack_rows
from steppe.envs import EnvBase, action_rules, env_info_values, missing_action
from steppe.errors import SpecError
from steppe.specs import CPU, OUTPUT_KINDS, below_next, union
from steppe.storage import Storage, TensorDictBuilder, entries

__all__ = ["BatchSteps"]

_Tensor = torch.Tensor


class BatchSteps(EnvBase):
    """Steps and resets of a :class:`~steppe.batched.BatchedEnv`, whose subclasses say how commands are carried out."""

    #: Whether gradients can pass: environments are in this process.
    _differentiable = False

    num_workers: int
    _buffered: bool
    _on_arrays: bool
    _read: list[Any]
    _layout: BatchLayout

    @property
    def row_problem(self) -> str | None:
        return f"{type(self).__name__} is a batch, whose environments write their rows themselves."

    # -- what the classes of batches do differently ---------------------------------------------------------------

    def start(self) -> Any:
        raise NotImplementedError

    def _run(self, op: int, rows: list[int] | None) -> int:
        """Carry out an operation in some rows, None for all.

        Returns:
            How many rows were reset.
        """
        raise NotImplementedError

    def _exchange(self, op: int, data: dict[int, Any]) -> dict[int, Any]:
        """The same with data that travels: see :func:`steppe.batched.unbuffered.run_rows`."""
        raise NotImplementedError

    # -- storage --------------------------------------------------------------------------------------------------

    def _use(self, storage: Storage, flags: Flags) -> None:
        state = self.__dict__
        state["_storage"], state["_flags"] = storage, flags
        # Rows say what they read of the root; for others a step is a function of all of it.
        carried = self._read if self._on_arrays else (*self.state_keys, *self.observation_keys, *self.done_keys)
        state["_carried"] = [(key, storage.arrays.get(key), storage.tensors[key]) for key in dict.fromkeys(carried)]
        size = self.batch_size
        state["_actions"] = [
            (rule.key, rule, size + (rule.shape or ()), storage.arrays.get(rule.key), storage.tensors[rule.key])
            for rule in action_rules(self.full_action_spec, self.full_done_spec, batch_dims=len(size))
        ]
        self._make_readouts()

    def _make_readouts(self) -> None:
        state, storage = self.__dict__, self._storage
        obs, done, reward = self.observation_keys, self.done_keys, self.reward_keys
        root = union(*(self._full_spec(kind) for kind in ("observation", "done")))
        following = union(*(self._full_spec(kind) for kind in OUTPUT_KINDS))
        state["_root_out"] = readout(storage, {key: key for key in (*obs, *done)}, root, self.device)
        if self._on_arrays:
            # What has ended was reset, what was reset has not ended.
            state["_root_out"].know_false(done)
        keys = dict.fromkeys((*obs, *reward, *done))
        state["_next_out"] = readout(storage, {key: below_next(key) for key in keys}, following, self.device)

    def _forget_storage(self) -> None:
        for name in ("_storage", "_flags", "_carried", "_actions", "_root_out", "_next_out"):
            self.__dict__.pop(name, None)

    # -- data into storage ----------------------------------------------------------------------------------------

    def _write_action(self, tensordict: TensorDictBase, rows: Any = None) -> None:
        """Write actions into storage, after holding them against the rule for actions."""
        level = entries(tensordict) if type(tensordict) is TensorDict else None
        for key, rule, whole, array, tensor in self._actions:
            value = level.get(key) if level is not None and type(key) is str else tensordict.get(key, None)
            if value is None:
                raise missing_action(tensordict, key)
            if rows is None and type(value) is _Tensor and value.dtype is rule.dtype and value.shape == whole:
                # What it chooses is looked at where it is written, which is cheaper.
                _put(value, array, tensor)
                if rule.allows is None or (array is not None and rule.allows(array)):
                    continue
            fitted = rule.fit(value, tensordict.batch_size, rows=rows)
            if fitted is not value:
                tensordict.set(key, fitted)
            _put(fitted, array, tensor, rows)

    def _write_carried(self, tensordict: TensorDictBase, rows: Any = None) -> bool:
        """Write what else a step or reset depends on; whether all of it was there."""
        level = entries(tensordict) if type(tensordict) is TensorDict else None
        complete = True
        for key, array, tensor in self._carried:
            value = level.get(key) if level is not None and type(key) is str else tensordict.get(key, None)
            if value is None:
                complete = False
                continue
            _put(value, array, tensor, rows)
        return complete

    def _write_info(self, tensordict: TensorDictBase | None, rows: list[int], *, whole: bool) -> None:
        """Note the ``env_info`` of rows to be reset: the one given, or for whole resets without one, none any more."""
        if self.env_info_spec.is_empty():
            return
        given = tensordict.get("env_info", None) if tensordict is not None else None
        at = np.asarray(rows, np.int64)
        if given is None:
            if whole:
                self._flags.informed[at] = False
            return
        for key in self.env_info_spec.keys():
            value = given.get(key)
            part = value if value.shape[0] == len(rows) else value[torch.from_numpy(at)]
            _put(part, self._storage.arrays.get(("env_info", key)), self._storage.tensors["env_info", key], at)
        self._flags.informed[at] = True

    def _wants_gradients(self, tensordict: TensorDictBase) -> bool:
        """Whether a step has to keep the graph of its inputs, which storage would cut."""
        if not self._differentiable or self._on_arrays or not torch.is_grad_enabled():
            return False
        values = [tensordict.get(key, None) for key, *_ in (*self._actions, *self._carried)]
        return any(value is not None and value.requires_grad for value in values)

    # -- steps and resets -----------------------------------------------------------------------------------------

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        self.start()
        mask = tensordict.get("_step", None)
        rows = None if mask is None else _true_rows(mask)
        if not self._buffered or self._wants_gradients(tensordict):
            return self._stacked(STEP, tensordict, rows)[0]
        for key, *_, array, tensor in self._actions:  # which the step has checked
            _put(tensordict.get(key), array, tensor)
        self._write_carried(tensordict)
        if mask is not None and self._layout.masked:
            self._storage.tensors["_step"].copy_(mask)
        self._run(STEP, rows)
        following = self._next_out.build(self._next_out.take())
        before = tensordict.get("next", None)
        if before is not None:
            # A policy writes the state that it hands on (a recurrent one, say) itself: the environment only carries it.
            for key in self.state_keys:
                written = before.get(key, None)
                if written is not None:
                    following.set(key, written)
        return following

    def _reset(
        self,
        tensordict: TensorDictBase | None = None,
        *,
        list_of_kwargs: Any = None,
        select_reset_only: bool = False,
        **kwargs: Any,
    ) -> TensorDictBase:
        self.start()
        masks = self.requested_masks(tensordict) if tensordict is not None else {}
        rows = self._masked_rows(masks) if masks else list(range(self.num_workers))
        hidden = {"select_reset_only": True} if select_reset_only and not self._buffered else {}
        arguments = self._reset_arguments(list_of_kwargs, {**kwargs, **hidden})
        if not self._buffered or arguments is not None:
            return self._stacked(RESET, tensordict, rows, arguments)[1]
        self._write_info(tensordict, rows, whole=not masks)
        known = (
            not self._on_arrays
            and not select_reset_only
            and tensordict is not None
            and any(tensordict.get(key, None) is not None for key, _, _ in self._carried)
        )
        if known and not self._write_carried(tensordict):
            return self._stacked(RESET, tensordict, rows)[1]
        by_masks = self._layout.masked and (known or bool(masks))
        if by_masks:
            self._write_masks(masks)
        self._run(RESET_ON_DATA if known else RESET_BY_MASKS if by_masks else RESET, rows)
        return self._root_out.build(self._root_out.take())

    def _reset_arguments(self, each: Any, shared: dict[str, Any]) -> list[dict[str, Any]] | None:
        if each is None:
            return [shared] * self.num_workers if shared else None
        each = list(each)
        if len(each) != self.num_workers:
            raise SpecError(
                f"list_of_kwargs needs {self.num_workers} dicts, one for each environment, found {len(each)}."
            )
        return [{**shared, **(one or {})} for one in each]

    def _masked_rows(self, masks: dict[Any, torch.Tensor]) -> list[int]:
        """Rows in which some mask is True. A mask at the root decides alone."""
        deciding = [masks[()]] if () in masks else list(masks.values())
        rows = np.zeros(self.num_workers, bool)
        for mask in deciding:
            rows |= mask.reshape(self.num_workers, -1).any(-1).cpu().numpy()
        return [int(row) for row in np.flatnonzero(rows)]

    def _write_masks(self, masks: dict[Any, torch.Tensor]) -> None:
        for group in self.done_groups:
            target = self._storage.tensors[group.reset_key]
            mask = masks.get(group.prefix)
            if mask is None:
                target.fill_(True)
            else:
                target.copy_(mask.reshape(mask.shape + (1,) * (target.ndim - mask.ndim)).expand(target.shape))

    def step_and_maybe_reset(self, tensordict: TensorDictBase) -> tuple[TensorDictBase, TensorDictBase]:
        state = self.__dict__
        given = entries(tensordict) if type(tensordict) is TensorDict else tensordict.keys()
        if not self.is_validated("step") or "_step" in given or "next" in given:
            return super().step_and_maybe_reset(tensordict)
        if self.base_state.is_closed:
            self.check_open("step_and_maybe_reset")
        state["_backend"].check(self)
        if not self._buffered or (self._differentiable and self._wants_gradients(tensordict)):
            self.check_action(tensordict)
            following, root = self._stacked(STEP_AND_RESET, tensordict)
            tensordict.set("next", following)
            return tensordict, root
        self._write_action(tensordict)
        if state["_carried"]:
            self._write_carried(tensordict)
        n_reset = self._run(STEP_AND_RESET, None)
        readout = state["_next_out"]
        flat = readout.take()
        self.put_next(tensordict, readout.build(flat))
        root = self.step_mdp(tensordict)
        if n_reset:
            level = entries(root) if type(root) is TensorDict and not root.is_locked else None
            for key, whole in state["_root_out"].overlay(flat, state["_flags"].was_reset).items():
                if level is not None and type(key) is str:
                    level[key] = whole
                else:
                    root.set(key, whole)
        return tensordict, root

    def step_at(self, tensordict: TensorDictBase, rows: Any) -> TensorDictBase:
        self.start()
        index = self.checked_rows(rows, "step_at")
        if not self._buffered or not index.numel() or not self.is_validated("step") or self.run_type_checks:
            return super().step_at(tensordict, rows)
        self.check_open("step_at")
        at = index.numpy()
        self._write_action(tensordict, at)
        self._write_carried(tensordict, at)
        if self._layout.masked:
            self._storage.tensors["_step"][index] = True
        self._run(STEP, at.tolist())
        following = self._row_builder("_next_out", len(at))(self._next_out.take(at))
        return self.put_next(tensordict, following)

    def reset_at(self, tensordict: TensorDictBase | None, rows: Any, *, env_info: Any = None) -> TensorDictBase:
        self.start()
        index = self.checked_rows(rows, "reset_at")
        # Data that a reset depends on, and what a first reset is checked for, are left to the masks.
        if (
            not self._buffered
            or not index.numel()
            or self._layout.masked
            or not self.is_validated("reset")
            or (self._carried and tensordict is not None and not tensordict.is_empty())
        ):
            return super().reset_at(tensordict, rows, env_info=env_info)
        self.check_open("reset_at")
        at = index.numpy()
        if env_info is not None:
            values = env_info_values(self, env_info, rows=len(at))
            given = TensorDict({"env_info": TensorDict(values, [len(at)])}, [len(at)])
            self._write_info(given, at.tolist(), whole=True)
        self._run(RESET, at.tolist())
        fresh = self._row_builder("_root_out", len(at))(self._root_out.take(at))
        return fresh if tensordict is None else tensordict.update(fresh)

    def _row_builder(self, name: str, n: int) -> Any:
        """Nests data of some rows, as the readout ``name`` nests those of all."""
        spec = self.__dict__[name].spec
        return TensorDictBuilder(spec[:n] if n < self.num_workers else spec, device=self.device)

    def _stacked(
        self,
        op: int,
        tensordict: TensorDictBase | None,
        rows: list[int] | None = None,
        arguments: list[dict[str, Any]] | None = None,
    ) -> tuple[Any, Any]:
        """Exchange rows in messages; ``next`` and the following root."""
        wanted = list(range(self.num_workers)) if rows is None else rows
        given = tensordict.unbind(0) if tensordict is not None else [None] * self.num_workers
        data = {row: (self._row_given(op, given[row]), arguments[row] if arguments else {}) for row in wanted}
        found = self._exchange(op, data)
        results = []
        for i, kinds in enumerate((OUTPUT_KINDS, ("observation", "done"))):
            if found[wanted[0]][i] is None:
                results.append(None)
                continue
            parts = [
                found[row][i] if row in found else self._stand_in(kinds, row, found[wanted[0]][i])
                for row in range(self.num_workers)
            ]
            stacked = stack_rows(parts)
            results.append(stacked if self.device is None else stacked.to(self.device))
        return results[0], results[1]

    def _row_given(self, op: int, row: Any) -> Any:
        if row is None:
            return None
        row = row.exclude("next")
        if self._layout.masked:
            return row if row.device is None or row.device.type == "cpu" else row.to("cpu")
        # The row itself was chosen by the mask.
        return row.exclude("_step", "_reset")

    def _stand_in(self, kinds: tuple[str, ...], row: int, other: Any) -> Any:
        """Data for a row that was left out, which the caller replaces: another row's, where rows are alike."""
        if self._layout.alike:
            return other
        out = self._full_spec(kinds[0])[row].zero()
        for kind in kinds[1:]:
            out.update(self._full_spec(kind)[row].zero())
        return out

    @property
    def storage(self) -> Storage | None:
        """Root and ``("next", ...)`` rows ``[num_workers]`` of the last step; None before the first reset."""
        return self.__dict__.get("_storage")

    def step_in_storage(self, tensordict: TensorDictBase) -> np.ndarray[Any, Any] | None:
        """Do what ``step_and_maybe_reset`` does, but leave the data in ``storage``.

        Args:
            tensordict: root data with the action.

        Returns:
            Which rows were reset, ``[num_workers]`` bool, valid until the next step, or None for none. Storage then has
            their first data at the root; the other rows of its root are of no use.
        """
        self.check_open("step")
        self._write_action(tensordict)
        if self._carried:
            self._write_carried(tensordict)
        return self._flags.was_reset if self._run(STEP_AND_RESET, None) else None

    def reset_in_storage(self, rows: list[int]) -> None:
        """Reset some rows, as ``step_in_storage`` does those that ended: the root of ``storage`` has their data."""
        self._run(RESET, rows)

    @property
    def steps_in_storage(self) -> bool:
        """Whether ``storage`` holds all there is of a step: environments write rows, and data comes out on the host."""
        return self._running and self._buffered and self._on_arrays and is_host(self.device)


def _put(value: torch.Tensor, array: Any, tensor: torch.Tensor, rows: Any = None) -> None:
    """Write into storage: through numpy where that is possible, which is faster for little data."""
    if array is not None and value.device.type == "cpu" and not value.requires_grad:
        if rows is None:
            array[...] = value.numpy()
        else:
            array[rows] = value.numpy()
    elif rows is None:
        tensor.copy_(value.detach())
    else:
        tensor[torch.as_tensor(rows, device=CPU)] = value.detach().to(tensor.device)


def _true_rows(mask: torch.Tensor) -> list[int]:
    """Rows of a mask ``[n, ...]`` with a True in them."""
    found: list[int] = mask.reshape(mask.shape[0], -1).any(-1).nonzero().squeeze(-1).tolist()
    return found
