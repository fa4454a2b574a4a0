"""BatchView: some rows of a batch as a smaller batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from steppe.batched.attributes import Dispatched, assign
from steppe.batched.unbuffered import row_to_send
from steppe.envs import EnvBase
from steppe.errors import NotSupported
from steppe.specs import CPU, SPEC_KINDS

if TYPE_CHECKING:
    from steppe.batched.base import BatchedEnv

__all__ = ["BatchView"]


class BatchView(EnvBase):
    """Some rows of a batch, as a smaller batch: ``batch[1]`` is a batch of one.

    Steps of the view are steps of the batch. Closing the view does not close the batch.

    Args:
        batch: the batch.
        index: a row, a slice, a list or tensor of rows, or a mask ``[num_workers]``.

    Raises:
        IndexError: a row does not exist.
    """

    def __init__(self, batch: BatchedEnv, index: Any) -> None:
        rows = _rows_of_index(index, batch.num_workers)
        super().__init__(batch_size=(len(rows), *batch.batch_size[1:]), device=batch.device)
        object.__setattr__(self, "_batch", batch)  # not a submodule
        self.base_state.uses = batch.base_state.uses
        self._rows = torch.tensor(rows, dtype=torch.int64, device=CPU)
        stack: Any = torch.stack  # torch.stack accepts specs, but its stubs do not say so
        for kind in SPEC_KINDS:
            spec = batch._full_spec(kind)
            self.assign_spec(kind, stack([spec[row] for row in rows], 0))
        info = batch.env_info_spec
        if not info.is_empty():
            self.env_info_spec = stack([info[row] for row in rows], 0)
        self.action_masks = batch.action_masks

    _batch: BatchedEnv

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        if kwargs:
            raise NotSupported("A view takes no arguments for a reset: use batch.reset(list_of_kwargs=[...]).")
        info: Any = tensordict.get("env_info", None) if tensordict is not None else None
        mask: Any = tensordict.get("_reset", None) if tensordict is not None else None
        if mask is None:
            return self._batch.reset_at(None, self._rows, env_info=info)
        chosen = mask.reshape(len(self._rows), -1).any(-1)
        fresh = self._batch.reset_at(None, self._rows[chosen], env_info=None if info is None else info[chosen])
        # The caller replaces the rows without a mask.
        out: TensorDictBase = self.full_observation_spec.zero().update(self.full_done_spec.zero())
        out[chosen] = fresh
        return out

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        mask: Any = tensordict.get("_step", None)
        data = row_to_send(tensordict.exclude("_step"), self.passed_through_keys)
        if mask is None:
            outcome: TensorDictBase = self._batch.step_at(data, self._rows)["next"]
            return outcome
        chosen = mask.reshape(len(self._rows), -1).any(-1)
        following = self.skipped_rows(tensordict)
        following[chosen] = self._batch.step_at(data[chosen], self._rows[chosen]).get("next")
        return following

    def step_mdp(self, next_tensordict: TensorDictBase) -> TensorDictBase:
        """See :meth:`EnvBase.step_mdp`."""
        if "step_mdp" not in self._batch.overridden_methods:
            return super().step_mdp(next_tensordict)
        return self._batch._roots_of(self._rows.tolist(), next_tensordict)

    @property
    def passed_through_keys(self) -> tuple[Any, ...]:
        """See :attr:`EnvBase.passed_through_keys`."""
        return self._batch.passed_through_keys

    @property
    def _draws_inside(self) -> bool:
        return self._batch.chooses_random_actions

    def _drawn_inside(self, tensordict: TensorDictBase | None, rows: torch.Tensor | None) -> TensorDictBase:
        if tensordict is None:
            tensordict = TensorDict({}, batch_size=self.batch_size, device=self.device)
        return self._batch.rand_action_at(tensordict, self._rows if rows is None else self._rows[rows])

    def set_seed(self, seed: int | None = None, static_seed: bool = False) -> int | None:
        """Seed the rows of the view, one after another; returns the next seed."""
        self.seed_actions(seed)
        return self._batch._seed_chain(self._rows.tolist(), seed, static_seed)

    def find_elsewhere(self, name: str) -> Any:
        if name.startswith("_") or "_batch" not in vars(self):
            return super().find_elsewhere(name)
        value = getattr(self._batch, name)
        if not isinstance(value, Dispatched):
            return value
        values = value.values()
        return [values[row] for row in self._rows.tolist()]

    def set_elsewhere(self, name: str, value: object) -> bool:
        if not isinstance(getattr(self._batch, name, None), Dispatched):
            return False
        assign(self._batch, (name,), value, self._rows.tolist())
        return True

    def __repr__(self) -> str:
        return f"<environments {self._rows.tolist()} of {self._batch!r}>"


def _rows_of_index(index: Any, n: int) -> list[int]:
    """Return the rows of ``n`` that an index selects."""
    try:
        chosen = np.arange(n)[index if isinstance(index, slice) else np.asarray(index)]
    except IndexError:
        chosen = np.empty(0, np.int64)
    if not chosen.size or chosen.ndim > 1:
        raise IndexError(
            f"Environments of this batch are numbered from 0 to {n - 1}, and chosen by a number, a slice, a list, a "
            f"tensor or a mask of {n} values, found {index!r}."
        )
    rows: list[int] = chosen.reshape(-1).tolist()
    if len(set(rows)) != len(rows):
        raise IndexError(f"An environment may be named once, found {rows}.")
    return rows
