"""ActionScaling: actions on one scale, whatever bounds the environment has."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from steppe.errors import SpecError, StateError
from steppe.specs import Bounded, Spec, Unbounded
from steppe.transforms import as_keys

from .inverse import ActionInverse, one_row

__all__ = ["ActionScaling"]


class ActionScaling(ActionInverse):
    """Shows actions from -1 to 1 (or 0 to 1), and gives the environment ``action * scale + loc``.

    ``loc`` is the middle of the bounds of the environment's action and ``scale`` half their distance, unless both are
    given. Shape and dtype stay as they are. With given ones, the bounds that are shown are those of the environment
    on the new scale; unbounded actions stay unbounded. Called on stored data, it does the opposite: from actions of the
    environment to those on the scale.

    Args:
        in_keys_inv: the action of the environment, one; ``["action"]`` by default. ``[]`` for stored data alone, with
            ``loc`` and ``scale``.
        out_keys_inv: the key that the caller writes; the same by default.
        in_keys: the actions in stored data; those of ``in_keys_inv`` by default, or ``["action"]``.
        out_keys: where the scaled ones go; in their places by default.
        loc: what the caller's 0 stands for: a number, or a tensor that broadcasts to the action.
        scale: how far the caller's 1 is from it, likewise; not 0.
        standard_normal: from -1 to 1; otherwise from 0 to 1.

    Attributes:
        loc, scale: what is used; None as long as it is not known.
        initialized: whether it is known.

    Raises:
        SpecError: several keys; only one of ``loc`` and ``scale``; a scale of 0; or the environment's action is not
            bounded on both sides.
        StateError: neither is given, and it belongs to no environment.
    """

    invertible = True

    def __init__(
        self,
        in_keys_inv: Any = None,
        out_keys_inv: Any = None,
        in_keys: Any = None,
        out_keys: Any = None,
        *,
        loc: Any = None,
        scale: Any = None,
        standard_normal: bool = True,
    ) -> None:
        keys = ["action"] if in_keys_inv is None else as_keys(in_keys_inv)
        if len(keys) > 1:
            raise SpecError(f"ActionScaling scales one action, found {keys}. Put one for each into a Compose.")
        if (loc is None) != (scale is None):
            raise SpecError("ActionScaling: loc and scale are given both, or neither.")
        if not keys and loc is None:
            raise SpecError(
                "ActionScaling(in_keys_inv=[]) is for stored data alone, and then has no bounds to go by: give loc and "
                "scale."
            )
        in_keys = (keys or ["action"]) if in_keys is None else in_keys
        super().__init__(in_keys, out_keys, keys, out_keys_inv)
        self.standard_normal = bool(standard_normal)
        self._given = loc is not None
        self._limits: tuple[torch.Tensor, torch.Tensor] | None = None
        # What follows from an environment is not a part of the state.
        for name, value in (("loc", loc), ("scale", scale)):
            self.register_buffer(name, None if value is None else _floats(value), persistent=self._given)
        if self._given and bool((self.scale == 0).any()):
            raise SpecError("ActionScaling: no scale may be 0, which leaves nothing of the action.")

    @property
    def initialized(self) -> bool:
        """Whether ``loc`` and ``scale`` are known."""
        return self.loc is not None

    @property
    def needs_all_rows(self) -> bool:
        """Whether ``loc`` and ``scale`` have more than one dimension, which may be that of the rows of a batch."""
        loc, scale = self._buffers["loc"], self._buffers["scale"]
        return loc is not None and scale is not None and max(loc.ndim, scale.ndim) > 1

    def shared_key(self) -> Any:
        given = (tuple(self.loc.flatten().tolist()), tuple(self.scale.flatten().tolist())) if self._given else None
        return (type(self), self.standard_normal, tuple(self.in_keys_inv), tuple(self.out_keys_inv), given)

    def caller_spec(self, leaf: Spec, batch_dims: int) -> Spec:
        row = one_row(leaf, batch_dims)
        if not isinstance(row, (Bounded, Unbounded)) or row.dtype is None or not row.dtype.is_floating_point:
            raise SpecError(
                f"ActionScaling needs an action of floats, found {leaf}. Use ActionDiscretizer the other way."
            )
        low: Any
        high: Any
        low, high = (row.space.low, row.space.high) if isinstance(row, Bounded) else (None, None)
        bounded = low is not None and bool((low.isfinite() & high.isfinite() & (high > low)).all())
        self._limits = (low, high) if bounded else None
        if self._given:
            if not bounded:
                return Unbounded(leaf.shape, device=leaf.device, dtype=leaf.dtype)
            edges = [self._apply_transform(bound) for bound in (leaf.space.low, leaf.space.high)]
            low, high = torch.minimum(*edges), torch.maximum(*edges)
            return Bounded(low, high, shape=leaf.shape, device=leaf.device, dtype=leaf.dtype)
        if not bounded:
            raise SpecError(
                f"ActionScaling needs an action with two finite bounds, low below high; found {leaf}. Give loc and "
                "scale, for example of the data: ActionScaling.from_stats(mean=..., std=...)."
            )
        self.loc, self.scale = (high + low) / 2, (high - low) / 2
        return Bounded(
            -1.0 if self.standard_normal else 0.0, 1.0, shape=leaf.shape, device=leaf.device, dtype=leaf.dtype
        )

    def _known(self, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self._buffers["loc"] is None and self.container is not None and hasattr(self.container, "full_action_spec"):
            _ = self.container.full_action_spec  # works it out
        # Attributes that are buffers are slow to reach.
        loc, scale = self._buffers["loc"], self._buffers["scale"]
        if loc is None or scale is None:
            raise StateError(
                "ActionScaling: loc and scale follow from the bounds of an environment, and it belongs to none. Give "
                "both, or append it to an environment."
            )
        if loc.numel() > 1 and (value.ndim == 0 or value.shape[-1] != loc.shape[-1]):
            raise SpecError(
                f"ActionScaling: an action of shape {tuple(value.shape)}, and loc and scale for {loc.shape[-1]} "
                "numbers."
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
        low, high = self._limits  # a rounding error may be beyond a bound
        if low.device != value.device:
            low, high = low.to(value.device), high.to(value.device)
        return torch.clamp(action, low, high)

    def inverse_kernel(self, leaf: Spec) -> Any:
        buffers, limits = self._buffers, self._limits
        loc, scale = buffers["loc"], buffers["scale"]
        used = [loc, scale, *(limits or ())]
        if leaf.dtype not in (torch.float32, torch.float64) or not leaf.ndim or not _are_of(used, leaf):
            return None
        # These share their memory with the tensors, into which a state may be loaded.
        by, plus, *bounds = (one.detach().numpy() for one in (scale, loc, *(limits or ())))
        doubled = not self.standard_normal

        def inverse(action: Any) -> Any:
            if buffers["loc"] is not loc or buffers["scale"] is not scale or self._limits is not limits:
                return self._inv_apply_transform(torch.from_numpy(action)).numpy()
            found = (action * 2 - 1 if doubled else action) * by
            found += plus
            if bounds:
                low, high = bounds  # in the order that keeps the sign of a zero, as torch does
                np.maximum(low, found, out=found)
                np.minimum(high, found, out=found)
            return found

        return inverse

    def normalize(self, action: torch.Tensor) -> torch.Tensor:
        """From an action of the environment to one on the scale."""
        return self._apply_transform(action)

    def denormalize(self, action: torch.Tensor) -> torch.Tensor:
        """From an action on the scale to one of the environment."""
        return self._inv_apply_transform(action)

    @classmethod
    def from_stats(
        cls, *, mean: Any = None, std: Any = None, low: Any = None, high: Any = None, eps: float = 1e-6, **kwargs: Any
    ) -> ActionScaling:
        """Make one from what is known of the actions in a data set.

        Args:
            mean: means, with ``std``: they become 0 and 1.
            std: standard deviations.
            low: least actions, with ``high``: they become -1 and 1.
            high: largest actions.
            eps: the smallest scale, for numbers that never change.
            **kwargs: for the class.

        Raises:
            SpecError: not exactly one of the two pairs is given.
        """
        if (mean is None) != (std is None) or (low is None) != (high is None) or (mean is None) == (low is None):
            raise SpecError("ActionScaling.from_stats: give mean and std, or low and high, and not both pairs.")
        if mean is not None:
            loc, scale = _floats(mean), _floats(std)
        else:
            low, high = _floats(low), _floats(high)
            loc, scale = (low + high) / 2, (high - low) / 2
        return cls(loc=loc, scale=scale.clamp_min(eps), **kwargs)

    @classmethod
    def from_metadata(cls, metadata: Any, **kwargs: Any) -> ActionScaling:
        """Make one from the metadata of a data set of robots.

        Args:
            metadata: an object with ``action_key``, and ``action_mean`` and ``action_std``, or ``action_low`` and
                ``action_high``.
            **kwargs: for the class.

        Raises:
            SpecError: it has neither of the two pairs.
        """
        kwargs.setdefault("in_keys_inv", [metadata.action_key])
        if not kwargs["in_keys_inv"]:
            kwargs.setdefault("in_keys", [metadata.action_key])
        for first, second in (("mean", "std"), ("low", "high")):
            found: dict[str, Any] = {name: getattr(metadata, f"action_{name}", None) for name in (first, second)}
            if None not in found.values():
                return cls.from_stats(**found, **kwargs)
        raise SpecError(
            "ActionScaling.from_metadata: there is neither action_mean and action_std, nor action_low and action_high."
        )

    def _repr_keys(self) -> Any:
        return ("in_keys_inv", "out_keys_inv")


def _are_of(used: list[Any], leaf: Spec) -> bool:
    """Whether tensors are of the dtype of an action, on the CPU, and broadcast to its shape as it is."""
    return all(
        one is not None
        and one.is_cpu
        and one.dtype is leaf.dtype
        and not one.requires_grad
        and (one.numel() == 1 or one.shape[-1] == leaf.shape[-1])
        and torch.broadcast_shapes(one.shape, leaf.shape) == leaf.shape  # type: ignore[no-untyped-call]
        for one in used
    )


def _floats(given: Any) -> torch.Tensor:
    value: torch.Tensor = torch.as_tensor(given, device=None if isinstance(given, torch.Tensor) else "cpu")
    return value if value.dtype.is_floating_point else value.to(torch.get_default_dtype())
