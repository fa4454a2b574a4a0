"""Functions of a TensorDict as transforms."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from tensordict import LazyStackedTensorDict, TensorDictBase, is_leaf_nontensor, is_non_tensor

from steppe.errors import SpecError
from steppe.specs import Binary, NonTensor, Spec, Unbounded
from steppe.transforms.base import Transform
from steppe.transforms.compiled.hooks import EnvSpecs, set_beside
from steppe.transforms.foreign import adopted
from steppe.transforms.whole_specs import WholeSpecs

__all__ = ["CallableTransform", "as_transform", "spec_of"]


class CallableTransform(WholeSpecs):
    """A function of a TensorDict as a transform: it runs after each step and each reset.

    Args:
        func: given the data of a step (``next``) or reset, returns it changed, or other data. It must not count on a
            reward, which a reset has not.
        specs: a Composite or dict of the observations that the function adds or changes; shapes with the batch size.
            Without it they are found by calling the function on zeros of the observations and done entries: what it
            adds or changes is unbounded, of the shape and dtype that come out, and what it leaves out is left out.
            Where it fails on zeros, the specs stay as they are, with a warning. With ``specs``, also with ``{}``, the
            function is not called for that.
        writes_done: whether it may end an episode. False saves a batch the second trip for resets.
    """

    writes_done = True

    def __init__(
        self, func: Callable[[TensorDictBase], TensorDictBase], specs: Any = None, *, writes_done: bool = True
    ) -> None:
        super().__init__()
        self.func = func
        self.specs = specs
        self.writes_done = writes_done

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
        after = self._on_zeros(before.copy())
        if after is None:
            return specs
        if isinstance(after, LazyStackedTensorDict) or any(
            isinstance(value, LazyStackedTensorDict) and not is_non_tensor(value)
            for value in after.values(include_nested=True)
        ):
            return specs  # rows that differ have no common spec to be found
        kept = set(after.keys(include_nested=True, leaves_only=True, is_leaf=is_leaf_nontensor))
        for key in list(specs.observation.keys(include_nested=True, leaves_only=True)):
            if key not in kept:
                del specs.observation[key]
        others = {*specs.done.keys(True, True), *specs.reward.keys(True, True)}
        for key in kept - others:
            value, leaf = after.get(key), specs.observation.get(key, None)
            if leaf is None or (value is not before.get(key) and -1 not in leaf.shape):
                found = spec_of(value, specs.batch_size, specs.device)
                if leaf is None or leaf.dtype is not None or found.dtype is not None:
                    set_beside(specs.observation, key, found, specs.observation)
        return specs

    def _on_zeros(self, zeros: TensorDictBase) -> TensorDictBase | None:
        try:
            result = self.func(zeros)
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
            warnings.warn(
                f"{self!r} was called on zeros of {sorted(map(str, zeros.keys()))} to find out what it adds, and "
                f"failed: {found}. The specs stay as they are, and batches drop what it adds. Say what it adds: "
                "CallableTransform(function, specs={...}).",
                stacklevel=2,
            )
            return None
        if not isinstance(result, TensorDictBase):
            raise SpecError(f"{self!r} must return a TensorDict, found {type(result).__name__}: return the data.")
        return result

    def __repr__(self) -> str:
        return f"CallableTransform({getattr(self.func, '__name__', self.func)!r})"


def spec_of(value: Any, batch_size: torch.Size, device: torch.device | None) -> Spec:
    """The spec of a value that a function has returned: what is known of it is its shape and dtype."""
    if is_non_tensor(value):
        return NonTensor(shape=batch_size, device=device, example_data=value.data if hasattr(value, "data") else None)
    if not isinstance(value, torch.Tensor) or isinstance(value, TensorDictBase):
        return NonTensor(shape=batch_size, device=device, example_data=value)
    if value.dtype is torch.bool:
        return Binary(shape=value.shape, device=device, dtype=torch.bool)
    return Unbounded(shape=value.shape, device=device, dtype=value.dtype)


def as_transform(transform: Any) -> Transform:
    """Return a transform as it is, and a function wrapped in a :class:`CallableTransform`.

    A ``TensorDictPrimer`` that a recurrent module of TorchRL made becomes ours.

    Raises:
        SpecError: it is neither, or another transform of TorchRL's.
    """
    if isinstance(transform, Transform):
        return transform
    primer = adopted(transform)
    if primer is not None:
        return primer
    if isinstance(transform, type):
        raise SpecError(
            f"Expected a transform, found the class {transform.__name__}: make one, {transform.__name__}()."
        )
    if callable(transform):
        return CallableTransform(transform)
    hint = ""
    if isinstance(transform, (list, tuple)):
        hint = " Several are one in a Compose: Compose(first, second)."
    elif isinstance(transform, str):
        hint = f" A transform is made by its name with make_transform({transform!r})."
    raise SpecError(f"Expected a transform or a function of a TensorDict, found {type(transform).__name__}.{hint}")
