"""MultiStepTransform: returns of several steps, for data on its way into a replay buffer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase, cat

from steppe.arguments import ignored_argument
from steppe.errors import SpecError
from steppe.transforms import as_key, as_keys, first_steps, names_of, replace_last, time_dim_of

from .stored_data import StoredDataTransform
from .windows import episode_windows, swapped

__all__ = ["MultiStepTransform"]


class MultiStepTransform(StoredDataTransform):
    """Replace each step by ``n_steps`` steps: their discounted rewards, and what comes after them.

    The inverse, ``inv(data)``, does this with data ``[*B, T]``: a buffer calls it when it is extended. The last
    ``n_steps - 1`` steps of each row wait for the following data, so they are stored with the next ``extend``, or by
    ``buffer.flush()`` when no more data comes. Calling the transform, as a buffer does with samples, changes nothing.
    :meth:`returns` handles data that is complete.

    A step gets the rewards up to the end of its trajectory only, terminated or truncated: with k steps left, k rewards.
    All entries of ``"next"`` are those of the last of its steps, the done entries too. So the target is the same for
    each step, ``reward + gamma * value(next) * ~terminated``, with these entries:

    * ``("next", "reward")``: the sum of ``gamma**i`` times the reward of step i, for k steps.
    * ``("next", "original_reward")``: the reward of the step itself.
    * ``"gamma"`` ``[*B, T]``, of torch's default dtype: ``gamma**k``, the discount of the value after them.
    * ``"steps_to_next_obs"`` ``[*B, T]``, int64: k.
    * ``"nonterminal"`` ``[*B, T]``, bool: whether the last of the steps did not terminate the episode.

    A trajectory ends where ``("next", done_key)`` is True and where ``("collector", "traj_ids")`` changes. Data
    continues that of the call before if both have the same trajectory; without numbers of trajectories, if its first
    root has the observations of the last ``"next"``. If it does not, as with batches of workers in turn, the steps that
    wait get the rewards there are.

    Args:
        n_steps: the largest number of steps. It may be changed at any time.
        gamma: discount of each step.
        reward_keys: rewards below ``"next"``. Default: ``["reward"]``.
        done_key: the done entry below ``"next"`` that ends trajectories. Default: ``"done"``.
        done_keys: no effect: TorchRL leaves these entries as they were, and then a target takes the value of the last
            observation of an episode that terminated.
        mask_key: mask of the steps that are no padding. Default: ``"mask"``, if the data has it.

    Raises:
        SpecError: ``n_steps`` is not a whole number >= 1, or ``gamma`` is not between 0 and 1.

    Examples:
        >>> import torch
        >>> from tensordict import TensorDict
        >>> from steppe.transforms import MultiStepTransform
        >>> done = torch.tensor([False, False, False, True])
        >>> data = TensorDict({"next": {"reward": torch.ones(4), "done": done}}, [4])
        >>> MultiStepTransform(3, 0.5).returns(data)["next", "reward"].tolist()
        [1.75, 1.75, 1.5, 1.0]
    """

    def __init__(
        self,
        n_steps: int,
        gamma: float,
        *,
        reward_keys: NestedKey | Sequence[NestedKey] | None = None,
        done_key: NestedKey | None = None,
        done_keys: Sequence[NestedKey] | None = None,
        mask_key: NestedKey | None = None,
    ) -> None:
        super().__init__()
        self.n_steps = n_steps
        if isinstance(gamma, bool) or not isinstance(gamma, (int, float)) or not 0 <= gamma <= 1:
            raise SpecError(f"MultiStepTransform: gamma must be a number from 0 to 1, found {gamma!r}.")
        self.gamma = float(gamma)
        self.reward_keys = ["reward"] if reward_keys is None else as_keys(reward_keys)
        self.done_key = "done" if done_key is None else as_key(done_key)
        self.mask_key = "mask" if mask_key is None else as_key(mask_key)
        if done_keys is not None:
            ignored_argument("MultiStepTransform", "done_keys", "all done entries are those of the last step")
        self._held: TensorDictBase | None = None
        self._time = -1

    @property
    def n_steps(self) -> int:
        """The largest number of steps."""
        return self._n_steps

    @n_steps.setter
    def n_steps(self, n_steps: int) -> None:
        if isinstance(n_steps, bool) or not isinstance(n_steps, int) or n_steps < 1:
            raise SpecError(f"MultiStepTransform: n_steps must be a whole number >= 1, found {n_steps!r}.")
        self._n_steps = n_steps

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Return the data unchanged, because samples of a buffer have their returns already."""
        return tensordict

    def _inv_call(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Return the steps whose ``n_steps`` steps are complete; steps kept from earlier calls come first.

        Args:
            tensordict: data ``[*B, T]``.

        Returns:
            ``[*B, T']``: all steps that have come so far but the last ``n_steps - 1``. T' is 0 if there are no others.

        Raises:
            SpecError: the data has other rows ``[*B]`` than the call before.
            KeyError: a reward is missing, or the entries at which trajectories end.
        """
        time = time_dim_of(tensordict, "MultiStepTransform")
        data = swapped(tensordict, time)
        n_held, joined = 0, data
        if self._held is not None and self._held.shape[-1]:
            held = self._held
            if held.batch_size[:-1] != data.batch_size[:-1]:
                raise SpecError(
                    f"MultiStepTransform: the rows of this data are {tuple(data.batch_size[:-1])}, and those of the "
                    f"data before were {tuple(held.batch_size[:-1])}. Use one transform for each source of data."
                )
            n_held, joined = held.shape[-1], cat(_with_same_keys(held, data), -1)
        begins = first_steps(joined, "MultiStepTransform", self.done_key)
        if n_held and data.get(("collector", "traj_ids"), None) is None:
            begins[..., n_held] |= ~_continues(joined[..., n_held - 1], data[..., 0])
        ready = joined.shape[-1] - min(self.n_steps - 1, joined.shape[-1])
        self._held, self._time = joined[..., ready:].clone(), time
        return swapped(self._summed(joined, begins)[..., :ready], time)

    def flush(self) -> TensorDictBase | None:
        """Return the steps that wait, with the rewards there are, and keep none; None if no steps wait."""
        held, self._held = self._held, None
        if held is None or not held.shape[-1]:
            return None
        return swapped(self._summed(held, first_steps(held, "MultiStepTransform", self.done_key)), self._time)

    def returns(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Return data ``[*B, T]`` that is complete, with the returns of all steps; nothing waits.

        The last steps of the data get the rewards there are. As ``postproc=transform.returns`` of a collector, the
        returns end with each batch.

        Raises:
            KeyError: a reward is missing, or the entries at which trajectories end.
        """
        time = time_dim_of(tensordict, "MultiStepTransform")
        data = swapped(tensordict, time)
        return swapped(self._summed(data, first_steps(data, "MultiStepTransform", self.done_key)), time)

    def _summed(self, data: TensorDictBase, begins: torch.Tensor) -> TensorDictBase:
        """Return a copy of steps ``[*B, T]`` with their returns."""
        mask = data.get(self.mask_key, None)
        if mask is not None:
            mask = mask.reshape(data.batch_size)
            begins[..., 1:] |= mask[..., 1:] != mask[..., :-1]
        index, padded = episode_windows(begins, self.n_steps, future=True)
        n_steps = (~padded).sum(-1)
        rewards = {}
        for key in self.reward_keys:
            reward = data.get(("next", *names_of(key)), None)
            if reward is None:
                keys = sorted(map(str, data.keys(include_nested=True, leaves_only=True)))
                raise KeyError(
                    f"MultiStepTransform: there is no {('next', *names_of(key))!r} in the data. Found {keys}."
                )
            rewards[key] = reward
        size, length = data.batch_size, data.shape[-1]
        offset = torch.arange(size.numel() // max(length, 1), device=index.device).mul(length)
        rows = index + offset.reshape(*size[:-1], 1, 1)
        result = data.copy()
        following = data.get("next").reshape(-1)[rows[..., -1].reshape(-1)].reshape(size)
        for key, reward in rewards.items():
            dtype = reward.dtype if reward.is_floating_point() else torch.get_default_dtype()
            weights = self.gamma ** torch.arange(self.n_steps, dtype=dtype, device=reward.device)
            tail = reward.shape[len(size) :]
            # One step at a time, because windows of all steps would take n_steps times the memory.
            total, flat = torch.zeros_like(reward, dtype=dtype), reward.reshape(-1, *tail)
            for i in range(self.n_steps):
                value = flat[rows[..., i].reshape(-1)].reshape(reward.shape) * weights[i]
                total += value.masked_fill(padded[..., i].reshape(*size, *(1,) * len(tail)), 0)
            following.set(key, total)
            following.set(replace_last(key, f"original_{names_of(key)[-1]}"), reward)
        result.set("next", following)
        result.set("steps_to_next_obs", n_steps)
        result.set("gamma", torch.tensor(self.gamma, device=n_steps.device) ** n_steps)
        end = following.get(replace_last(self.done_key, "terminated"), following.get(self.done_key, None))
        ended = torch.zeros(size, dtype=torch.bool, device=n_steps.device) if end is None else end
        ended = ended.reshape(*size, -1).any(-1)
        result.set("nonterminal", ~ended if mask is None else ~ended & mask)
        return result

    def __getstate__(self) -> dict[str, Any]:
        # Copies, such as those of workers, get data of their own.
        return {**super().__getstate__(), "_held": None}

    def _repr_keys(self) -> Sequence[str]:
        return ("n_steps", "gamma")


def _continues(before: TensorDictBase, after: TensorDictBase) -> torch.Tensor:
    """Return for each row whether a step follows another: whether its root is the other's ``next``."""
    follows = torch.ones(after.batch_size, dtype=torch.bool, device=after.device)
    following = before.get("next")
    for key in after.exclude("next").keys(include_nested=True, leaves_only=True):
        value, expected = after.get(key), following.get(key, None)
        if isinstance(value, torch.Tensor) and isinstance(expected, torch.Tensor):
            same = (value == expected) | ((value != value) & (expected != expected))
            follows &= same.reshape(*after.batch_size, -1).all(-1).to(follows.device)
    return follows


def _with_same_keys(held: TensorDictBase, data: TensorDictBase) -> list[TensorDictBase]:
    """Return both with the entries of ``data``: a policy may have begun to write more, which are 0 before."""
    keys = list(data.keys(include_nested=True, leaves_only=True))
    known = set(held.keys(include_nested=True, leaves_only=True))
    if set(keys) == known:
        return [held, data]
    held = held.select(*(key for key in keys if key in known))
    for key in keys:
        if key not in known:
            value = data.get(key)
            held.set(key, value.new_zeros((*held.batch_size, *value.shape[data.batch_dims :])))
    return [held, data]
