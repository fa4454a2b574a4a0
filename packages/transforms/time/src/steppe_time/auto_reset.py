"""AutoResetTransform: support environments that reset themselves inside a step."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase

from steppe.envs import merge_rows
from steppe.specs import Composite, contains_lazy_spec
from steppe.transforms import EnvSpecs, Hooks, PlannedTransform

__all__ = ["AutoResetTransform"]


class AutoResetTransform(PlannedTransform):
    """Support environments that reset themselves inside a step.

    At the end of an episode, such an environment returns the first observation of the next episode instead of the last
    one. This transform moves it to the next root, where ``step_and_maybe_reset`` and rollouts expect it, and writes a
    fill value instead. It must be the first transform. ``auto_reset=True``, an argument of each environment, adds it.

    >>> from steppe import AutoResetTransform, TransformedEnv
    >>> from steppe_testing import AutoResettingCountingEnv
    >>> base = AutoResettingCountingEnv(max_steps=3, auto_reset=False)  # its last step returns the next first data
    >>> data = TransformedEnv(base, AutoResetTransform()).rollout(5, break_when_any_done=False)
    >>> data["next", "observation"].flatten(), data["observation"].flatten()
    (tensor([1., 2., nan, 1., 2.]), tensor([0., 1., 2., 0., 1.]))

    Args:
        replace: whether to write fill values instead of the unknown last observation. False: keep the first observation
            of the next episode there.
        fill_float: fill value of floating-point entries. None keeps the entries, here and in the next arguments.
        fill_int: fill value of integers. If it is negative, unsigned entries get the largest value of their dtype.
        fill_bool: fill value of bools.
    """

    # The environment resets itself, so it must not be reset again in the round trip of a step.
    writes_done = True
    needs_env = True
    does = "moves observations of environments that reset themselves"

    def __init__(
        self,
        *,
        replace: bool | None = None,
        fill_float: float | str | None = float("nan"),
        fill_int: int | None = -1,
        fill_bool: bool | None = False,
    ) -> None:
        super().__init__()
        self.replace = replace is not False
        self.fill_float = None if fill_float is None else float(fill_float)
        self.fill_int = fill_int
        self.fill_bool = fill_bool
        self._kept: tuple[torch.Tensor, TensorDictBase] | None = None

    def hooks(self, specs: EnvSpecs) -> Hooks:
        others = [key for spec in (specs.reward, specs.done) for key in spec.keys(True, True)]
        groups = specs.groups
        done_spec: Composite = specs.done

        def ended(data: TensorDictBase) -> torch.Tensor:
            levels = [data.get(group.key("done")).reshape((*data.batch_size, -1)).any(-1) for group in groups]
            return torch.stack(levels).any(0)

        def step(td: TensorDictBase, following: TensorDictBase) -> TensorDictBase:
            rows = ended(following)
            mask = td.get("_step", None)
            if mask is not None:
                rows = rows & mask.reshape(rows.shape)
            if not bool(rows.any()):
                return following
            if contains_lazy_spec(specs.observation):  # rows differ, and not all of them have all keys
                seen = following.exclude(*others)
            else:
                seen = following.select(*specs.observation.keys(include_nested=True, leaves_only=True))
            kept = self._kept
            if kept is None:
                self._kept = (rows, seen.clone(False))
            else:
                # Keep the first observations of rows that ended before and have not been reset yet.
                self._kept = (rows | kept[0], merge_rows(rows, seen, kept[1]))
            return following.update(merge_rows(rows, seen.apply(self._filling), seen)) if self.replace else following

        def instead(td: TensorDictBase | None) -> TensorDictBase | None:
            kept = self._kept
            if kept is None or td is None:
                self._kept = None
                return None
            requested = torch.zeros_like(kept[0])
            masked = False
            for group in groups:
                mask = td.get(group.reset_key, None)
                if mask is not None:
                    masked = True
                    requested = requested | mask.reshape((*requested.shape, -1)).any(-1)
            if not masked or bool((requested & ~kept[0]).any()):
                self._kept = None
                return None
            remaining = kept[0] & ~requested
            self._kept = (remaining, kept[1]) if bool(remaining.any()) else None
            fresh: TensorDictBase = kept[1].clone(False)
            return fresh.update(done_spec.zero())

        return Hooks(step=step, instead_of_reset=instead, reads_root=False)

    def _filling(self, value: torch.Tensor) -> torch.Tensor:
        kind = self.fill_float if value.is_floating_point() else self.fill_int
        if value.dtype is torch.bool:
            kind = self.fill_bool
        if kind is None:
            return value
        if value.is_floating_point() or value.dtype is torch.bool:
            return torch.full_like(value, kind)
        if kind < 0 and not value.dtype.is_signed:
            return torch.full_like(value, torch.iinfo(value.dtype).max)
        return torch.full_like(value, kind)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_kept": None}
