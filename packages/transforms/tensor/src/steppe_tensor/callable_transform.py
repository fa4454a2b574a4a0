"""CallableTransform: a function of a TensorDict as a transform."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from tensordict import LazyStackedTensorDict, TensorDictBase, is_leaf_nontensor, is_non_tensor

from steppe.errors import SpecError
from steppe.specs import Binary, Composite, NonTensor, Spec, Unbounded
from steppe.transforms import EnvSpecs, Transform, set_beside

__all__ = ["CallableTransform", "spec_of_value"]


class CallableTransform(Transform):
    """Runs a function of a TensorDict after each step and each reset.

    >>> from steppe import CallableTransform, TransformedEnv, make_env
    >>> def add_speed(td):
    ...     return td.set("speed", td["observation"][..., 1:2].abs())
    >>> env = TransformedEnv(make_env("gym:CartPole-v1"), CallableTransform(add_speed, writes_done=False))
    >>> env.observation_spec["speed"].shape, env.rollout(3)["speed"].shape
    (torch.Size([1]), torch.Size([3, 1]))

    Args:
        func: function of the data of a step (``next``) or reset that returns this data, or other data. The data of a
            reset has no reward.
        specs: Composite or dict of the observations that the function adds or changes; shapes include the batch size.
            By default, the function is called once on zeros of the observations and done entries: the specs of the
            entries that it adds or changes are unbounded, with the shapes and dtypes of the result, and the entries
            that it drops are dropped. If the function fails on zeros, it warns, and the specs stay as they are. With
            ``specs``, even with ``{}``, this call does not happen.
        writes_done: whether the function may end an episode. False saves a batch the second round trip for resets.
    """

    writes_done = True
    needs_all_rows = False

    def __init__(
        self,
        func: Callable[[TensorDictBase], TensorDictBase],
        specs: Composite | None = None,
        *,
        writes_done: bool = True,
    ) -> None:
        super().__init__()
        if specs is not None and not isinstance(specs, Mapping | Composite):
            raise SpecError(
                f"CallableTransform takes one function; specs is a Composite or dict of what it adds, found {specs!r}. "
                "Give each function a CallableTransform of its own: Compose(first, second)."
            )
        self.func = func
        self.specs = specs
        self.writes_done = writes_done
        if specs is not None:
            self.out_keys = list(Composite(specs).keys(include_nested=True, leaves_only=True))

    def _call(self, next_tensordict: TensorDictBase) -> TensorDictBase:
        return self.func(next_tensordict)

    def _reset(self, tensordict: TensorDictBase | None, tensordict_reset: TensorDictBase) -> TensorDictBase:
        return self.func(tensordict_reset)

    def forward(self, *args: Any, **kwargs: Any) -> TensorDictBase:
        """Call the function."""
        return self.func(*args, **kwargs)

    def transform_specs(self, specs: EnvSpecs) -> EnvSpecs:
        specs = specs.copy()
        if self.specs is not None:
            return specs.changed(observation=specs.observation.update(self.specs))
        before = specs.observation.zero().update(specs.done.zero())
        if _is_stack(before):
            self._on_zeros(before.copy())  # it warns if the function fails
            return specs  # rows that differ have no common spec
        versions = {key: _version(value) for key, value in before.items(True, True)}
        after = self._on_zeros(before.copy())
        if after is None or _is_stack(after):
            return specs
        kept = set(after.keys(include_nested=True, leaves_only=True, is_leaf=is_leaf_nontensor))
        written = []
        for key in list(specs.observation.keys(include_nested=True, leaves_only=True)):
            if key not in kept:
                del specs.observation[key]
                written.append(key)
        others = {*specs.done.keys(True, True), *specs.reward.keys(True, True)}
        for key in kept - others:
            value, leaf = after.get(key), specs.observation.get(key, None)
            if value is not before.get(key, None) or _version(value) != versions.get(key):
                written.append(key)
            if leaf is None or (value is not before.get(key) and -1 not in leaf.shape):
                changed = spec_of_value(value, specs.batch_size, specs.device)
                if leaf is None or leaf.dtype is not None or changed.dtype is not None:
                    set_beside(specs.observation, key, changed, specs.observation)
        self._out_keys = written
        return specs

    def _on_zeros(self, zeros: TensorDictBase) -> TensorDictBase | None:
        try:
            result = self.func(zeros)
        except Exception as error:
            warnings.warn(
                f"{self!r} was called on zeros of {sorted(map(str, zeros.keys()))} to find the specs of its result, "
                f"and failed: {type(error).__name__}: {error}. The specs stay as they are, and batches drop the "
                "entries that it adds. Pass their specs: CallableTransform(function, specs={...}).",
                stacklevel=2,
            )
            return None
        if not isinstance(result, TensorDictBase):
            raise SpecError(f"{self!r} must return a TensorDict, found {type(result).__name__}: return the data.")
        return result

    def __repr__(self) -> str:
        return f"CallableTransform({getattr(self.func, '__name__', self.func)!r})"


def _is_stack(data: TensorDictBase) -> bool:
    """Return whether data, or a group in it, is stacked lazily, because its rows differ."""
    return isinstance(data, LazyStackedTensorDict) or any(
        isinstance(value, TensorDictBase) and not is_non_tensor(value) and _is_stack(value) for value in data.values()
    )


def _version(value: Any) -> int:
    """Return how often a tensor has been written into."""
    return value._version if type(value) is torch.Tensor and not value.is_inference() else 0


def spec_of_value(value: Any, batch_size: torch.Size, device: torch.device | None) -> Spec:
    """Return the spec of a value that a function returned: unbounded, of its shape and dtype.

    Args:
        value: a tensor ``[*B, ...]``, or any other object.
        batch_size: of the environment: the shape of the spec of an object that is no tensor.
        device: of the environment.

    Returns:
        Unbounded for numbers, Binary for bools, NonTensor for anything else.
    """
    if is_non_tensor(value):
        return NonTensor(shape=batch_size, device=device, example_data=value.data if hasattr(value, "data") else None)
    if not isinstance(value, torch.Tensor) or isinstance(value, TensorDictBase):
        return NonTensor(shape=batch_size, device=device, example_data=value)
    if value.dtype is torch.bool:
        return Binary(shape=value.shape, device=device, dtype=torch.bool)
    return Unbounded(shape=value.shape, device=device, dtype=value.dtype)
