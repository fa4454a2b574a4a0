"""NoopResetEnv: random actions at the beginning of an episode."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase

from steppe.envs import draws_in_blocks, rows_ended
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
        actions = _Actions(env, draws, size) if any(left) else None
        while any(left):
            assert actions is not None
            acting = [n > 0 for n in left]
            partial = not all(acting)
            data.update(actions.of(left, wanted))
            if partial:
                data.set("_step", torch.tensor(acting, device=data.device or "cpu").reshape(size))
            data = env.step_mdp(env.step(data))
            if partial:
                data.pop("_step", None)
            left = [max(n - 1, 0) for n in left]
            if not env.any_done(data):
                continue
            for group in groups:
                data.pop(group.reset_key, None)
            ended = rows_ended(data, groups).flatten().tolist()
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

    def _repr_keys(self) -> Any:
        return ("noops", "random")


class _Actions:
    """Random actions of rows, each from a generator of its own, as many as the row takes at once.

    Args:
        env: whose actions they are.
        draws: the generator of each row.
        size: batch size of the data.
    """

    def __init__(self, env: Any, draws: list[Any], size: torch.Size) -> None:
        self.env, self.draws, self.size = env, draws, size
        #: Of each row what it takes next, the last one first.
        self.drawn: list[list[TensorDictBase]] = [[] for _ in draws]
        self.ahead = draws_in_blocks(env)
        self.rows = self._specs()

    def _specs(self) -> list[Any] | None:
        """The spec of each row; None for one row, or for an environment of any batch size."""
        spec = self.env.full_action_spec
        if spec.shape != self.size or not self.size:
            return None
        return [spec[index] for index in _indices(self.size)]

    def of(self, left: list[int], wanted: list[int]) -> TensorDictBase:
        """The actions of a step.

        Args:
            left: how many actions each row is still to take; 0 for those that do not act.
            wanted: how many it takes in all.
        """
        if not self.ahead:
            self.rows = self._specs()  # which actions are allowed may have changed
        if self.rows is None:
            spec = self.env.full_action_spec
            if spec.shape != self.size:
                return spec.rand(self.size, generator=self.draws[0])  # type: ignore[no-any-return]
            return self._next(0, spec, left[0], begins=left[0] == wanted[0])
        parts = [
            self._next(row, spec, left[row], begins=left[row] == wanted[row]) if left[row] else spec.zero()
            for row, spec in enumerate(self.rows)
        ]
        actions: Any = torch.stack(parts)
        return actions.reshape(self.size)  # type: ignore[no-any-return]

    def _next(self, row: int, spec: Any, left: int, *, begins: bool) -> TensorDictBase:
        if not self.ahead:
            return spec.rand(generator=self.draws[row])  # type: ignore[no-any-return]
        if begins:
            self.drawn[row] = list(spec.rand((left,), generator=self.draws[row]).unbind(0))[::-1]
        return self.drawn[row].pop()


def _indices(size: torch.Size) -> list[tuple[int, ...]]:
    return [
        tuple(index)
        for index in torch.cartesian_prod(*(torch.arange(n, device="cpu") for n in size))
        .reshape(-1, len(size))
        .tolist()
    ]
