"""Reward2GoTransform: the rewards that are still to come in an episode."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase

from steppe.errors import NotSupported, SpecError
from steppe.specs import CPU
from steppe.transforms import EnvSpecs, Hooks, Transform, as_key, names_of

__all__ = ["Reward2GoTransform"]


class Reward2GoTransform(Transform):
    """Sums up the discounted rewards from each step to the end of its episode, in stored data.

    It is the inverse, ``inv(data)``, that does it: what a buffer calls when data is put in, or a collector as
    ``postproc=transform.inv``. Calling the transform changes nothing. It needs whole episodes, so an environment can
    not have it.

    Time is the dimension of that name, or the last batch dimension. An episode ends where ``done`` is True, and the sum
    of each step goes to the next such end, or to the end of the data where none follows.

    Args:
        gamma: discount for each step: a number, or a tensor that broadcasts to a reward of one step.
        in_keys: rewards ``[*B, T, ...]``; ``[("next", "reward")]`` by default.
        out_keys: where the sums go, one for each; by default the same keys.
        done_key: the done entry under ``"next"`` that ends episodes of these rewards, ``[*B, T, 1]`` or of the shape of
            the rewards.

    Raises:
        SpecError: ``gamma`` is no number.
        NotSupported: an environment is given it.
    """

    writes_done = False
    writes_step = False

    def __init__(self, gamma: Any = 1.0, in_keys: Any = None, out_keys: Any = None, done_key: Any = "done") -> None:
        keys = [("next", "reward")] if in_keys is None else in_keys
        super().__init__(in_keys=keys, in_keys_inv=keys, out_keys_inv=keys if out_keys is None else out_keys)
        if len(self.in_keys_inv) != len(self.out_keys_inv):
            raise SpecError(
                f"Reward2GoTransform: {len(self.in_keys_inv)} rewards, {self.in_keys_inv}, need as many out_keys, "
                f"found {self.out_keys_inv}."
            )
        try:
            self.gamma = torch.as_tensor(1.0 if gamma is None else gamma, device=CPU).detach().clone()
        except (TypeError, ValueError, RuntimeError):
            raise SpecError(f"Reward2GoTransform: gamma is a number or a tensor, found {gamma!r}.") from None
        self.done_key = as_key(done_key)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Return the data as it is: sums are made where data is stored, see ``inv``."""
        return tensordict

    def _inv_call(self, tensordict: TensorDictBase) -> TensorDictBase:
        done_key = as_key(("next", *names_of(self.done_key)))
        done = tensordict.get(done_key, None)
        if done is None:
            raise KeyError(f"Reward2GoTransform: there is no {done_key!r} in the data. Found {_keys_of(tensordict)}.")
        time = _time_dim(tensordict)
        ended = done.flatten(tensordict.batch_dims).any(-1) if done.ndim > tensordict.batch_dims else done
        if not bool(ended.any(time).all()):
            raise SpecError(
                f"Reward2GoTransform: no episode ends in some row of the data, {tuple(ended.shape)} steps, so what is "
                "still to come is not known. Give it whole episodes, with more frames_per_batch for example."
            )
        pairs = zip(self.in_keys_inv, self.out_keys_inv, strict=True)
        rewards = [(out_key, tensordict.get(key, None)) for key, out_key in pairs]
        if all(reward is None for _, reward in rewards):
            raise KeyError(
                f"Reward2GoTransform: there is none of {self.in_keys_inv} in the data. Found {_keys_of(tensordict)}."
            )
        for out_key, reward in rewards:
            if reward is not None:
                tensordict.set(out_key, self._to_go(reward, done, time))
        return tensordict

    def _to_go(self, reward: torch.Tensor, done: torch.Tensor, time: int) -> torch.Tensor:
        gamma = self.gamma.to(reward.device, reward.dtype if reward.is_floating_point() else self.gamma.dtype)
        going_on = done.reshape(done.shape + (1,) * (reward.ndim - done.ndim)).logical_not().unbind(time)
        total, sums = torch.zeros_like(reward.select(time, 0)), []
        for now, on in zip(reversed(reward.unbind(time)), reversed(going_on), strict=True):
            total = now + gamma * total * on
            sums.append(total)
        return torch.stack(sums[::-1], time)

    def set_container(self, container: Any) -> None:
        """Belong to a Compose.

        Raises:
            NotSupported: it is an environment, or belongs to one.
        """
        owner = container.container if isinstance(container, Transform) else container
        if owner is not None and not isinstance(owner, Transform):
            raise _refusal()
        super().set_container(container)

    def hooks(self, specs: EnvSpecs) -> Hooks:
        raise _refusal()

    def _repr_keys(self) -> Any:
        return ("in_keys_inv", "out_keys_inv", "done_key")


def _refusal() -> NotSupported:
    return NotSupported(
        "Reward2GoTransform needs whole episodes, which a step of an environment is not. Call it on collected data: "
        "transform.inv(data), or give a collector postproc=transform.inv."
    )


def _time_dim(data: TensorDictBase) -> int:
    if not data.batch_dims:
        raise SpecError("Reward2GoTransform sums over time, and this data has no batch dimension.")
    return data.names.index("time") if "time" in data.names else data.batch_dims - 1


def _keys_of(data: TensorDictBase) -> list[str]:
    return sorted(map(str, data.keys(include_nested=True, leaves_only=True)))
