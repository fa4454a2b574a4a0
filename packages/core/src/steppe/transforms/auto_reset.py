"""AutoResetTransform: environments that reset themselves inside a step."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase

from steppe.envs import blanked, merge_rows, observed
from steppe.specs import Composite
from steppe.transforms.compiled.hooks import EnvSpecs, Hooks
from steppe.transforms.compiled.planned import PlannedTransform

__all__ = ["AutoResetTransform"]


class AutoResetTransform(PlannedTransform):
    """Puts the data of an environment that resets itself in order.

    Where such an environment ends an episode, what it returns as last observation is the first one of the next episode.
    This transform moves it to the next root, where ``step_and_maybe_reset`` and rollouts expect it, and puts a filling
    in its place. It is the first of the transforms. (An environment of one's own is made with ``auto_reset=True``.)

    Args:
        replace: put the filling where the last observation is not known (default). False leaves the first observation
            of the next episode there.
        fill_float: filling of floating-point entries; NaN by default. None, here and below, for no filling.
        fill_int: filling of whole numbers; the largest of the dtype where it does not fit an unsigned one.
        fill_bool: filling of bools.
    """

    # The base is never to be reset after a step by itself.
    writes_done = True

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
            seen = observed(following, specs.observation, others)
            kept = self._kept
            if kept is None:
                self._kept = (rows, seen.clone(False))
            else:
                # Rows that ended before and have not been asked for yet stay.
                self._kept = (rows | kept[0], merge_rows(rows, seen, kept[1]))
            return following.update(blanked(seen, rows, self._filling)) if self.replace else following

        def instead(td: TensorDictBase | None) -> TensorDictBase | None:
            kept = self._kept
            if kept is None or td is None:
                self._kept = None
                return None
            asked = torch.zeros_like(kept[0])
            found = False
            for group in groups:
                mask = td.get(group.reset_key, None)
                if mask is not None:
                    found = True
                    asked = asked | mask.reshape((*asked.shape, -1)).any(-1)
            if not found or bool((asked & ~kept[0]).any()):
                self._kept = None
                return None
            left = kept[0] & ~asked
            self._kept = (left, kept[1]) if bool(left.any()) else None
            fresh: TensorDictBase = kept[1].clone(False)
            return fresh.update(done_spec.zero())

        return Hooks(step=step, instead_of_reset=instead)

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
