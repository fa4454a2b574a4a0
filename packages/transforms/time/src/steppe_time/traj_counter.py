"""TrajCounter: number the episodes of all environments."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase

from steppe.errors import SpecError, StateError
from steppe.specs import Bounded
from steppe.transforms import EnvSpecs, Hooks, PlannedTransform, RowHooks, as_key, names_of, set_beside
from steppe.workers import SharedLock

__all__ = ["TrajCounter"]

_MANY = torch.iinfo(torch.int64).max


class TrajCounter(PlannedTransform):
    """Number the episodes of all environments that have a clone of this transform.

    The environments may be in other processes.

    It adds ``traj_count``, int64 of the shape of ``done`` (``[*B, 1]``): 0 in the first episode, and one more in each
    episode that starts later, in any row. The number is an observation and a state, because a step reads it from the
    root. To number the episodes of several environments, give each a clone of the same transform::

        counter = TrajCounter()
        env = ParallelEnv(8, lambda: TransformedEnv(make_env("gym:CartPole-v1"), counter.clone()))

    The state dict has the number of episodes as ``traj_count``.

    >>> from steppe import TrajCounter, TransformedEnv, make_env
    >>> env = TransformedEnv(make_env("gym:CartPole-v1"), TrajCounter())
    >>> env.rollout(3)["traj_count"].flatten()
    tensor([0, 0, 0])

    Args:
        out_key: key of the number, at the level of a ``done`` entry: the root, or a group of agents.
        repeats: no effect.

    Raises:
        SpecError: there is no done entry at the level of ``out_key``.
    """

    keeps_nothing = True
    over_time = True

    def __init__(self, out_key: NestedKey = "traj_count", *, repeats: int | None = None) -> None:
        super().__init__()
        self.out_keys = [as_key(out_key)]
        self.repeats = 0 if repeats is None else repeats
        count = torch.zeros((), dtype=torch.int64, device="cpu")
        self.register_buffer("traj_count", count.share_memory_())  # type: ignore[no-untyped-call]
        self._lock = SharedLock()

    def _group(self, specs: EnvSpecs) -> Any:
        level = names_of(self.out_keys[0])[:-1]
        for group in specs.groups:
            if group.prefix == level:
                return group
        raise SpecError(
            f"TrajCounter: there is no done entry beside {self.out_keys[0]!r}. Episodes of the environment end at "
            f"{[group.key('done') for group in specs.groups]}: choose an out_key beside one of these."
        )

    def transform_specs(self, specs: EnvSpecs) -> EnvSpecs:
        done = specs.done[self._group(specs).keys[0]]
        specs = specs.copy()
        leaf = Bounded(0, _MANY, shape=done.shape, device=done.device, dtype=torch.int64)
        for spec in (specs.observation, specs.state):
            set_beside(spec, self.out_keys[0], leaf, specs.done)
        return specs

    def hooks(self, specs: EnvSpecs) -> Hooks:
        key, group = self.out_keys[0], self._group(specs)

        def step(td: TensorDictBase, following: TensorDictBase) -> TensorDictBase:
            count = td.get(key, None)
            if count is None:
                raise StateError(
                    f"TrajCounter: the argument of step has no {key!r}. Step what reset, step_mdp or "
                    f"step_and_maybe_reset returned, with an action added to it. Found {sorted(map(str, td.keys()))}."
                )
            return following.set(key, count)

        def reset(td: TensorDictBase | None, fresh: TensorDictBase) -> TensorDictBase:
            done = fresh.get(group.key("done"))
            mask = None if td is None else td.get(group.reset_key, None)
            mask = torch.ones_like(done) if mask is None else mask.reshape(done.shape)
            count = torch.zeros(done.shape, dtype=torch.int64, device=done.device)
            count[mask] = self._next_numbers(int(mask.sum())).to(done.device)
            return fresh.set(key, count)

        rows = RowHooks(self._bind_rows, root_inputs=[key])
        return Hooks(step=step, reset=reset, reads_root=[key], rows=rows)

    def _bind_rows(self, root: Any, following: Any) -> Any:
        before, after = root[self.out_keys[0]], following[self.out_keys[0]]

        def step() -> bool:
            after[...] = before
            return False

        def reset(at: Any) -> None:
            for row in at:
                before[row] = self._next_numbers(before[row].size).numpy().reshape(before[row].shape)

        return step, reset

    def _next_numbers(self, n: int) -> torch.Tensor:
        """Return the next ``n`` numbers."""
        with self._lock:
            first = int(self.traj_count)
            self.traj_count += n
        return torch.arange(first, first + n, device="cpu")

    def _repr_keys(self) -> Any:
        return ("out_keys",)
