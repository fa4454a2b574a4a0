"""NoopResetEnv: random actions at the start of each episode."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase

from steppe.envs import draws_in_blocks, rows_ended
from steppe.errors import SpecError, StateError
from steppe.transforms import RowGenerators, SteppingTransform

__all__ = ["NoopResetEnv"]

#: Maximum number of restarts of an episode that ends during the random actions.
_TRIALS = 10


class NoopResetEnv(SteppingTransform):
    """Take random actions after each reset, to start episodes in different states.

    Each row that is reset takes its own number of random actions; other rows take none. If the episode of a row ends
    during these actions, the row is reset and starts again. Only the last observation of these steps is returned.

    >>> from steppe import NoopResetEnv, TransformedEnv, make_env
    >>> env = TransformedEnv(make_env("gym:CartPole-v1"), NoopResetEnv(3))
    >>> env.reset()["observation"].shape
    torch.Size([4])

    Args:
        noops: maximum number of actions.
        random: whether to draw the number from 0 to ``noops``; otherwise it is always ``noops``.

    Raises:
        SpecError: ``noops`` is not a whole number >= 0.
        StateError: at a reset, if the episode repeatedly ends during the random actions.
    """

    writes_done = False

    def __init__(self, noops: int = 30, random: bool = True) -> None:
        if isinstance(noops, bool) or not isinstance(noops, int) or noops < 0:
            raise SpecError(f"NoopResetEnv: noops must be a whole number >= 0, found {noops!r}.")
        super().__init__()
        self.noops, self.random = noops, bool(random)
        self._draws = RowGenerators()

    @property
    def base_env(self) -> Any:
        """The environment with the transforms before this one."""
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
        totals = [self._number(draw) if begin else 0 for begin, draw in zip(rows, draws, strict=True)]
        remaining, trials = list(totals), [0] * len(rows)
        data = tensordict_reset.copy()
        actions = _Actions(env, draws, size) if any(remaining) else None
        while any(remaining):
            assert actions is not None
            acting = [n > 0 for n in remaining]
            partial = not all(acting)
            data.update(actions.of(remaining, totals))
            if partial:
                data.set("_step", torch.tensor(acting, device=data.device or "cpu").reshape(size))
            data = env.step_mdp(env.step(data))
            if partial:
                data.pop("_step", None)
            remaining = [max(n - 1, 0) for n in remaining]
            if not env.any_done(data):
                continue
            for group in groups:
                data.pop(group.reset_key, None)
            ended = rows_ended(data, groups).flatten().tolist()
            over = [row for row, at_work in enumerate(acting) if at_work and ended[row]]
            for row in over:
                remaining[row], trials[row] = totals[row], trials[row] + 1
                if trials[row] > _TRIALS:
                    raise StateError(
                        f"NoopResetEnv: in environment {row} the episode ended {trials[row]} times before "
                        f"{totals[row]} random actions were taken. Choose noops below {self.noops}."
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
    """Draw the random actions of rows, each from its own generator.

    Args:
        env: the environment.
        draws: the generator of each row.
        size: batch size of the data.
    """

    def __init__(self, env: Any, draws: list[Any], size: torch.Size) -> None:
        self.env, self.draws, self.size = env, draws, size
        #: The drawn actions of each row, in reverse order.
        self.drawn: list[list[TensorDictBase]] = [[] for _ in draws]
        self.ahead = draws_in_blocks(env)
        self.rows = self._specs()

    def _specs(self) -> list[Any] | None:
        """Return the spec of each row.

        Returns None for a single row, or for an environment of any batch size.
        """
        spec = self.env.full_action_spec
        if spec.shape != self.size or not self.size:
            return None
        return [spec[index] for index in _indices(self.size)]

    def of(self, remaining: list[int], totals: list[int]) -> TensorDictBase:
        """Return the actions of a step.

        Args:
            remaining: remaining number of actions of each row; 0 for rows that do not act.
            totals: total number of actions of each row.
        """
        if not self.ahead:
            self.rows = self._specs()  # the action masks in the specs may have changed
        if self.rows is None:
            spec = self.env.full_action_spec
            if spec.shape != self.size:
                return spec.rand(self.size, generator=self.draws[0])  # type: ignore[no-any-return]
            return self._next(0, spec, remaining[0], begins=remaining[0] == totals[0])
        parts = [
            self._next(row, spec, remaining[row], begins=remaining[row] == totals[row])
            if remaining[row]
            else spec.zero()
            for row, spec in enumerate(self.rows)
        ]
        actions: Any = torch.stack(parts)
        return actions.reshape(self.size)  # type: ignore[no-any-return]

    def _next(self, row: int, spec: Any, remaining: int, *, begins: bool) -> TensorDictBase:
        if not self.ahead:
            return spec.rand(generator=self.draws[row])  # type: ignore[no-any-return]
        if begins:
            self.drawn[row] = list(spec.rand((remaining,), generator=self.draws[row]).unbind(0))[::-1]
        return self.drawn[row].pop()


def _indices(size: torch.Size) -> list[tuple[int, ...]]:
    return [
        tuple(index)
        for index in torch.cartesian_prod(*(torch.arange(n, device="cpu") for n in size))
        .reshape(-1, len(size))
        .tolist()
    ]
