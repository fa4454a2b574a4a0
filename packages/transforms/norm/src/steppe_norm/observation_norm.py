"""ObservationNorm: normalize observations with fixed statistics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tensordict import NestedKey
from torch.nn.parameter import UninitializedBuffer

from steppe.errors import SpecError, StateError
from steppe.specs import Composite
from steppe.transforms import EnvSpecs, Hooks, ObservationTransform
from steppe_norm.affine import affine_leaf, forward, inverse, number_of
from steppe_norm.affine_rows import affine_rows

__all__ = ["ObservationNorm"]


class ObservationNorm(ObservationTransform):
    """Normalize observations with fixed statistics: ``observation * scale + loc``.

    Shapes stay the same, integers become floats, and bools count as 0 and 1. Observations of resets and steps are
    normalized in the same way.

    >>> from steppe import ObservationNorm, TransformedEnv, make_env
    >>> env = TransformedEnv(make_env("gym:CartPole-v1"), ObservationNorm(loc=0.0, scale=10.0, in_keys=["observation"]))
    >>> bool(env.reset()["observation"].abs().max() < 0.5)
    True

    Args:
        loc: a number, or a tensor that broadcasts to the observations. If ``loc`` and ``scale`` are None,
            :meth:`init_stats` estimates them, or ``load_state_dict`` loads them.
        scale: a number or tensor. A number is at least ``eps``.
        in_keys: entries to normalize, all with the same statistics; rewards are allowed. Default: ``"observation"`` and
            ``"pixels"`` if the environment or its groups of agents have them.
        out_keys: keys to write, as many as ``in_keys``. Default: ``in_keys``.
        in_keys_inv: actions and states that the environment reads; the caller writes normalized ones.
        out_keys_inv: keys that the caller writes. Default: ``in_keys_inv``.
        standard_normal: normalize as ``(observation - loc) / scale`` instead.
        eps: lower limit of ``scale``. Default: the machine epsilon of its dtype if ``scale`` is a floating-point
            tensor, or 1e-6.

    Attributes:
        loc, scale, standard_normal: buffers.

    Raises:
        SpecError: only one of ``loc`` and ``scale`` is passed, a scale is negative, or the environment lacks an entry.
        StateError: at a step, if ``loc`` and ``scale`` are not known yet.
    """

    keeps_nothing = True

    def __init__(
        self,
        loc: float | torch.Tensor | None = None,
        scale: float | torch.Tensor | None = None,
        in_keys: NestedKey | Sequence[NestedKey] | None = None,
        out_keys: NestedKey | Sequence[NestedKey] | None = None,
        in_keys_inv: NestedKey | Sequence[NestedKey] | None = None,
        out_keys_inv: NestedKey | Sequence[NestedKey] | None = None,
        standard_normal: bool | torch.Tensor = False,
        eps: float | None = None,
    ) -> None:
        super().__init__(in_keys, out_keys, in_keys_inv, out_keys_inv)
        if (loc is None) is not (scale is None):
            raise SpecError(
                f"ObservationNorm: pass both loc and scale, or neither; found loc={loc!r}, scale={scale!r}."
            )
        smallest = 1e-6
        if isinstance(scale, torch.Tensor) and scale.dtype.is_floating_point:
            smallest = torch.finfo(scale.dtype).eps
        self.eps = smallest if eps is None else float(eps)
        self.register_buffer("standard_normal", torch.as_tensor(standard_normal, device=torch.device("cpu")))
        if loc is None:
            self.register_buffer("loc", UninitializedBuffer(device=torch.device("cpu")))  # type: ignore[call-arg]
            self.register_buffer("scale", UninitializedBuffer(device=torch.device("cpu")))  # type: ignore[call-arg]
        else:
            self.register_buffer("loc", number_of("ObservationNorm", "loc", loc))
            self.register_buffer("scale", number_of("ObservationNorm", "scale", scale, at_least=self.eps))

    @property
    def initialized(self) -> bool:
        """Whether ``loc`` and ``scale`` are known."""
        return not isinstance(self.loc, UninitializedBuffer)

    @property
    def needs_all_rows(self) -> bool:
        """Whether ``loc`` and ``scale`` may differ between the rows of a batch.

        True if they have several dimensions, of which the first may be the rows.
        """
        return self.initialized and max(self.loc.ndim, self.scale.ndim) > 1

    def _numbers(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        buffers: dict[str, Any] = self._buffers
        loc = buffers["loc"]
        if isinstance(loc, UninitializedBuffer):
            raise StateError(
                "ObservationNorm: loc and scale are not known yet. Call init_stats(num_iter) (of several transforms, "
                "in their order) or load_state_dict, or pass loc and scale to the constructor."
            )
        return loc, buffers["scale"], buffers["standard_normal"]

    def _apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        loc, scale, standard_normal = self._numbers()
        if value.dtype is torch.bool:
            value = value.to(scale.dtype)  # torch cannot subtract from bools
        return forward(value, loc, scale, standard_normal)

    def _inv_apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        loc, scale, standard_normal = self._numbers()
        if value.dtype is torch.bool:
            value = value.to(scale.dtype)
        return inverse(value, loc, scale, standard_normal)

    def hooks(self, specs: EnvSpecs) -> Hooks:
        hooks = super().hooks(specs)
        if self.initialized:
            hooks.rows = affine_rows(specs, self.key_pairs, self._numbers)
        return hooks

    # -- specs ----------------------------------------------------------------------------------------------------

    def transform_specs(self, specs: EnvSpecs) -> EnvSpecs:
        existing = [key for spec in (specs.observation, specs.reward) for key in spec.keys(True, True)]
        for key in self.in_keys:
            if key not in existing and not self.missing_tolerance:
                raise SpecError(f"ObservationNorm: the environment has no entry {key!r}. It has {existing}.")
        return super().transform_specs(specs)

    def _spec(self, spec: Composite, pairs: Any, *, moves: bool) -> Composite:
        for key, out_key in pairs:
            leaf = spec.get(key, None)
            # Specs change only when loc and scale are known.
            if leaf is not None and self.initialized:
                if moves and key != out_key:
                    del spec[key]
                spec.set(out_key, affine_leaf(leaf, self._apply_transform))
            elif leaf is not None and key != out_key:
                spec.set(out_key, spec.pop(key) if moves else leaf.clone())
        return spec

    def transform_observation_spec(self, observation_spec: Composite) -> Composite:
        return self._spec(observation_spec, self.key_pairs, moves=False)

    def transform_reward_spec(self, reward_spec: Composite) -> Composite:
        return self._spec(reward_spec, self.key_pairs, moves=False)

    def transform_action_spec(self, action_spec: Composite) -> Composite:
        return self._spec(action_spec, zip(self.in_keys_inv, self.out_keys_inv, strict=True), moves=True)

    def transform_state_spec(self, state_spec: Composite) -> Composite:
        return self._spec(state_spec, zip(self.in_keys_inv, self.out_keys_inv, strict=True), moves=True)

    # -- estimating loc and scale --------------------------------------------------------------------------------------

    def init_stats(
        self,
        num_iter: int,
        reduce_dim: int | tuple[int, ...] = 0,
        cat_dim: int | None = None,
        key: Any = None,
        keep_dims: tuple[int, ...] | None = None,
    ) -> None:
        """Estimate ``loc`` and ``scale`` from random rollouts.

        With them, observations have mean 0 and standard deviation 1. Rollouts of the environment before the transform
        are concatenated until they have ``num_iter`` frames. Mean and standard deviation are taken over ``reduce_dim``
        of data ``[*B, T, ...]``.

        Args:
            num_iter: number of frames.
            reduce_dim: dimensions to reduce: 0, the time, for a single environment; ``(0, 1)`` for a batch.
            cat_dim: dimension to concatenate rollouts along, one of ``reduce_dim``. Default: ``reduce_dim``.
            key: the entry to read. Default: the only key of ``in_keys``.
            keep_dims: dimensions of ``reduce_dim`` that ``loc`` and ``scale`` keep with size 1.

        Raises:
            SpecError: ``cat_dim`` or ``keep_dims`` is not among ``reduce_dim``, there are several ``in_keys`` and no
                ``key``, or the estimates are not finite.
            StateError: ``loc`` and ``scale`` are known already, or the transform has no environment.
        """
        dims = (reduce_dim,) if isinstance(reduce_dim, int) else tuple(reduce_dim)
        if cat_dim is None and len(dims) == 1:
            cat_dim = dims[0]
        if cat_dim not in dims:
            raise SpecError(
                f"ObservationNorm.init_stats: cat_dim must be one of reduce_dim={reduce_dim}, found {cat_dim}."
            )
        if self.initialized:
            raise StateError(f"ObservationNorm.init_stats: loc and scale are known: {self.loc}, {self.scale}.")
        parent = self.parent
        if parent is None:
            raise StateError("ObservationNorm.init_stats: the transform has no environment. Append it to one first.")
        if key is None:
            if len(self.in_keys) != 1:
                raise SpecError(f"ObservationNorm.init_stats: pass the key to read, one of {self.in_keys}.")
            key = self.in_keys[0]
        frames, parts = 0, []
        while frames < num_iter:
            data = parent.rollout(max_steps=num_iter)
            frames += data.numel()
            parts.append(data.get(key))
        values = torch.cat(parts, cat_dim)
        if not values.is_floating_point():
            values = values.to(torch.get_default_dtype())
        dims = tuple(sorted(_from_the_end(dim, values.ndim) for dim in dims))
        kept = [_from_the_end(dim, values.ndim) for dim in keep_dims or ()]
        if not set(kept) <= set(dims):
            raise SpecError(
                f"ObservationNorm.init_stats: keep_dims={keep_dims} are not all in reduce_dim={reduce_dim}."
            )
        loc, scale = values.mean(dims, keepdim=True), values.std(dims, keepdim=True)
        for dim in dims:
            if dim not in kept:
                loc, scale = loc.squeeze(dim), scale.squeeze(dim)
        if not bool(self.standard_normal):
            scale = 1 / scale.clamp_min(self.eps)
            loc = -loc * scale
        for name, tensor in (("loc", loc), ("scale", scale)):
            if not bool(tensor.isfinite().all()):
                raise SpecError(f"ObservationNorm.init_stats: {name} is not finite: {tensor}. Collect more frames.")
        self._set(loc, scale.clamp_min(self.eps))

    def _set(self, loc: torch.Tensor, scale: torch.Tensor) -> None:
        # In place, because clones share these buffers.
        for buffer, value in ((self.loc, loc), (self.scale, scale)):
            if isinstance(buffer, UninitializedBuffer):
                buffer.materialize(value.shape, dtype=value.dtype, device=value.device)
            buffer.copy_(value)
        self.empty_cache()

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any, **kwargs: Any) -> None:
        loc, scale = state_dict.get(f"{prefix}loc"), state_dict.get(f"{prefix}scale")
        known = all(
            isinstance(value, torch.Tensor) and not isinstance(value, UninitializedBuffer) for value in (loc, scale)
        )
        if known and not self.initialized:
            self._set(loc, scale)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
        self.empty_cache()  # specs depend on loc and scale


def _from_the_end(dim: int, ndim: int) -> int:
    return dim if dim < 0 else dim - ndim
