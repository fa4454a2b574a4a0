"""FiniteTensorDictCheck: raise an error if a value is not finite."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase

from steppe.errors import SpecError
from steppe.transforms import EnvSpecs, Hooks, PlannedTransform, RowHooks

__all__ = ["FiniteTensorDictCheck"]


class FiniteTensorDictCheck(PlannedTransform):
    """Raise an error if the environment returns a value that is NaN or infinite.

    It checks all floating-point entries of a reset or step: observations and rewards, including those that transforms
    before it have added. On data that comes from no environment, it checks all floating-point entries. It never changes
    data.

    >>> from steppe import FiniteTensorDictCheck, TransformedEnv, make_env
    >>> env = TransformedEnv(make_env("gym:CartPole-v1"), FiniteTensorDictCheck())
    >>> len(env.rollout(3))
    3

    Raises:
        SpecError: an entry of the step has such a value; the text names the entries and the rows.
    """

    def __init__(self) -> None:
        super().__init__()

    def hooks(self, specs: EnvSpecs) -> Hooks:
        floats = [
            key
            for spec in (specs.observation, specs.reward)
            for key, leaf in spec.items(include_nested=True, leaves_only=True)
            if leaf is not None and leaf.dtype is not None and leaf.dtype.is_floating_point
        ]
        return Hooks(
            step=lambda _, following: _checked(following),
            reset=lambda _, fresh: _checked(fresh),
            reads_root=False,
            rows=RowHooks(_Kernel(floats), reads=floats),
        )

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Check data that comes from no environment, and return it unchanged."""
        return _checked(tensordict)

    def shared_key(self) -> Any:
        return (type(self),)


def _checked(data: TensorDictBase) -> TensorDictBase:
    bad = []
    for key, value in data.items(include_nested=True, leaves_only=True):
        if isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex()):
            finite = torch.isfinite(value)
            if not bool(finite.all()):
                bad.append(_sentence(key, finite.numpy(force=True), data.batch_dims))
    if bad:
        raise _error(bad)
    return data


def _sentence(key: Any, finite: Any, batch_dims: int) -> str:
    indices = np.argwhere(~finite)
    rows = sorted({tuple(int(i) for i in index[:batch_dims]) for index in indices})
    shown = [row[0] if len(row) == 1 else row for row in rows[:5]]
    where = f", in the rows {shown}{' and others' if len(rows) > 5 else ''}" if batch_dims else ""
    return f"{key!r} has {len(indices)} of {finite.size} values that are NaN or infinite{where}"


def _error(bad: list[str]) -> SpecError:
    return SpecError(
        f"FiniteTensorDictCheck: {'; '.join(bad)}. Check the data that the environment returns there, or the "
        "action that it received."
    )


class _Kernel:
    """Numpy version of the transform, for blocks of rows."""

    def __init__(self, keys: list[Any]) -> None:
        self.keys = keys

    def __call__(self, root: Any, following: Any) -> Any:
        after = [(key, following[key]) for key in self.keys]
        at_root = [(key, root[key]) for key in self.keys if key in root]
        isfinite = np.isfinite

        def step() -> bool:
            for _, array in after:
                if not isfinite(array).all():
                    _explain(after)
            return False

        def reset(at: Any) -> None:
            for _, array in at_root:
                if not isfinite(array[list(at)]).all():
                    _explain(at_root)

        return step, reset


def _explain(arrays: list[tuple[Any, Any]]) -> None:
    lead = 1 if arrays and len(arrays[0][1]) > 1 else 0
    finite = [(key, np.isfinite(array if lead else array[0])) for key, array in arrays]
    raise _error([_sentence(key, values, lead) for key, values in finite if not values.all()])
