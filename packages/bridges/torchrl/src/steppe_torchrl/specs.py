"""Convert specs of steppe to specs of TorchRL, and back."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeAlias, overload

import torch
import torchrl.data as torchrl_specs
from tensordict import is_non_tensor

import steppe.specs as steppe_specs
from steppe.envs import EnvBase
from steppe.errors import SpecError

from .choice import Choice, Fixed

__all__ = ["spec_from_torchrl", "to_torchrl"]

#: A spec of either library. Attributes of the same name are read from both, so no common static type exists.
_AnySpec: TypeAlias = Any

#: A class of specs of either library.
_SpecClass: TypeAlias = Any


@overload
def to_torchrl(spec: None) -> None: ...


@overload
def to_torchrl(spec: steppe_specs.Spec | torchrl_specs.TensorSpec) -> torchrl_specs.TensorSpec: ...


def to_torchrl(spec: _AnySpec) -> _AnySpec:
    """Convert a spec of steppe to the equivalent spec of TorchRL.

    ``QValueActor``, ``DQNLoss``, ``TD3Loss`` and ``SafeModule`` of TorchRL check the class of a spec, and need this::

        actor = QValueActor(net, in_keys=["observation"], spec=to_torchrl(env.action_spec))

    >>> from steppe import make_env
    >>> from steppe_torchrl import to_torchrl
    >>> spec = to_torchrl(make_env("gym:CartPole-v1").action_spec)
    >>> type(spec).__module__.split(".")[0], type(spec).__name__, spec.shape
    ('torchrl', 'OneHot', torch.Size([2]))

    Args:
        spec: a :class:`~steppe.specs.Spec`. A spec of TorchRL and None are returned unchanged.

    Returns:
        An independent, unlocked spec of the class of the same name, with equal shape, dtype, domain and mask. A leaf
        without a device gets the device ``"cpu"``, where its data is. A provisional number of categories becomes final.

    Raises:
        SpecError: ``spec`` is not a spec.
    """
    if spec is None or isinstance(spec, torchrl_specs.TensorSpec):
        return spec
    converted = _convert(spec, _STEPPE, torchrl_specs)
    if converted is None:
        hint = " Use as_torchrl for an environment." if isinstance(spec, EnvBase) else ""
        raise SpecError(f"to_torchrl takes a spec of steppe, found {type(spec).__name__}.{hint}")
    return converted


def spec_from_torchrl(spec: _AnySpec) -> _AnySpec:
    """Convert a spec of TorchRL to the equivalent spec of steppe; see :func:`steppe_torchrl.from_torchrl`."""
    if spec is None or isinstance(spec, steppe_specs.Spec):
        return spec
    converted = _convert(spec, torchrl_specs, _STEPPE)
    if converted is None:
        raise SpecError(
            f"from_torchrl takes a spec of torchrl.data or an environment of TorchRL, found {type(spec).__name__}."
        )
    return converted


def _shape_and_device(spec: _AnySpec) -> dict[str, Any]:
    # TorchRL reads None as torch's default device. steppe's data without a device is on the CPU.
    return {"shape": spec.shape, "device": torch.device("cpu") if spec.device is None else spec.device}


def _mask(spec: _AnySpec) -> torch.Tensor | None:
    return None if spec.mask is None else spec.mask.clone()


# Each converter builds an instance of ``kind``, a class of one library, from a spec of the class of the same name in
# the other library. The attributes read here have the same names in both.


def _bounded(spec: _AnySpec, kind: _SpecClass) -> _AnySpec:
    low, high = spec.space.low.clone(), spec.space.high.clone()
    return kind(low, high, dtype=spec.dtype, domain=spec.domain, **_shape_and_device(spec))


def _unbounded(spec: _AnySpec, kind: _SpecClass) -> _AnySpec:
    return kind(dtype=spec.dtype, domain=spec.domain, **_shape_and_device(spec))


def _categorical(spec: _AnySpec, kind: _SpecClass) -> _AnySpec:
    n = int(spec.space.n)
    out = kind(n, dtype=spec.dtype, mask=_mask(spec), **_shape_and_device(spec))
    if n < 0:
        try:
            known = spec.n
        except RuntimeError:  # steppe's NotSupported is one too
            return out
        out.set_provisional_n(known)
    return out


def _one_hot(spec: _AnySpec, kind: _SpecClass) -> _AnySpec:
    return kind(int(spec.space.n), dtype=spec.dtype, mask=_mask(spec), **_shape_and_device(spec))


def _multi_categorical(spec: _AnySpec, kind: _SpecClass) -> _AnySpec:
    # TorchRL repeats nvec for each row of a batch; steppe accepts masks only for a flat nvec.
    nvec = spec.nvec.clone()
    while nvec.ndim > 1 and bool((nvec == nvec[:1]).all()):
        nvec = nvec[0]
    return kind(nvec, dtype=spec.dtype, mask=_mask(spec), **_shape_and_device(spec))


def _multi_one_hot(spec: _AnySpec, kind: _SpecClass) -> _AnySpec:
    parts = [int(box.n) for box in spec.space]
    return kind(parts, dtype=spec.dtype, mask=_mask(spec), **_shape_and_device(spec))


def _binary(spec: _AnySpec, kind: _SpecClass) -> _AnySpec:
    out = kind(dtype=spec.dtype, **_shape_and_device(spec))
    out.update_mask(_mask(spec))
    return out


def _non_tensor(spec: _AnySpec, kind: _SpecClass) -> _AnySpec:
    return kind(spec.shape, spec.device, example_data=spec.example_data)


def _choice(spec: _AnySpec, kind: _SpecClass) -> _AnySpec:
    convert = to_torchrl if kind is torchrl_specs.Choice else spec_from_torchrl
    # TorchRL's Choice has no public attribute for its choices.
    parts = spec.choices if isinstance(spec, Choice) else vars(spec)["_choices"]
    return kind([_value(part) if _is_value(part) else convert(part) for part in parts])


def _is_value(part: object) -> bool:
    """Whether a choice is a plain value instead of a spec.

    TorchRL stores the value itself; steppe stores the spec of that value.
    """
    if is_non_tensor(part):
        return True
    if isinstance(part, steppe_specs.Stacked):
        return all(map(_is_value, part.specs))
    return isinstance(part, Fixed)


def _value(part: Any) -> Any:
    return part.clone() if is_non_tensor(part) else part.zero()


def _composite(spec: _AnySpec, kind: _SpecClass) -> _AnySpec:
    convert = to_torchrl if kind is torchrl_specs.Composite else spec_from_torchrl
    entries = {key: convert(child) for key, child in spec.items()}
    names = spec.names if any(spec.names) else None
    return kind(entries, shape=spec.shape, device=spec.device, data_cls=spec.data_cls, names=names)


def _stack(spec: _AnySpec, kind: _SpecClass) -> _AnySpec:
    convert = to_torchrl if kind in (torchrl_specs.Stacked, torchrl_specs.StackedComposite) else spec_from_torchrl
    return kind(*(convert(part) for part in spec.unbind(spec.dim)), dim=spec.dim)


# Subclasses come before their base classes in either library, because the first match converts.
_CONVERTERS: dict[str, Callable[[_AnySpec, _SpecClass], _AnySpec]] = {
    "Stacked": _stack,
    "StackedComposite": _stack,
    "Composite": _composite,
    "Choice": _choice,
    "NonTensor": _non_tensor,
    "Binary": _binary,
    "MultiCategorical": _multi_categorical,
    "MultiOneHot": _multi_one_hot,
    "OneHot": _one_hot,
    "Categorical": _categorical,
    "Bounded": _bounded,
    "Unbounded": _unbounded,
}


# The classes of steppe's specs; Choice is a class of this package.
_STEPPE = SimpleNamespace(**{name: getattr(steppe_specs, name, Choice) for name in _CONVERTERS})


def _convert(spec: _AnySpec, source: Any, target: Any) -> _AnySpec:
    """Convert a spec of one library to the other; return None if its class is unknown."""
    for name, convert in _CONVERTERS.items():
        if isinstance(spec, getattr(source, name)):
            return convert(spec, getattr(target, name))
    return None
