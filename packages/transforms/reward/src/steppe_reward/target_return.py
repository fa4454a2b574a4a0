"""TargetReturn: the target return, for policies that are conditioned on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from tensordict import NestedKey, TensorDictBase

from steppe.errors import SpecError
from steppe.specs import CPU, Unbounded
from steppe.transforms import EnvSpecs, Hooks, PlannedTransform, RowHooks, as_key, as_keys, replace_last, set_beside

__all__ = ["TargetReturn"]

_MODES = ("reduce", "constant")


class TargetReturn(PlannedTransform):
    """Add the remaining target return, for policies that are conditioned on it.

    For each reward, the transform adds an entry of the same shape and dtype at the same level. A reset sets it to
    ``target_return``; each step subtracts its reward, or keeps the entry unchanged. The entry is an observation and a
    state: a step reads it from the root, so that callers can edit it.

    >>> from steppe import TargetReturn, TransformedEnv, make_env
    >>> env = TransformedEnv(make_env("gym:CartPole-v1"), TargetReturn(10.0))
    >>> env.rollout(3)["next", "target_return"].flatten()
    tensor([9., 8., 7.])

    Args:
        target_return: the target return of an episode.
        mode: ``"reduce"`` subtracts each reward, ``"constant"`` keeps the target.
        in_keys: rewards. Default: all rewards of the environment, including those of groups of agents.
        out_keys: keys of the targets, as many as ``in_keys``. Default: ``target_return`` at the level of each reward.
        reset_key: mask of the rows that are reset, if done entries and rewards are at different levels.

    Raises:
        SpecError: ``mode`` is unknown, one of ``in_keys`` is not a reward of the environment, ``reset_key`` is not a
            reset mask of the environment, or two targets have the same key.
    """

    over_time = True

    def __init__(
        self,
        target_return: float,
        mode: str = "reduce",
        in_keys: NestedKey | Sequence[NestedKey] | None = None,
        out_keys: NestedKey | Sequence[NestedKey] | None = None,
        reset_key: NestedKey | None = None,
    ) -> None:
        super().__init__()
        if mode not in _MODES:
            raise SpecError(f"TargetReturn: mode must be 'reduce' or 'constant', found {mode!r}.")
        try:
            self.target_return = float(target_return)
        except (TypeError, ValueError):
            raise SpecError(f"TargetReturn: target_return must be a number, found {target_return!r}.") from None
        self.mode = mode
        self.given_in = None if in_keys is None else as_keys(in_keys)
        self.given_out = None if out_keys is None else as_keys(out_keys)
        self.given_mask = None if reset_key is None else as_key(reset_key)

    @property
    def in_keys(self) -> list[Any]:
        """The rewards; those of the environment if none were passed."""
        if self.given_in is not None:
            return list(self.given_in)
        env = self.parent
        return ["reward"] if env is None else list(env.reward_keys)

    @in_keys.setter
    def in_keys(self, keys: Any) -> None:
        self.given_in = None if keys is None else as_keys(keys)
        self.empty_cache()

    @property
    def out_keys(self) -> list[Any]:
        """The keys of the targets."""
        if self.given_out is not None:
            return list(self.given_out)
        return [replace_last(key, "target_return") for key in self.in_keys]

    @out_keys.setter
    def out_keys(self, keys: Any) -> None:
        self.given_out = None if keys is None else as_keys(keys)
        self.empty_cache()

    @property
    def reset_key(self) -> Any:
        """The mask that was passed; None for those of the levels of the rewards."""
        return self.given_mask

    def _keys(self, specs: EnvSpecs) -> list[tuple[Any, Any]]:
        rewards = list(specs.reward.keys(include_nested=True, leaves_only=True))
        keys = rewards if self.given_in is None else self.given_in
        missing = [key for key in keys if key not in rewards]
        if missing:
            raise SpecError(f"TargetReturn: the environment has no reward {missing[0]!r}. It has {rewards}.")
        out_keys = [replace_last(key, "target_return") for key in keys] if self.given_out is None else self.given_out
        if len(out_keys) != len(keys):
            raise SpecError(f"TargetReturn: {len(keys)} rewards, {keys}, need as many out_keys, found {out_keys}.")
        if len(set(out_keys)) != len(out_keys):
            raise SpecError(f"TargetReturn: the targets of {keys} would share a key, {out_keys}. Give out_keys.")
        masks = [group.reset_key for group in specs.groups]
        if self.given_mask is not None and self.given_mask not in masks:
            raise SpecError(f"TargetReturn: the environment has no reset mask {self.given_mask!r}. It has {masks}.")
        return list(zip(keys, out_keys, strict=True))

    def transform_specs(self, specs: EnvSpecs) -> EnvSpecs:
        pairs = self._keys(specs)
        specs = specs.copy()
        for key, out_key in pairs:
            reward = specs.reward[key]
            leaf = Unbounded(shape=reward.shape, device=reward.device, dtype=reward.dtype)
            for spec in (specs.observation, specs.state):
                set_beside(spec, out_key, leaf, specs.reward)
        return specs

    def hooks(self, specs: EnvSpecs) -> Hooks:
        pairs, target, reduce = self._keys(specs), self.target_return, self.mode == "reduce"
        leaves = [(out_key, specs.reward[key]) for key, out_key in pairs]
        batch_dims, mask_key = len(specs.batch_size), self.given_mask

        def step(td: TensorDictBase, following: TensorDictBase) -> TensorDictBase:
            for key, out_key in pairs:
                before = self.kept_entry(out_key, td)
                following.set(out_key, before - following.get(key) if reduce else before.clone())
            return following

        def reset(td: TensorDictBase | None, fresh: TensorDictBase) -> TensorDictBase:
            for out_key, leaf in leaves:
                shape = (*fresh.batch_size, *leaf.shape[batch_dims:])
                device = leaf.device or fresh.device or CPU
                value = torch.full(shape, target, dtype=leaf.dtype, device=device)
                if mask_key is not None and td is not None:
                    mask, before = td.get(mask_key, None), td.get(out_key, None)
                    if mask is not None and before is not None:
                        shaped = mask.reshape(mask.shape + (1,) * (value.ndim - mask.ndim))
                        value = torch.where(shaped, value, before)
                fresh.set(out_key, value)
            return fresh

        rows = None if mask_key is not None else RowHooks(_Kernel(pairs, target, reduce))
        if rows is not None:
            rows.root_inputs = [out_key for _, out_key in pairs]
            rows.reads = [key for key, _ in pairs]
        return Hooks(step=step, reset=reset, reads_root=[out_key for _, out_key in pairs], rows=rows)

    def shared_key(self) -> Any:
        keys_asked = (None if keys is None else tuple(keys) for keys in (self.given_in, self.given_out))
        return (type(self), self.target_return, self.mode, self.given_mask, *keys_asked)

    def _repr_keys(self) -> Any:
        return ("target_return", "mode")


class _Kernel:
    """Numpy version of the transform, for blocks of rows."""

    def __init__(self, pairs: list[tuple[Any, Any]], target: float, reduce: bool) -> None:
        self.pairs, self.target, self.reduce = pairs, target, reduce

    def __call__(self, root: Any, following: Any) -> Any:
        targets = [(root[out_key], following[key], following[out_key]) for key, out_key in self.pairs]
        target, reduce = self.target, self.reduce

        def step() -> bool:
            for before, reward, after in targets:
                if reduce:
                    np.subtract(before, reward, out=after)
                else:
                    after[...] = before
            return False

        def reset(at: Any) -> None:
            for before, _, _ in targets:
                for row in at:
                    before[row] = target

        return step, reset
