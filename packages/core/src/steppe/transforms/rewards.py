"""RewardSum: the return of the running episode."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from steppe.errors import SpecError
from steppe.specs import CPU, Unbounded
from steppe.storage import Layout, entries, storage_problem
from steppe.transforms.compiled.hooks import EnvSpecs, Hooks, RowHooks, set_beside
from steppe.transforms.compiled.planned import PlannedTransform
from steppe.transforms.keys import as_keys, names_of, replace_last

__all__ = ["RewardSum"]


class RewardSum(PlannedTransform):
    """Adds up the rewards of each episode.

    Adds, for each reward, an entry of its shape and dtype beside it: the sum since the reset, 0 after it. It is an
    observation, and a state: a step reads it from the root. The reset masks of its level (or of one above) decide which
    rows begin anew.

    Args:
        in_keys: rewards to add up; by default all of the environment.
        out_keys: where the sums go, one for each; by default ``episode_<name>`` beside each reward.
        reset_keys: masks that decide for each of ``out_keys``, where done entries are at other levels than rewards.

    Raises:
        SpecError: a key of ``in_keys`` is no reward of the environment, or the numbers of keys differ.
    """

    def __init__(self, in_keys: Any = None, out_keys: Any = None, reset_keys: Any = None) -> None:
        super().__init__()
        self.in_keys = as_keys(in_keys)
        self.out_keys = as_keys(out_keys) if out_keys is not None else [_sum_key(key) for key in self.in_keys]
        self.reset_keys = None if reset_keys is None else as_keys(reset_keys)
        for name in ("out_keys", "reset_keys"):
            found = getattr(self, name)
            if found is not None and self.in_keys and len(found) != len(self.in_keys):
                raise SpecError(f"RewardSum: {name} must have the length of in_keys, found {found} for {self.in_keys}.")

    def _keys(self, specs: EnvSpecs) -> list[tuple[Any, Any]]:
        rewards = list(specs.reward.keys(include_nested=True, leaves_only=True))
        keys = self.in_keys or rewards
        unknown = [key for key in keys if specs.reward.get(key, None) is None]
        if unknown:
            raise SpecError(f"RewardSum: {unknown[0]!r} is no reward of the environment, which has {rewards}.")
        out_keys = self.out_keys or [_sum_key(key) for key in keys]
        if len(out_keys) != len(keys):
            raise SpecError(f"RewardSum: out_keys must have the length of the rewards {keys}, found {out_keys}.")
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
        pairs = self._keys(specs)
        leaves = [(out_key, specs.reward[key]) for key, out_key in pairs]
        batch_dims = len(specs.batch_size)
        flat = all(type(key) is str and type(out_key) is str for key, out_key in pairs)

        def step(td: TensorDictBase, following: TensorDictBase) -> TensorDictBase:
            if flat and type(td) is TensorDict and type(following) is TensorDict and not following.is_locked:
                root, level = entries(td), entries(following)
                for key, out_key in pairs:
                    before = root.get(out_key)
                    if before is None:
                        raise self._no_sum(out_key, td)
                    level[out_key] = before + level[key]
                return following
            for key, out_key in pairs:
                before = td.get(out_key, None)
                if before is None:
                    raise self._no_sum(out_key, td)
                following.set(out_key, before + following.get(key))
            return following

        def reset(td: TensorDictBase | None, fresh: TensorDictBase) -> TensorDictBase:
            lead = fresh.batch_size
            for i, (out_key, leaf) in enumerate(leaves):
                shape = (*lead, *leaf.shape[batch_dims:])
                zero = torch.zeros(shape, dtype=leaf.dtype, device=leaf.device or fresh.device or CPU)
                if self.reset_keys is not None and td is not None:
                    mask, before = td.get(self.reset_keys[i], None), td.get(out_key, None)
                    if mask is not None and before is not None:
                        shaped = mask.reshape(mask.shape + (1,) * (zero.ndim - mask.ndim))
                        zero = torch.where(shaped, zero, before)
                fresh.set(out_key, zero)
            return fresh

        return Hooks(step=step, reset=reset, rows=self._row_hooks(pairs, specs))

    def shared_key(self) -> Any:
        return (type(self), tuple(self.in_keys), tuple(self.out_keys))

    def _row_hooks(self, pairs: list[tuple[Any, Any]], specs: EnvSpecs) -> RowHooks | None:
        if self.reset_keys is not None or storage_problem(specs.reward) is not None:
            return None
        dtypes = {field.key: field.numpy_dtype for field in Layout.of(specs.reward, ()).fields}
        if any(dtypes[key] is None for key, _ in pairs):
            return None

        def bind(root: Any, following: Any) -> Any:
            sums = [(root[out_key], following[key], following[out_key]) for key, out_key in pairs]

            def step() -> bool:
                for before, reward, after in sums:
                    np.add(before, reward, out=after)
                return False

            def reset(at: Any) -> None:
                for before, _, _ in sums:
                    for row in at:
                        before[row] = 0

            return step, reset

        return RowHooks(bind, carried=[out_key for _, out_key in pairs], reads=[key for key, _ in pairs])

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Add up the rewards of a batch of steps ``[*B, T]``, over the last dimension and not across episodes.

        Args:
            tensordict: data with ``("next", reward)`` and ``("next", "done")``.

        Returns:
            ``tensordict`` with ``("next", episode_reward)``.

        Raises:
            KeyError: one of the two is not there.
        """
        keys = self.in_keys or ["reward"]
        for key in (*(("next", *names_of(key)) for key in keys), ("next", "done")):
            if tensordict.get(key, None) is None:
                found = sorted(map(str, tensordict.keys(include_nested=True, leaves_only=True)))
                raise KeyError(
                    "RewardSum adds up steps, data with ('next', 'reward') and ('next', 'done'), "
                    f"but there is no {key}. Found {found}."
                )
        time = tensordict.batch_dims - 1
        done = tensordict.get(("next", "done"))
        for key, out_key in zip(keys, self.out_keys or [_sum_key(key) for key in keys], strict=True):
            reward = tensordict.get(("next", *names_of(key)))
            total, sums = torch.zeros_like(reward.select(time, 0)), []
            for t in range(reward.shape[time]):
                total = total + reward.select(time, t)
                sums.append(total)
                total = torch.where(done.select(time, t), torch.zeros_like(total), total)
            tensordict.set(("next", *names_of(out_key)), torch.stack(sums, time))
        return tensordict

    def _no_sum(self, key: Any, td: TensorDictBase) -> KeyError:
        return KeyError(
            f"RewardSum: there is no {key!r} in the data given to step. Step what reset, step_mdp or "
            f"step_and_maybe_reset returned, with an action added to it. Found {sorted(map(str, td.keys()))}."
        )


def _sum_key(key: Any) -> Any:
    return replace_last(key, f"episode_{names_of(key)[-1]}")
