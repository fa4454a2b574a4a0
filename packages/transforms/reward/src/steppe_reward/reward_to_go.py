"""Reward2GoTransform: reward-to-go of stored data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from tensordict import NestedKey, TensorDictBase

from steppe.errors import NotSupported, SpecError
from steppe.specs import CPU
from steppe.transforms import EnvSpecs, Hooks, Transform, as_key, names_of, time_dim_of

__all__ = ["Reward2GoTransform"]


class Reward2GoTransform(Transform):
    """Compute the reward-to-go of stored data.

    The reward-to-go is the discounted sum of rewards from each step to the end of its episode.

    The inverse, ``inv(data)``, computes it on stored data: a buffer calls it when data is added, and a collector with
    ``postproc=transform.inv``. Calling the transform changes nothing. Environments cannot have this transform, because
    it needs whole episodes.

    The time dimension is the one of that name, or the last batch dimension. An episode ends where ``done`` is True; the
    sum of a step includes the rewards up to the next end, or to the end of the data.

    >>> from steppe import Reward2GoTransform, make_env
    >>> data = make_env("gym:CartPole-v1").rollout(1000)
    >>> Reward2GoTransform(1.0).inv(data)["next", "reward"][-3:].flatten()
    tensor([3., 2., 1.])

    Args:
        gamma: discount of each step: a number, or a tensor that broadcasts to the reward of one step.
        in_keys: rewards ``[*B, T, ...]``. Default: ``[("next", "reward")]``.
        out_keys: keys of the sums, as many as ``in_keys``. Default: ``in_keys``.
        done_key: the done entry under ``"next"`` that ends episodes, ``[*B, T, 1]`` or of the shape of the rewards.

    Raises:
        SpecError: ``gamma`` is not a number or a tensor.
        NotSupported: the transform is added to an environment.
    """

    #: The text of the error if an environment gets this transform.
    ENV_ERR: ClassVar[str] = (
        "Reward2GoTransform needs whole episodes, so an environment cannot have it. Call it on collected data: "
        "transform.inv(data), or pass postproc=transform.inv to a collector."
    )

    writes_done = False
    writes_step = False

    def __init__(
        self,
        gamma: float | torch.Tensor = 1.0,
        in_keys: NestedKey | Sequence[NestedKey] | None = None,
        out_keys: NestedKey | Sequence[NestedKey] | None = None,
        done_key: NestedKey = "done",
    ) -> None:
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
            raise SpecError(f"Reward2GoTransform: gamma must be a number or a tensor, found {gamma!r}.") from None
        self.done_key = as_key(done_key)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Return the data unchanged; ``inv`` computes the sums."""
        return tensordict

    def _inv_call(self, tensordict: TensorDictBase) -> TensorDictBase:
        done_key = as_key(("next", *names_of(self.done_key)))
        done = tensordict.get(done_key, None)
        if done is None:
            raise KeyError(f"Reward2GoTransform: there is no {done_key!r} in the data. Found {_keys_of(tensordict)}.")
        time = time_dim_of(tensordict, "Reward2GoTransform")
        ended = done.flatten(tensordict.batch_dims).any(-1) if done.ndim > tensordict.batch_dims else done
        if not bool(ended.any(time).all()):
            raise SpecError(
                f"Reward2GoTransform: no episode ends in some row of the data, {tuple(ended.shape)} steps, so the "
                "reward-to-go is not known. Pass whole episodes, for example with more frames_per_batch."
            )
        pairs = zip(self.in_keys_inv, self.out_keys_inv, strict=True)
        rewards = [(out_key, tensordict.get(key, None)) for key, out_key in pairs]
        if all(reward is None for _, reward in rewards):
            raise KeyError(
                f"Reward2GoTransform: the data has none of {self.in_keys_inv}. It has {_keys_of(tensordict)}."
            )
        for out_key, reward in rewards:
            if reward is not None:
                tensordict.set(out_key, self._to_go(reward, done, time))
        return tensordict

    def _to_go(self, reward: torch.Tensor, done: torch.Tensor, time: int) -> torch.Tensor:
        gamma = self.gamma.to(reward.device, reward.dtype if reward.is_floating_point() else self.gamma.dtype)
        running = done.reshape(done.shape + (1,) * (reward.ndim - done.ndim)).logical_not().unbind(time)
        total, sums = torch.zeros_like(reward.select(time, 0)), []
        for now, keep in zip(reversed(reward.unbind(time)), reversed(running), strict=True):
            total = now + gamma * total * keep
            sums.append(total)
        return torch.stack(sums[::-1], time)

    def set_container(self, container: Any) -> None:
        """Set the Compose that the transform belongs to.

        Raises:
            NotSupported: ``container`` is an environment, or belongs to one.
        """
        owner = container.container if isinstance(container, Transform) else container
        if owner is not None and not isinstance(owner, Transform):
            raise NotSupported(self.ENV_ERR)
        super().set_container(container)

    def hooks(self, specs: EnvSpecs) -> Hooks:
        raise NotSupported(self.ENV_ERR)

    def _repr_keys(self) -> Any:
        return ("in_keys_inv", "out_keys_inv", "done_key")


def _keys_of(data: TensorDictBase) -> list[str]:
    return sorted(map(str, data.keys(include_nested=True, leaves_only=True)))
