"""Specs of steppe as specs of TorchRL, and back."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
import torchrl.data as theirs
from tensordict import is_non_tensor

import steppe.specs as ours
from steppe.errors import SpecError

__all__ = ["from_torchrl", "to_torchrl"]


def to_torchrl(spec: Any) -> Any:
    """Return a spec of TorchRL that describes the data that a spec of steppe describes.

    For what asks for the class of a spec, as ``QValueActor``, ``DQNLoss``, ``TD3Loss`` and ``SafeModule`` do::

        actor = QValueActor(net, in_keys=["observation"], spec=to_torchrl(env.action_spec))

    Args:
        spec: a :class:`~steppe.specs.Spec`. One of TorchRL is returned as it is, and so is None.

    Returns:
        An independent, unlocked spec of the class of the same name, with shape, dtype, domain and mask. A leaf without
        a device, whose data is on the CPU, has the device ``"cpu"``, and a number of categories that was provisional is
        fixed.

    Raises:
        SpecError: it is no spec.
    """
    if spec is None or isinstance(spec, theirs.TensorSpec):
        return spec
    found = _converted(spec, ours, theirs)
    if found is None:
        raise SpecError(f"to_torchrl takes a spec of steppe, found {type(spec).__name__}.")
    return found


def from_torchrl(spec: Any) -> Any:
    """Return a spec of steppe that describes the data that a spec of TorchRL describes.

    For specs of an environment, a transform or a policy that other code makes with TorchRL's classes::

        self.action_spec = from_torchrl(action_spec)

    Args:
        spec: a spec of ``torchrl.data``. One of steppe is returned as it is, and so is None.

    Returns:
        An independent, unlocked spec of the class of the same name, with shape, dtype, device, domain and mask.

    Raises:
        SpecError: it is no spec, or of a kind that steppe does not have.
    """
    if spec is None or isinstance(spec, ours.Spec):
        return spec
    found = _converted(spec, theirs, ours)
    if found is None:
        raise SpecError(f"from_torchrl takes a spec of torchrl.data, found {type(spec).__name__}.")
    return found


def _leaf(spec: Any) -> dict[str, Any]:
    # TorchRL reads None as torch's default device, where our data is not.
    return {"shape": spec.shape, "device": torch.device("cpu") if spec.device is None else spec.device}


def _mask(spec: Any) -> torch.Tensor | None:
    return None if spec.mask is None else spec.mask.clone()


# Each function makes the class ``kind`` of one library from a spec of the class of that name in the other: what is read
# here has the same name in both.


def _bounded(spec: Any, kind: Any) -> Any:
    low, high = spec.space.low.clone(), spec.space.high.clone()
    return kind(low, high, dtype=spec.dtype, domain=spec.domain, **_leaf(spec))


def _unbounded(spec: Any, kind: Any) -> Any:
    return kind(dtype=spec.dtype, domain=spec.domain, **_leaf(spec))


def _categorical(spec: Any, kind: Any) -> Any:
    n = int(spec.space.n)
    out = kind(n, dtype=spec.dtype, mask=_mask(spec), **_leaf(spec))
    if n < 0:
        try:
            known = spec.n
        except RuntimeError:  # steppe's NotSupported is one too
            return out
        out.set_provisional_n(known)
    return out


def _one_hot(spec: Any, kind: Any) -> Any:
    return kind(int(spec.space.n), dtype=spec.dtype, mask=_mask(spec), **_leaf(spec))


def _multi_categorical(spec: Any, kind: Any) -> Any:
    # TorchRL repeats nvec for each row of a batch; steppe masks flat ones alone.
    nvec = spec.nvec.clone()
    while nvec.ndim > 1 and bool((nvec == nvec[:1]).all()):
        nvec = nvec[0]
    return kind(nvec, dtype=spec.dtype, mask=_mask(spec), **_leaf(spec))


def _multi_one_hot(spec: Any, kind: Any) -> Any:
    parts = [int(box.n) for box in spec.space]
    return kind(parts, dtype=spec.dtype, mask=_mask(spec), **_leaf(spec))


def _binary(spec: Any, kind: Any) -> Any:
    out = kind(dtype=spec.dtype, **_leaf(spec))
    out.update_mask(_mask(spec))
    return out


def _non_tensor(spec: Any, kind: Any) -> Any:
    return kind(spec.shape, spec.device, example_data=spec.example_data)


def _choice(spec: Any, kind: Any) -> Any:
    convert = to_torchrl if kind is theirs.Choice else from_torchrl
    # TorchRL's class has no public name for its choices.
    parts = spec.choices if isinstance(spec, ours.Choice) else vars(spec)["_choices"]
    return kind([_value(part) if _is_value(part) else convert(part) for part in parts])


def _is_value(part: Any) -> bool:
    """Whether a choice is a value: as such in TorchRL, as a spec of that value in steppe."""
    return is_non_tensor(part) or (isinstance(part, ours.NonTensor) and type(part) is not ours.NonTensor)


def _value(part: Any) -> Any:
    return part.clone() if is_non_tensor(part) else part.zero()


def _composite(spec: Any, kind: Any) -> Any:
    convert = to_torchrl if kind is theirs.Composite else from_torchrl
    entries = {key: convert(child) for key, child in spec.items()}
    names = spec.names if any(spec.names) else None
    return kind(entries, shape=spec.shape, device=spec.device, data_cls=spec.data_cls, names=names)


def _stack(spec: Any, kind: Any) -> Any:
    convert = to_torchrl if kind in (theirs.Stacked, theirs.StackedComposite) else from_torchrl
    return kind(*(convert(part) for part in spec.unbind(spec.dim)), dim=spec.dim)


# Classes before those that they are derived from, in either library.
_CONVERTERS: dict[str, Callable[[Any, Any], Any]] = {
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


def _converted(spec: Any, source: ModuleType, target: ModuleType) -> Any:
    for name, convert in _CONVERTERS.items():
        if isinstance(spec, getattr(source, name)):
            return convert(spec, getattr(target, name))
    return None
