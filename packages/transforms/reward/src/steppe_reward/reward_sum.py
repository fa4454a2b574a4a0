"""RewardSum: the return of the running episode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import torch
from tensordict import NestedKey, TensorDictBase

from steppe.errors import SpecError
from steppe.specs import CPU, Composite, Unbounded, below_next
from steppe.storage import Layout, clear_rows, find_entry, no_storage_reason
from steppe.transforms import (
    EnvSpecs,
    Hooks,
    PlannedTransform,
    RowArrays,
    RowHooks,
    as_key,
    as_keys,
    first_steps,
    keys_property,
    names_of,
    replace_last,
    set_beside,
    time_dim_of,
    write,
)

__all__ = ["RewardSum"]

Key: TypeAlias = "str | tuple[str, ...]"


class RewardSum(PlannedTransform):
    """Sum up the rewards of each episode.

    For each reward it adds an entry of the same shape and dtype at the same level: the sum since the reset, 0 after a
    reset. The sum is an observation and a state, because a step reads it from the root. The reset mask of the level, or
    of the nearest one above, resets the sum of a row.

    On stored data, :meth:`forward` sums up the rewards of a batch of steps.

    >>> from steppe import RewardSum, TransformedEnv, make_env
    >>> env = TransformedEnv(make_env("gym:CartPole-v1"), RewardSum())
    >>> env.rollout(5)["next", "episode_reward"][-1]
    tensor([5.])

    Args:
        in_keys: rewards to sum up. Default: all rewards of the environment. For stored data, the entries there, such as
            ``[("next", "reward")]``.
        out_keys: keys of the sums, as many. Default: ``episode_<name>`` at the level of each reward.
        reset_keys: reset mask of each of ``out_keys``, if done entries and rewards are at different levels.
        reward_spec: add the sums to the reward spec instead of the observation spec.

    Raises:
        SpecError: one of ``in_keys`` is no reward of the environment, one of ``reset_keys`` is none of its reset masks,
            or the lists differ in length.
    """

    over_time = True

    def __init__(
        self,
        in_keys: NestedKey | Sequence[NestedKey] | None = None,
        out_keys: NestedKey | Sequence[NestedKey] | None = None,
        reset_keys: NestedKey | Sequence[NestedKey] | None = None,
        *,
        reward_spec: bool = False,
    ) -> None:
        super().__init__(in_keys)
        self.out_keys = out_keys
        self.reset_keys = None if reset_keys is None else as_keys(reset_keys)
        self.reward_spec = reward_spec
        if in_keys is not None:
            self._check_length("out_keys", self.out_keys)
            if self.reset_keys is not None:
                self._check_length("reset_keys", self.reset_keys)

    def _check_length(self, name: str, keys: list[Key]) -> None:
        if len(keys) != len(self.in_keys):
            raise SpecError(
                f"RewardSum: {name} and in_keys must have the same length, found {keys} and {self.in_keys}."
            )

    out_keys = keys_property("out_keys", found=lambda self: [_sum_key(key) for key in self.in_keys])

    def default_keys(self, specs: EnvSpecs | None) -> list[Key]:
        return ["reward"] if specs is None else list(specs.reward.keys(include_nested=True, leaves_only=True))

    def _pairs(self, specs: EnvSpecs) -> list[tuple[Key, Key]]:
        """Return the keys of the rewards and of their sums; check that the environment has the rewards and masks."""
        rewards = list(specs.reward.keys(include_nested=True, leaves_only=True))
        in_keys, assigned, *_ = self.given_keys()
        keys = rewards if in_keys is None else list(in_keys)
        unknown = [key for key in keys if specs.reward.get(key, None) is None]
        if unknown:
            raise SpecError(f"RewardSum: {unknown[0]!r} is no reward of the environment, which has {rewards}.")
        masks = [group.reset_key for group in specs.groups]
        stray = [key for key in self.reset_keys or () if key not in masks]
        if stray:
            raise SpecError(f"RewardSum: {stray[0]!r} is no reset mask of the environment, which takes {masks}.")
        out_keys = list(assigned or ()) or [_sum_key(key) for key in keys]
        if len(out_keys) != len(keys):
            raise SpecError(f"RewardSum: {len(keys)} rewards, {keys}, need as many out_keys, found {out_keys}.")
        return list(zip(keys, out_keys, strict=True))

    def specs_around(self, **specs_by_kind: Composite) -> EnvSpecs:
        specs = super().specs_around(**specs_by_kind)
        if self.parent is None and "reward" not in specs_by_kind:
            leaf = specs.reward["reward"]
            specs = specs.changed(reward=Composite(dict.fromkeys(self.in_keys, leaf), shape=specs.batch_size))
        return specs

    def transform_specs(self, specs: EnvSpecs) -> EnvSpecs:
        pairs = self._pairs(specs)
        specs = specs.copy()
        for key, out_key in pairs:
            reward = specs.reward[key]
            leaf = Unbounded(shape=reward.shape, device=reward.device, dtype=reward.dtype)
            for spec in (specs.reward if self.reward_spec else specs.observation, specs.state):
                set_beside(spec, out_key, leaf, specs.reward)
        return specs

    def hooks(self, specs: EnvSpecs) -> Hooks:
        pairs = self._pairs(specs)
        leaves = [(out_key, specs.reward[key]) for key, out_key in pairs]
        batch_dims = len(specs.batch_size)
        masks = self.reset_keys

        def step(td: TensorDictBase, following: TensorDictBase) -> TensorDictBase:
            for key, out_key in pairs:
                write(following, out_key, self.kept_entry(out_key, td) + find_entry(following, key))
            return following

        def reset(td: TensorDictBase | None, fresh: TensorDictBase) -> TensorDictBase:
            lead = fresh.batch_size
            for i, (out_key, leaf) in enumerate(leaves):
                shape = (*lead, *leaf.shape[batch_dims:])
                zero = torch.zeros(shape, dtype=leaf.dtype, device=leaf.device or fresh.device or CPU)
                if masks is not None and td is not None:
                    mask, before = td.get(masks[i], None), td.get(out_key, None)
                    if mask is not None and before is not None:
                        shaped = mask.reshape(mask.shape + (1,) * (zero.ndim - mask.ndim))
                        zero = torch.where(shaped, zero, before)
                fresh.set(out_key, zero)
            return fresh

        sums = [out_key for _, out_key in pairs]
        return Hooks(step=step, reset=reset, reads_root=sums, rows=self._row_hooks(pairs, specs))

    def shared_key(self) -> object:
        masks = None if self.reset_keys is None else tuple(self.reset_keys)
        return (type(self), self.reward_spec, self.given_keys(), masks)

    def _row_hooks(self, pairs: list[tuple[Key, Key]], specs: EnvSpecs) -> RowHooks | None:
        if self.reset_keys is not None or self.reward_spec or no_storage_reason(specs.reward) is not None:
            return None
        dtypes = {field.key: field.numpy_dtype for field in Layout.of(specs.reward, ()).fields}
        if any(dtypes[key] is None for key, _ in pairs):
            return None

        def bind(root: RowArrays, following: RowArrays) -> tuple[Callable[[], bool], Callable[[Sequence[int]], None]]:
            sums = [(root[out_key], following[key], following[out_key]) for key, out_key in pairs]

            def step() -> bool:
                for before, reward, after in sums:
                    np.add(before, reward, out=after)
                return False

            def reset(at: Sequence[int]) -> None:
                for before, _, _ in sums:
                    clear_rows(before, at)

            return step, reset

        return RowHooks(bind, root_inputs=[out_key for _, out_key in pairs], reads=[key for key, _ in pairs])

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Sum up the rewards of a batch of steps over time, separately for each episode.

        The time dimension is the one of that name, or the last one. Episodes end as :func:`first_steps` says; if the
        data does not say where, all steps belong to one episode.

        Args:
            tensordict: data ``[*B, T]`` with the entries ``in_keys``, at the root or only under ``"next"``. There, the
                root gets the sums before each step, as in an environment.

        Returns:
            ``tensordict`` with the sums at ``out_keys``.

        Raises:
            KeyError: a reward is missing.
            SpecError: the data has no batch dimension.
        """
        time = time_dim_of(tensordict, "RewardSum")
        for pair, (key, out_key) in zip(self.key_pairs, self.pairs_in(tensordict), strict=True):
            reward = find_entry(tensordict, key)
            if reward is None:
                self.missing_entry(key, tensordict)
                continue
            begins = self._begins(tensordict, key).unbind(-1)
            total, before, sums = torch.zeros_like(reward.select(time, 0)), [], []
            for first, now in zip(begins, reward.unbind(time), strict=True):
                first = first.reshape(first.shape + (1,) * (total.ndim - first.ndim))
                before.append(torch.where(first, torch.zeros_like(total), total))
                total = before[-1] + now
                sums.append(total)
            tensordict.set(out_key, torch.stack(sums, time))
            if out_key != pair[1]:
                tensordict.set(pair[1], torch.stack(before, time))
        return tensordict

    def _begins(self, data: TensorDictBase, key: Key) -> torch.Tensor:
        """Return which steps begin an episode of a reward, ``[*B, T]``."""
        names = names_of(key)
        levels = [as_key((*names[1:depth], "done")) for depth in range(len(names) - 1, 0, -1)]
        if names[0] != "next":  # the data is the content of "next"
            levels = [as_key((*names[:depth], "done")) for depth in range(len(names) - 1, -1, -1)]
            data = data.empty().update({"next": data, **data.select(("collector", "traj_ids"), strict=False)})
        done = next((key for key in levels if find_entry(data, below_next(key)) is not None), "done")
        try:
            return first_steps(data, "RewardSum", done)
        except KeyError:
            begins = torch.zeros(data.batch_size, dtype=torch.bool, device=data.device or CPU)
            begins = begins.movedim(time_dim_of(data, "RewardSum"), -1)
            begins[..., 0] = True
            return begins


def _sum_key(key: Key) -> Key:
    return replace_last(key, f"episode_{names_of(key)[-1]}")
