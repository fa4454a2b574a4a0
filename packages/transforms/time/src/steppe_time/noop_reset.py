"""NoopResetEnv: random actions at the beginning of an episode."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase

from steppe.envs import rows_ended
from steppe.errors import SpecError, StateError
from steppe.transforms import RowGenerators, SteppingTransform

__all__ = ["NoopResetEnv"]

#: So often an episode that ends under the random actions is begun anew.
_TRIALS = 10


class NoopResetEnv(SteppingTransform):
    """Takes random actions when an episode begins, so that episodes begin in different states.

    Each row that is reset takes a number of its own of random actions, others none. A row whose episode ends under them
    is reset, and begins them anew. What these steps return is left out, but for the last observation.

    Args:
        noops: the largest number of actions.
        random: draw the number from 0 to ``noops``; otherwise it is always ``noops``.

    Raises:
        SpecError: ``noops`` is not a whole number >= 0.
        StateError: at a reset, where the episode ends under the random actions again and again.
    """

    writes_done = False

    def __init__(self, noops: int = 30, random: bool = True) -> None:
        if isinstance(noops, bool) or not isinstance(noops, int) or noops < 0:
            raise SpecError(f"NoopResetEnv: noops is a whole number >= 0, found {noops!r}.")
        super().__init__()
        self.noops, self.random = noops, bool(random)
        self._draws = RowGenerators()

    @property
    def base_env(self) -> Any:
        """The environment that acts: the one with the transforms before this one."""
        return self.parent

    def _set_seed(self, seed: int | None) -> None:
        self._draws.seed(seed)

    def _reset(self, tensordict: TensorDictBase | None, tensordict_reset: TensorDictBase) -> TensorDictBase:
        env = self.env
        size, groups = tensordict_reset.batch_size, env.done_groups
        masks = [] if tensordict is None else [tensordict.get(group.reset_key, None) for group in groups]
        begins = [mask.reshape(*size, -1).any(-1) for mask in masks if mask is not None]
        beginning = torch.stack(begins).any(0) if begins else torch.ones(size, dtype=torch.bool, device="cpu")
        rows = beginning.flatten().tolist()
        draws = self._draws.of(len(rows))
        wanted = [self._number(draw) if begin else 0 for begin, draw in zip(rows, draws, strict=True)]
        left, trials = list(wanted), [0] * len(rows)
        data = tensordict_reset.copy()
        while any(left):
            acting = [n > 0 for n in left]
            data.update(self._actions(env, acting, draws, size))
            if not all(acting):
                data.set("_step", torch.tensor(acting, device=data.device or "cpu").reshape(size))
            data = env.step(data)
            ended = rows_ended(data.get("next"), groups).flatten().tolist()
            data = env.step_mdp(data.exclude("_step"))
            left = [max(n - 1, 0) for n in left]
            over = [row for row, at_work in enumerate(acting) if at_work and ended[row]]
            for row in over:
                left[row], trials[row] = wanted[row], trials[row] + 1
                if trials[row] > _TRIALS:
                    raise StateError(
                        f"NoopResetEnv: in row {row} the episode ended {trials[row]} times before {wanted[row]} random "
                        f"actions were taken. Choose noops below {self.noops}."
                    )
            if over:
                data = env.maybe_reset(data)
        keys = tensordict_reset.keys(include_nested=True, leaves_only=True)
        return tensordict_reset.update(data.select(*keys, strict=False))

    def _number(self, draw: torch.Generator | None) -> int:
        return int(torch.randint(self.noops + 1, (), generator=draw, device="cpu")) if self.random else self.noops

    @staticmethod
    def _actions(env: Any, acting: list[bool], draws: list[Any], size: torch.Size) -> TensorDictBase:
        spec = env.full_action_spec
        if spec.shape != size or not size:
            # One row, or an environment for any batch size.
            lead = size if spec.shape != size else ()
            actions: TensorDictBase = spec.rand(lead, generator=draws[0])
            return actions
        rows = [spec[index] for index in _indices(size)]
        drawn = [
            row.rand(generator=draw) if at_work else row.zero()
            for row, at_work, draw in zip(rows, acting, draws, strict=True)
        ]
        return torch.stack(drawn).reshape(size)

    def _repr_keys(self) -> Any:
        return ("noops", "random")


def _indices(size: torch.Size) -> list[tuple[int, ...]]:
    return [
        tuple(index)
        for index in torch.cartesian_prod(*(torch.arange(n, device="cpu") for n in size))
        .reshape(-1, len(size))
        .tolist()
    ]
