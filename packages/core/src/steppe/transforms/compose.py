"""Compose: a chain of transforms."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from tensordict import NestedKey
from torch import nn

import steppe.transforms
from steppe.errors import SpecError
from steppe.transforms.base import Transform
from steppe.transforms.compiled.transform_hooks import EnvSpecs
from steppe.transforms.policy_transforms import adopted

__all__ = ["Compose", "as_transform", "in_order", "joined"]

#: The class that makes a transform of a function. It is in steppe-tensor, and so looked up by its name.
_OF_FUNCTIONS = "CallableTransform"

_Method = TypeVar("_Method", bound=Callable[..., Any])


def _in_turn(method: _Method, *, reverse: bool = False) -> _Method:
    """Return the method of a Compose that passes the result of each transform to the next one, or the one before.

    The result is the last argument of the method; all transforms receive the same other arguments.
    """
    name, signature = method.__name__, inspect.signature(method)

    @functools.wraps(method)
    def of_all(self: Compose, *args: Any, **kwargs: Any) -> Any:
        if kwargs:
            args = signature.bind(self, *args, **kwargs).args[1:]
        *others, value = args
        for transform in reversed(list(self)) if reverse else self:
            value = getattr(transform, name)(*others, value)
        return value

    return of_all  # type: ignore[return-value]


def _of_any(name: str, doc: str) -> Any:
    """Return a property of a Compose that is True if it is True for one of the transforms."""
    return property(lambda self: any(getattr(transform, name) for transform in self), doc=doc)


class Compose(Transform):
    """Run several transforms: forward in order, inverse in reverse order.

    ``compose[i]`` is the transform itself. ``compose[i:j]`` is a new Compose of clones that belongs to no environment.
    ``append``, ``insert`` and ``compose[i] = transform`` put the new transform into evaluation mode, as an environment
    does with its transforms.

    Args:
        *args: transforms or functions of a TensorDict, or a single list of them.
        transforms: a list of them, by name.
    """

    def __init__(self, *args: object, transforms: Iterable[object] | None = None) -> None:
        super().__init__()
        parts = [*args, *(transforms or ())]
        if len(parts) == 1 and isinstance(parts[0], (list, tuple)):
            parts = list(parts[0])
        self.transforms = nn.ModuleList()
        for transform in parts:
            self._put(len(self.transforms), transform)

    # -- a list of transforms -------------------------------------------------------------------------------------

    def append(self, transform: object) -> Compose:
        """Add a transform at the end, or each transform of a Compose; returns the Compose."""
        transform = as_transform(transform)
        if type(self) is Compose and type(transform) is Compose and transform is not self:
            transform._check_free()
            for part in list(transform):
                part.reset_parent()
                self.append(part)
            return self
        return self.insert(len(self.transforms), transform)

    def insert(self, index: int, transform: object) -> Compose:
        """Add a transform before the one at ``index``; returns the Compose.

        Raises:
            IndexError: ``index`` is out of range.
            StateError: the transform belongs to another environment.
        """
        if not isinstance(index, int):
            raise TypeError(f"Compose.insert takes a place first: insert(0, transform), found {index!r}.")
        length = len(self.transforms)
        if not -length <= index <= length:
            raise IndexError(f"Compose.insert: the index {index} is out of range for {length} transforms.")
        self._put(index % length if length and index < length else index, transform).eval()
        return self

    def _put(self, index: int, transform: object) -> Transform:
        transform = as_transform(transform)
        self._refuse_cycle(transform)
        transform._check_free()
        transform.set_container(self)
        self.transforms.insert(index, transform)
        self._changed()
        assert isinstance(transform, Transform)
        return transform

    def _refuse_cycle(self, transform: Transform) -> None:
        if any(module is self for module in transform.modules()):
            raise SpecError("A Compose cannot hold itself.")

    def pop(self, index: int = -1) -> Transform:
        """Remove a transform and return it; it then belongs to no environment."""
        transform = self[self._position(index)]
        del self.transforms[self._position(index)]
        transform.reset_parent()
        self._changed()
        assert isinstance(transform, Transform)
        return transform

    def __delitem__(self, index: int | slice) -> None:
        positions = range(len(self.transforms))[index]
        for position in sorted([positions] if isinstance(positions, int) else positions, reverse=True):
            self.pop(position)

    def __setitem__(self, index: int, transform: object) -> None:
        position = self._position(index)
        transform = as_transform(transform)
        if transform is self.transforms[position]:
            return
        self._refuse_cycle(transform)
        transform.set_container(self)
        old = self[position]
        self.transforms[position] = transform.eval()
        old.reset_parent()
        self._changed()

    def _position(self, index: int) -> int:
        length = len(self.transforms)
        if not -length <= index < length:
            raise IndexError(f"Compose: the index {index} is out of range for {length} transforms.")
        return index % length

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return Compose(*(transform.clone() for transform in list(self)[index]))
        return self.transforms[self._position(index)]

    def __iter__(self) -> Iterator[Transform]:
        parts: Iterable[Any] = self.transforms
        return iter(parts)

    def __len__(self) -> int:
        return len(self.transforms)

    def __bool__(self) -> bool:
        # An empty Compose is a transform too.
        return True

    # -- one transform --------------------------------------------------------------------------------------------

    writes_done = _of_any("writes_done", "Whether one of them may end an episode or skip a step.")
    writes_step = _of_any("writes_step", "Whether one of them may exclude rows from a step.")
    needs_all_rows = _of_any("needs_all_rows", "Whether one of them needs the data of all rows of a batch.")
    over_time = _of_any("over_time", "Whether one of them keeps values from step to step.")

    @property
    def action_masks(self) -> Mapping[NestedKey, NestedKey]:  # type: ignore[override]
        """The masks that the transforms declare."""
        return {key: mask for transform in self for key, mask in transform.action_masks.items()}

    def _check_batched_worker_compat(self) -> None:
        for transform in self:
            transform._check_batched_worker_compat()

    def dump(self, **kwargs: Any) -> None:
        """Call ``dump`` of each transform with these arguments."""
        for transform in self:
            transform.dump(**kwargs)

    def to(self, *args: Any, **kwargs: Any) -> Compose:
        """Move all transforms; returns the Compose."""
        for transform in self:
            transform.to(*args, **kwargs)
        return super().to(*args, **kwargs)

    def _set_seed(self, seed: int | None) -> None:
        for transform in self:
            transform._set_seed(seed)

    forward = _in_turn(Transform.forward)
    _call = _in_turn(Transform._call)
    _step = _in_turn(Transform._step)
    _reset = _in_turn(Transform._reset)
    _inv_call = _in_turn(Transform._inv_call, reverse=True)
    _reset_env_preprocess = _in_turn(Transform._reset_env_preprocess, reverse=True)
    transform_output_spec = _in_turn(Transform.transform_output_spec)
    transform_input_spec = _in_turn(Transform.transform_input_spec)
    transform_observation_spec = _in_turn(Transform.transform_observation_spec)
    transform_reward_spec = _in_turn(Transform.transform_reward_spec)
    transform_done_spec = _in_turn(Transform.transform_done_spec)
    transform_action_spec = _in_turn(Transform.transform_action_spec)
    transform_state_spec = _in_turn(Transform.transform_state_spec)
    transform_env_batch_size = _in_turn(Transform.transform_env_batch_size)
    transform_env_device = _in_turn(Transform.transform_env_device)

    def transform_specs(self, specs: EnvSpecs) -> EnvSpecs:
        for transform in self:
            specs = transform.specs_behind(specs)
        return specs

    # -- the environment it belongs to ---------------------------------------------------------------------------------

    def set_container(self, container: Any) -> None:
        super().set_container(container)
        for transform in self:
            transform.set_container(self)

    def _forget_parent(self) -> None:
        super()._forget_parent()
        for transform in self.__dict__.get("_modules", {}).get("transforms", ()):
            transform._forget_parent()

    def close(self) -> None:
        for transform in self:
            transform.close()

    def clone(self) -> Compose:
        """Return a Compose of clones that belongs to no environment."""
        twin: Compose = super().clone()
        twin.transforms = nn.ModuleList()
        for transform in self:
            twin._put(len(twin), transform.clone())
        return twin

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        for transform in self:
            transform.set_container(self)

    def __repr__(self) -> str:
        if not len(self):
            return "Compose()"
        lines = ",\n".join(f"    {transform!r}".replace("\n", "\n    ") for transform in self)
        return f"Compose(\n{lines})"


def as_transform(transform: object) -> Transform:
    """Return a transform unchanged, and wrap a function in a ``CallableTransform`` of steppe-tensor.

    A ``TensorDictPrimer`` of TorchRL, as recurrent modules make it, is converted to one of steppe.

    Raises:
        SpecError: the argument is neither, or another transform of TorchRL.
        TransformNotFound: the argument is a function, and steppe-tensor is not installed.
    """
    if isinstance(transform, Transform):
        return transform
    primers = adopted(transform)
    if primers is not None:
        return primers[0] if len(primers) == 1 else Compose(*primers)
    if isinstance(transform, type):
        raise SpecError(
            f"Expected a transform, found the class {transform.__name__}: make one, {transform.__name__}()."
        )
    if callable(transform):
        wrapped: Transform = getattr(steppe.transforms, _OF_FUNCTIONS)(transform)
        return wrapped
    hint = ""
    if isinstance(transform, (list, tuple)):
        hint = " Put several into a Compose: Compose(first, second); TransformedEnv(env, first, second) makes one."
    elif isinstance(transform, bool):
        hint = " Pass other arguments by name, such as TransformedEnv(env, transform, cache_specs=True)."
    elif isinstance(transform, str):
        hint = f" To make a transform by name: getattr(steppe.transforms, {transform!r})(...)."
    raise SpecError(f"Expected a transform or a function of a TensorDict, found {type(transform).__name__}.{hint}")


def joined(inner: Transform, outer: Transform) -> Compose:
    """Return one Compose of two chains, the inner one first; the parts of a Compose are moved."""
    return (inner if type(inner) is Compose else Compose(inner)).append(outer)


def in_order(transform: Transform) -> list[Transform]:
    """Return a transform and all transforms in it, each Compose before its parts."""
    parts = [transform]
    if isinstance(transform, Compose):
        for part in transform:
            parts += in_order(part)
    return parts
