"""ActionScaling: scale actions to [-1, 1] or [0, 1]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from tensordict import NestedKey

from steppe.errors import SpecError, StateError
from steppe.specs import Bounded, Spec, Unbounded
from steppe.transforms import as_keys

from .inverse import ActionInverse, has_floats, one_row

__all__ = ["ActionScaling"]


class ActionScaling(ActionInverse):
    """Scale actions from [-1, 1] (or [0, 1]) to the range of the environment.

    The environment receives ``action * scale + loc``. By default ``loc`` is the middle of the bounds of the
    environment's action, and ``scale`` is half their distance. If they are passed, the new bounds are those of the
    environment on this scale, and unbounded actions stay unbounded. Shape and dtype stay the same. Called on stored
    data, it scales actions of the environment to those of the caller.

    >>> from steppe import ActionScaling, TransformedEnv, make_env
    >>> env = TransformedEnv(make_env("gym:Pendulum-v1"), ActionScaling())
    >>> env.action_spec.space.high
    tensor([1.])

    Args:
        in_keys_inv: the action of the environment, one key. Default: ``["action"]``. ``[]`` if the transform is only
            for stored data, with ``loc`` and ``scale``.
        out_keys_inv: key that the caller writes. Default: ``in_keys_inv``.
        in_keys: actions in stored data. Default: ``in_keys_inv``, or ``["action"]``.
        out_keys: keys of the scaled actions in stored data. Default: ``in_keys``.
        loc: value of the environment's action for 0: a number, or a tensor that broadcasts to the action.
        scale: distance of the value for 1 from ``loc``, likewise; not 0.
        standard_normal: whether actions are from -1 to 1; otherwise from 0 to 1.

    Attributes:
        loc, scale: the values in use; None until they are known.
        initialized: whether they are known.

    Raises:
        SpecError: several keys, only one of ``loc`` and ``scale``, or a scale of 0 were passed; or the environment's
            action has no finite bounds.
        StateError: ``loc`` and ``scale`` were not passed, and the transform belongs to no environment.
    """

    invertible = True

    def __init__(
        self,
        in_keys_inv: NestedKey | Sequence[NestedKey] | None = None,
        out_keys_inv: NestedKey | Sequence[NestedKey] | None = None,
        in_keys: NestedKey | Sequence[NestedKey] | None = None,
        out_keys: NestedKey | Sequence[NestedKey] | None = None,
        *,
        loc: float | torch.Tensor | None = None,
        scale: float | torch.Tensor | None = None,
        standard_normal: bool = True,
    ) -> None:
        keys = ["action"] if in_keys_inv is None else as_keys(in_keys_inv)
        if len(keys) > 1:
            raise SpecError(f"ActionScaling scales one action, found {keys}. Use one for each in a Compose.")
        if (loc is None) != (scale is None):
            raise SpecError("ActionScaling: pass both loc and scale, or neither.")
        if not keys and loc is None:
            raise SpecError(
                "ActionScaling(in_keys_inv=[]) is for stored data, which has no bounds: pass loc and scale."
            )
        in_keys = (keys or ["action"]) if in_keys is None else in_keys
        super().__init__(in_keys, out_keys, keys, out_keys_inv)
        self.standard_normal = bool(standard_normal)
        self._given = loc is not None
        self._limits: tuple[torch.Tensor, torch.Tensor] | None = None
        # Values that follow from an environment are not in the state_dict.
        for name, value in (("loc", loc), ("scale", scale)):
            self.register_buffer(name, None if value is None else _floats(value), persistent=self._given)
        if self._given and bool((self.scale == 0).any()):
            raise SpecError("ActionScaling: scale must not contain 0, because all actions would become the same.")

    @property
    def initialized(self) -> bool:
        """Whether ``loc`` and ``scale`` are known."""
        return self.loc is not None

    @property
    def needs_all_rows(self) -> bool:
        """Whether ``loc`` and ``scale`` may differ between the rows of a batch.

        True if they have several dimensions, of which the first may be the rows.
        """
        loc, scale = self._buffers["loc"], self._buffers["scale"]
        return loc is not None and scale is not None and max(loc.ndim, scale.ndim) > 1

    def shared_key(self) -> Any:
        numbers = (tuple(self.loc.flatten().tolist()), tuple(self.scale.flatten().tolist())) if self._given else None
        return (type(self), self.standard_normal, tuple(self.in_keys_inv), tuple(self.out_keys_inv), numbers)

    def caller_spec(self, leaf: Spec, batch_dims: int) -> Spec:
        if not has_floats(leaf):
            raise SpecError(
                f"ActionScaling needs an action of floats, found {leaf}. Remove it: the action has no scale."
            )
        low, high = one_row(leaf, batch_dims).bounds()
        bounded = bool((low.isfinite() & high.isfinite() & (high > low)).all())
        self._limits = (low, high) if bounded else None
        if self._given:
            if not bounded:
                return Unbounded(leaf.shape, device=leaf.device, dtype=leaf.dtype)
            edges = [self._apply_transform(bound) for bound in leaf.bounds()]
            low, high = torch.minimum(*edges), torch.maximum(*edges)
            return Bounded(low, high, shape=leaf.shape, device=leaf.device, dtype=leaf.dtype)
        if not bounded:
            raise SpecError(
                f"ActionScaling needs an action with two finite bounds, low below high; found {leaf}. Pass loc and "
                "scale, for example from data: ActionScaling.from_stats(mean=..., std=...)."
            )
        self.loc, self.scale = (high + low) / 2, (high - low) / 2
        return Bounded(
            -1.0 if self.standard_normal else 0.0, 1.0, shape=leaf.shape, device=leaf.device, dtype=leaf.dtype
        )

    def _known(self, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self._buffers["loc"] is None and self.container is not None and hasattr(self.container, "full_action_spec"):
            _ = self.container.full_action_spec  # sets loc and scale
        # Buffers are slow to read as attributes.
        loc, scale = self._buffers["loc"], self._buffers["scale"]
        if loc is None or scale is None:
            raise StateError(
                "ActionScaling: loc and scale depend on the bounds of an environment, but it has none. Pass both, or "
                "append it to an environment."
            )
        if loc.numel() > 1 and (value.ndim == 0 or value.shape[-1] != loc.shape[-1]):
            raise SpecError(
                f"ActionScaling: loc and scale have {loc.shape[-1]} numbers, but the action has the shape "
                f"{tuple(value.shape)}."
            )
        return (loc, scale) if loc.device == value.device else (loc.to(value.device), scale.to(value.device))

    def _apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        loc, scale = self._known(value)
        scaled = (value - loc) / scale
        return scaled if self.standard_normal else (scaled + 1) / 2

    def _inv_apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        loc, scale = self._known(value)
        action = (value if self.standard_normal else value * 2 - 1) * scale + loc
        if action.dtype is not value.dtype:
            action = action.to(value.dtype)
        if self._limits is None:
            return action
        low, high = self._limits  # rounding may exceed a bound
        if low.device != value.device:
            low, high = low.to(value.device), high.to(value.device)
        return torch.clamp(action, low, high)

    def inverse_kernel(self, leaf: Spec) -> Any:
        buffers, limits = self._buffers, self._limits
        loc, scale = buffers["loc"], buffers["scale"]
        used = [loc, scale, *(limits or ())]
        if leaf.dtype not in (torch.float32, torch.float64) or not leaf.ndim or not _are_of(used, leaf):
            return None
        # The arrays share the memory of the buffers, which load_state_dict writes into.
        factor, offset, *bounds = (tensor.detach().numpy() for tensor in (scale, loc, *(limits or ())))
        doubled = not self.standard_normal

        def inverse(action: Any) -> Any:
            if buffers["loc"] is not loc or buffers["scale"] is not scale or self._limits is not limits:
                return self._inv_apply_transform(torch.from_numpy(action)).numpy()
            result = (action * 2 - 1 if doubled else action) * factor
            result += offset
            if bounds:
                low, high = bounds  # the bound comes first, so that a zero keeps its sign as in torch
                np.maximum(low, result, out=result)
                np.minimum(high, result, out=result)
            return result

        return inverse

    def normalize(self, action: torch.Tensor) -> torch.Tensor:
        """Scale an action of the environment to one of the caller."""
        return self._apply_transform(action)

    def denormalize(self, action: torch.Tensor) -> torch.Tensor:
        """Turn an action of the caller into one of the environment."""
        return self._inv_apply_transform(action)

    @classmethod
    def from_stats(
        cls, *, mean: Any = None, std: Any = None, low: Any = None, high: Any = None, eps: float = 1e-6, **kwargs: Any
    ) -> ActionScaling:
        """Make a transform from statistics of the actions of a data set.

        Pass ``mean`` and ``std``, or ``low`` and ``high``.

        Args:
            mean: means, which become 0.
            std: standard deviations, which become 1.
            low: smallest actions, which become -1.
            high: largest actions, which become 1.
            eps: the smallest scale, for elements that are constant.
            **kwargs: more arguments of the class.

        Raises:
            SpecError: not exactly one of the two pairs was passed.
        """
        if (mean is None) != (std is None) or (low is None) != (high is None) or (mean is None) == (low is None):
            raise SpecError("ActionScaling.from_stats: pass either mean and std, or low and high.")
        if mean is not None:
            loc, scale = _floats(mean), _floats(std)
        else:
            low, high = _floats(low), _floats(high)
            loc, scale = (low + high) / 2, (high - low) / 2
        return cls(loc=loc, scale=scale.clamp_min(eps), **kwargs)

    @classmethod
    def from_metadata(cls, metadata: Any, **kwargs: Any) -> ActionScaling:
        """Make a transform from the metadata of a robotics data set.

        Args:
            metadata: an object with ``action_key``, and ``action_mean`` and ``action_std``, or ``action_low`` and
                ``action_high``.
            **kwargs: more arguments of the class.

        Raises:
            SpecError: the metadata has neither of the two pairs.
        """
        kwargs.setdefault("in_keys_inv", [metadata.action_key])
        if not kwargs["in_keys_inv"]:
            kwargs.setdefault("in_keys", [metadata.action_key])
        for first, second in (("mean", "std"), ("low", "high")):
            values: dict[str, Any] = {name: getattr(metadata, f"action_{name}", None) for name in (first, second)}
            if None not in values.values():
                return cls.from_stats(**values, **kwargs)
        raise SpecError(
            "ActionScaling.from_metadata: metadata needs action_mean and action_std, or action_low and action_high."
        )

    def _repr_keys(self) -> Any:
        return ("in_keys_inv", "out_keys_inv")


def _are_of(used: list[Any], leaf: Spec) -> bool:
    """Whether tensors on the CPU have an action's dtype and broadcast to its shape."""
    return all(
        number is not None
        and number.is_cpu
        and number.dtype is leaf.dtype
        and not number.requires_grad
        and (number.numel() == 1 or number.shape[-1] == leaf.shape[-1])
        and torch.broadcast_shapes(number.shape, leaf.shape) == leaf.shape  # type: ignore[no-untyped-call]
        for number in used
    )


def _floats(values: Any) -> torch.Tensor:
    value: torch.Tensor = torch.as_tensor(values, device=None if isinstance(values, torch.Tensor) else "cpu")
    return value if value.dtype.is_floating_point else value.to(torch.get_default_dtype())
