"""``gae``: generalized advantages of collected steps."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase

from steppe.errors import SpecError
from steppe.transforms import first_steps, time_dim_of

__all__ = ["gae"]


@torch.no_grad()
def gae(
    data: TensorDictBase,
    value: torch.Tensor,
    next_value: torch.Tensor,
    *,
    gamma: float = 0.99,
    lambda_: float = 0.95,
    reward: torch.Tensor | None = None,
    done: torch.Tensor | None = None,
    terminated: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return generalized advantages, and the returns that a critic learns (Schulman et al. 2016, equation 16).

    Where an episode is truncated, the value of its true last observation is bootstrapped; where it terminates, nothing
    follows. No advantage crosses the end of an episode, or the border between two trajectories of a batch. Padding has
    the advantage 0.

    >>> import torch
    >>> from steppe import gae, make_env
    >>> data = make_env("gym:CartPole-v1").rollout(5, break_when_any_done=False)
    >>> critic = torch.nn.Linear(4, 1)
    >>> advantage, returns = gae(data, critic(data["observation"]), critic(data["next", "observation"]))
    >>> advantage.shape, returns.requires_grad
    (torch.Size([5, 1]), False)

    Args:
        data: steps ``[*B, T]`` of a rollout, a collector or a request. The time dimension is the one of that name, or
            the last batch dimension. Read are ``reward``, ``done`` and ``terminated`` below ``"next"``, and
            ``("collector", "mask")`` and ``("collector", "traj_ids")`` if the data has them.
        value: the critic's values of the observations, ``[*B, T]`` with any dimensions behind, such as one of size 1,
            or one for agents.
        next_value: the critic's values of the observations below ``"next"``, of the same shape.
        gamma: discount of a step.
        lambda_: weight of longer returns, from 0 (one step) to 1 (the whole episode).
        reward: rewards to use instead of ``("next", "reward")``, such as the mean over a team.
        done: ends of episodes, instead of ``("next", "done")``.
        terminated: ends without a bootstrap, instead of ``("next", "terminated")``. If there are none, ``done``.
        mask: False for padding, instead of ``("collector", "mask")``.

    Returns:
        The advantages and the returns (advantage plus value), of the shape of ``value``, without gradients.

    Raises:
        SpecError: shapes do not fit, or the data has no time dimension.
        KeyError: the data has no reward or no done entry, and none was passed.
    """
    time = time_dim_of(data, "gae")
    if value.shape != next_value.shape or value.shape[: data.batch_dims] != data.batch_size:
        raise SpecError(
            f"gae: value and next_value must have the shape of the data, {tuple(data.batch_size)}, and may have "
            f"further dimensions behind; found {tuple(value.shape)} and {tuple(next_value.shape)}."
        )
    reward = _entry(data, "reward", reward)
    done = _entry(data, "done", done)
    found = data.get(("next", "terminated"), None)
    terminated = terminated if terminated is not None else done if found is None else found
    mask = data.get(("collector", "mask"), None) if mask is None else mask

    def fit(name: str, entry: torch.Tensor) -> torch.Tensor:
        """Give an entry the dimensions of ``value``; those of size 1 broadcast."""
        fitted = entry.squeeze(-1) if entry.ndim > value.ndim and entry.shape[-1] == 1 else entry
        fitted = fitted.reshape(*fitted.shape, *(1,) * (value.ndim - fitted.ndim))
        try:
            return fitted.expand(value.shape)
        except RuntimeError:
            raise SpecError(
                f"gae: {name} has the shape {tuple(entry.shape)}, value {tuple(value.shape)}. Pass values of each "
                f"agent, or {name}= with one entry for each value."
            ) from None

    goes_on = ~fit("done", done) & ~_borders(data, value, time)
    delta = fit("reward", reward) + gamma * next_value * ~fit("terminated", terminated) - value
    if mask is not None:
        real = fit("mask", mask)
        delta, goes_on = torch.where(real, delta, 0), goes_on & real
    weight = goes_on.to(delta.dtype).mul_(gamma * lambda_)
    delta, weight = (each.movedim(time, 0).contiguous() for each in (delta, weight))
    running, advantage = torch.zeros_like(delta[0]), torch.empty_like(delta)
    for t in reversed(range(len(delta))):
        running = torch.addcmul(delta[t], weight[t], running, out=advantage[t])
    advantage = advantage.movedim(0, time)
    return advantage, advantage + value


def _entry(data: TensorDictBase, name: str, given: torch.Tensor | None) -> torch.Tensor:
    entry: Any = data.get(("next", name), None) if given is None else given
    if entry is None:
        keys = sorted(map(str, data.keys(include_nested=True, leaves_only=True)))
        raise KeyError(f"gae: the data has no {name} below next. Pass {name}=data[...]. It has {keys}.")
    return entry  # type: ignore[no-any-return]


def _borders(data: TensorDictBase, value: torch.Tensor, time: int) -> torch.Tensor:
    """Return after which steps the number of the trajectory changes, with the dimensions of ``value``."""
    numbers = data.get(("collector", "traj_ids"), None)
    borders = torch.zeros(data.batch_size, dtype=torch.bool, device=value.device)
    if numbers is not None:
        begins = first_steps(data.select(("collector", "traj_ids")), "gae").movedim(-1, time)
        length = data.batch_size[time]
        borders.narrow(time, 0, length - 1).copy_(begins.narrow(time, 1, length - 1))
    return borders.reshape(*data.batch_size, *(1,) * (value.ndim - data.batch_dims)).expand(value.shape)
