"""TimeMaxPool: the maximum over the last observations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from tensordict import NestedKey

from steppe.errors import SpecError
from steppe.specs import Spec

from .history import OverHistory

__all__ = ["TimeMaxPool"]


class TimeMaxPool(OverHistory):
    """Take the elementwise maximum over the last ``T`` observations.

    Only observations of the same episode are used. Shape, dtype and bounds stay the same. After a reset, the result is
    the observation itself.

    >>> from steppe import TimeMaxPool, TransformedEnv, make_env
    >>> env = TransformedEnv(make_env("gym:CartPole-v1"), TimeMaxPool(T=2))
    >>> env.rollout(3)["observation"].shape
    torch.Size([3, 4])

    Args:
        in_keys: observations to read. Default: ``["observation"]``.
        out_keys: keys to write, as many as ``in_keys``. Default: ``in_keys``.
        T: number of observations.
        reset_key: mask of the rows that are reset, if it is not that of the level of the observation.

    Raises:
        SpecError: ``T`` is not a whole number >= 1.
    """

    memory_name = "__pooled"

    def __init__(
        self,
        in_keys: NestedKey | Sequence[NestedKey] | None = None,
        out_keys: NestedKey | Sequence[NestedKey] | None = None,
        T: int = 1,
        reset_key: NestedKey | None = None,
    ) -> None:
        if isinstance(T, bool) or not isinstance(T, int) or T < 1:
            raise SpecError(f"TimeMaxPool: T must be a whole number >= 1, found {T!r}.")
        super().__init__(["observation"] if in_keys is None else in_keys, out_keys, reset_key)
        self.T = T

    def shared_key(self) -> Any:
        return (type(self), self.T, tuple(self.in_keys), tuple(self.out_keys), self._reset_key)

    def remembered(self, shape: tuple[int, ...], batch_dims: int) -> tuple[int, ...] | None:
        return None if self.T == 1 else (*shape[:batch_dims], self.T - 1, *shape[batch_dims:])

    def result_spec(self, leaf: Spec) -> Spec:
        return leaf.clone()

    def following(self, value: torch.Tensor, memory: torch.Tensor | None, dims: int) -> Any:
        if memory is None:
            return value, None
        at = -dims - 1
        frames = torch.cat((memory, value.unsqueeze(at)), at)
        return frames.amax(at), frames.narrow(at, 1, self.T - 1)

    def first(self, value: torch.Tensor, dims: int) -> Any:
        if self.T == 1:
            return value, None
        at = -dims - 1
        wide = value.unsqueeze(at)
        shape = list(wide.shape)
        shape[at] = self.T - 1
        return value, wide.expand(shape).clone()

    def kernel(self, arrays: dict[str, Any]) -> Any:
        value, result, memory, kept = arrays["value"], arrays["result"], arrays["memory"], arrays["next_memory"]
        first_value, first_result, first_memory = arrays["first_value"], arrays["first_result"], arrays["first_memory"]

        def reset(row: int) -> None:
            if first_memory is not None:
                first_memory[row] = first_value[row]
            if first_result is not first_value:
                first_result[row] = first_value[row]

        if memory is None:
            return (lambda: np.copyto(result, value, casting="unsafe")), reset
        newest, only = kept[:, -1], memory[:, 0]

        def step_of_two() -> None:
            np.copyto(newest, value)
            np.maximum(newest, only, out=result, casting="unsafe")

        if self.T == 2:
            return step_of_two, reset
        older, newer, most = memory[:, 1:], kept[:, :-1], np.empty_like(newest)

        def step() -> None:
            np.copyto(newest, value)
            np.copyto(newer, older)
            # ``kept`` has all observations of ``memory`` except the oldest one.
            np.maximum.reduce(memory, 1, out=most)
            np.maximum(newest, most, out=result, casting="unsafe")

        return step, reset

    def _repr_keys(self) -> Any:
        return ("T", "in_keys", "out_keys")
