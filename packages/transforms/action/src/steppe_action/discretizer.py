"""ActionDiscretizer: discretize continuous actions."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
import torch
from tensordict import NestedKey

from steppe.errors import NotSupported, SpecError, StateError
from steppe.specs import (
    Categorical,
    MultiCategorical,
    MultiOneHot,
    OneHot,
    Spec,
    torch_to_numpy_dtype_dict,
)
from steppe.transforms import RowGenerators, as_key

from .inverse import ActionInverse, has_floats, one_row

__all__ = ["ActionDiscretizer"]


class ActionDiscretizer(ActionInverse):
    """Divide the range of each element of a continuous action into intervals.

    The caller chooses an interval instead of a value. For an action ``[*B, n]`` of floats, the caller writes ``[*B,
    n]`` int64 (:class:`~steppe.specs.MultiCategorical`), or one-hot ``[*B, sum of intervals]`` bool; for an action
    without dimensions, one number or one-hot vector.

    >>> from steppe import ActionDiscretizer, TransformedEnv, make_env
    >>> env = TransformedEnv(make_env("gym:Pendulum-v1"), ActionDiscretizer(num_intervals=5))
    >>> env.rollout(3)["action"].shape[0]
    3

    Args:
        num_intervals: number of intervals of each element; a tensor ``[n]`` for different numbers.
        action_key: action of the environment.
        out_action_key: key that the caller writes. Default: ``action_key``.
        sampling: value of the interval that the environment receives: ``SamplingStrategy.MEDIAN`` (the middle, the
            default), ``LOW``, ``HIGH``, or ``RANDOM``, a random value for each action.
        categorical: whether the caller writes the index of an interval; otherwise one-hot vectors.

    Raises:
        SpecError: the action does not consist of floats with two finite bounds, or ``num_intervals`` does not fit.
    """

    class SamplingStrategy(IntEnum):
        """The value of an interval that the environment receives."""

        MEDIAN = 0
        LOW = 1
        HIGH = 2
        RANDOM = 3

    def __init__(
        self,
        num_intervals: int | torch.Tensor,
        action_key: NestedKey = "action",
        out_action_key: NestedKey | None = None,
        sampling: SamplingStrategy | None = None,
        categorical: bool = True,
    ) -> None:
        out_action_key = action_key if out_action_key is None else out_action_key
        super().__init__(in_keys_inv=[as_key(action_key)], out_keys_inv=[as_key(out_action_key)])
        counts = torch.as_tensor(num_intervals, device="cpu")
        if counts.dtype.is_floating_point or counts.dtype is torch.bool or counts.ndim > 1 or bool((counts < 1).any()):
            raise SpecError(
                "ActionDiscretizer: num_intervals must be a whole number >= 1, or a tensor [n] of them; found "
                f"{num_intervals!r}."
            )
        self.action_key, self.out_action_key = self.in_keys_inv[0], self.out_keys_inv[0]
        self.num_intervals = num_intervals
        self.sampling = self.SamplingStrategy(self.SamplingStrategy.MEDIAN if sampling is None else sampling)
        self.categorical = bool(categorical)
        self._counts = counts
        self._plan: tuple[list[Any], torch.Tensor, Any, Any, bool] | None = None
        #: Value of each interval, for each element of the action; None if values are random or rows differ.
        self._values: list[list[float]] | None = None
        self._draws = RowGenerators()

    @property
    def needs_all_rows(self) -> bool:
        """Whether rows draw from their own generators, or differ in their bounds."""
        several = self._plan is not None and self._plan[2].ndim > 1
        return several or self.sampling is self.SamplingStrategy.RANDOM

    def _set_seed(self, seed: int | None) -> None:
        self._draws.seed(seed)

    def shared_key(self) -> Any:
        if self.sampling is self.SamplingStrategy.RANDOM:
            return None
        counts = tuple(self._counts.flatten().tolist())
        return (type(self), counts, self.action_key, self.out_action_key, self.sampling, self.categorical)

    def custom_arange(self, nint: int, device: Any) -> torch.Tensor:
        """Return the value of each interval, from 0 to 1 between the bounds.

        Override this method for intervals of other sizes.

        Args:
            nint: number of intervals.
            device: device of the result.

        Returns:
            ``[nint]``, of the dtype of the action (``self.dtype``). With ``RANDOM``, the lower end of each interval.
        """
        begins = torch.arange(nint, dtype=self.dtype, device=device) / nint
        ends = (torch.arange(nint, dtype=self.dtype, device=device) + 1) / nint
        if self.sampling == self.SamplingStrategy.HIGH:
            return ends
        return (begins + ends) / 2 if self.sampling == self.SamplingStrategy.MEDIAN else begins

    def caller_spec(self, leaf: Spec, batch_dims: int) -> Spec:
        wrong = SpecError(f"ActionDiscretizer needs an action of floats with two finite bounds, found {leaf}.")
        if not has_floats(leaf):
            raise wrong
        low, high = one_row(leaf, batch_dims).bounds()
        if not bool((low.isfinite() & high.isfinite()).all()):
            raise wrong
        self.dtype = low.dtype
        counts: torch.Tensor = self._counts
        scalar = leaf.ndim == batch_dims
        n = 1 if scalar else int(leaf.shape[-1])
        if counts.numel() not in (1, n):
            raise SpecError(
                f"ActionDiscretizer: num_intervals has {counts.numel()} numbers, but the action has {n}; its spec is "
                f"{leaf}."
            )
        nvec = counts.reshape(-1).expand(n).tolist()
        device, most, width = low.device, max(nvec), high - low
        table = torch.zeros(n, most, dtype=self.dtype, device=device)
        for i, count in enumerate(nvec):
            table[i, :count] = self.custom_arange(count, device)
        self._plan = (nvec, table, low, width, scalar)
        self._values = self._values_of(nvec, table, low, width) if low.ndim <= 1 else None
        if scalar:
            kind = Categorical if self.categorical else OneHot
            shape = leaf.shape if self.categorical else (*leaf.shape, n * most)
            return kind(most, shape=shape, device=leaf.device)
        if self.categorical:
            return MultiCategorical(nvec, shape=leaf.shape, device=leaf.device)
        return MultiOneHot(nvec, shape=(*leaf.shape[:-1], sum(nvec)), device=leaf.device)

    def _inv_apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        plan = self._plan
        if plan is None and self.container is not None and hasattr(self.container, "full_action_spec"):
            _ = self.container.full_action_spec  # sets the plan
            plan = self._plan
        if plan is None:
            raise StateError(
                "ActionDiscretizer: the intervals depend on the bounds of an environment, but it has none. Append it "
                "to one: env.append_transform(ActionDiscretizer(5))."
            )
        nvec, table, low, width, scalar = plan
        action = self._of_one(value, nvec, scalar) if value.is_cpu and table.is_cpu else None
        if action is not None:
            return action
        if self.categorical:
            number = value.unsqueeze(-1) if scalar else value
        else:
            parts: tuple[torch.Tensor, ...] = value.split(nvec, -1)  # type: ignore[no-untyped-call]
            number = torch.stack([part.to(torch.uint8).argmax(-1) for part in parts], -1)
        at = torch.arange(len(nvec), device=table.device)
        where = table[at, number.to(table.device).long()]
        if self.sampling is self.SamplingStrategy.RANDOM:
            dims = (low.ndim or 1) if not scalar else 1
            draws, rows = self._draws, self.rows_of(where, dims)
            make = lambda count, generator: torch.rand(count, generator=generator, dtype=self.dtype, device="cpu")  # noqa: E731
            jitter = self.drawn(draws, rows, where.numel(), make).reshape(where.shape).to(where.device)
            where = where + jitter / torch.tensor(nvec, dtype=self.dtype, device=where.device)
        if scalar:
            where = where.squeeze(-1)
        action = low + where * width
        # Rounding may exceed a bound.
        return torch.minimum(torch.maximum(action, low), low + width)

    def _values_of(
        self, nvec: list[int], table: torch.Tensor, low: torch.Tensor, width: torch.Tensor
    ) -> list[list[float]] | None:
        if self.sampling is self.SamplingStrategy.RANDOM:
            return None
        low, width = low.reshape(-1, 1), width.reshape(-1, 1)
        table_values: list[list[float]] = torch.minimum(torch.maximum(low + table * width, low), low + width).tolist()
        return [values[:count] for values, count in zip(table_values, nvec, strict=True)]

    def _of_one(self, value: torch.Tensor, nvec: list[int], scalar: bool) -> torch.Tensor | None:
        """Look up a single action, which is faster than looking up a batch.

        Returns None if the action is not a valid choice, or values are random.
        """
        if self._values is None or value.ndim != int(not (scalar and self.categorical)):
            return None
        numbers = self._looked_up(value.tolist(), self._values, nvec, scalar)
        return None if numbers is None else torch.tensor(numbers, dtype=self.dtype, device="cpu")

    def inverse_kernel(self, leaf: Spec) -> Any:
        plan, values = self._plan, self._values
        if plan is None or values is None or leaf.dtype not in (torch.float32, torch.float64):
            return None
        nvec, _, _, _, scalar = plan
        dtype = torch_to_numpy_dtype_dict[leaf.dtype]

        def inverse(action: Any) -> Any:
            # New specs of the environment replace the values.
            result = self._looked_up(action.tolist(), values, nvec, scalar) if self._values is values else None
            if result is None:
                return self._inv_apply_transform(torch.from_numpy(action)).numpy()
            return np.array(result, dtype)

        return inverse

    def _looked_up(self, row: Any, values: list[list[float]], nvec: list[int], scalar: bool) -> Any:
        """Return the value of one action, a number or a list of numbers.

        Returns None if the action is not a valid choice.
        """
        if self.categorical:
            numbers = [row] if scalar else row
        else:
            if row.count(0) != len(row) - len(nvec) or row.count(1) != len(nvec):
                return None
            numbers, begin = [], 0
            for count in nvec:
                part = row[begin : begin + count]
                if 1 not in part:
                    return None
                numbers.append(part.index(1))
                begin += count
        try:
            numbers_found = [of_one[number] for of_one, number in zip(values, numbers, strict=True)]
        except (IndexError, TypeError, ValueError):  # not an interval; indexing the tensor raises the error
            return None
        if min(numbers) < 0:
            return None
        return numbers_found[0] if scalar else numbers_found

    def forward(self, tensordict: Any) -> Any:
        """Raise an error: continuous actions cannot be converted to indices of intervals.

        Raises:
            NotSupported: always.
        """
        raise NotSupported(
            "ActionDiscretizer only converts indices of intervals to actions, in environments and by inv. To keep both "
            "in stored data, pass another key for the indices: out_action_key=..."
        )

    def _repr_keys(self) -> Any:
        return ("action_key", "out_action_key", "sampling", "categorical")
