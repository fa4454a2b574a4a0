"""DiscreteActionProjection: one action space for different numbers of actions."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import NestedKey
from torch.nn.functional import one_hot

from steppe.errors import SpecError
from steppe.specs import OneHot, Spec
from steppe.transforms import RowGenerators, as_key

from .inverse import ActionInverse

__all__ = ["DiscreteActionProjection"]


class DiscreteActionProjection(ActionInverse):
    """Project one-hot actions to an environment with fewer actions.

    The caller's actions have the width ``max_actions``; the environment has ``num_actions_effective`` actions. One
    policy can then act in environments with different numbers of actions. An action that the environment does not have
    is replaced by a random one. Called on stored data, it pads actions of the environment to ``max_actions``.

    >>> import torch
    >>> from steppe import DiscreteActionProjection, TransformedEnv, make_env
    >>> env = TransformedEnv(make_env("gym:CartPole-v1"), DiscreteActionProjection(2, max_actions=5))
    >>> env.action_spec.shape, env.rollout(3)["action"].shape
    (torch.Size([5]), torch.Size([3, 5]))

    Args:
        num_actions_effective: number of actions of the environment.
        max_actions: number of actions of the policy.
        action_key: key of the action.
        include_forward: whether to pad actions of stored data; otherwise stored data stays unchanged.

    Raises:
        SpecError: ``max_actions`` is smaller, or the environment's action is not one-hot of that size.
    """

    def __init__(
        self,
        num_actions_effective: int,
        max_actions: int,
        action_key: NestedKey = "action",
        include_forward: bool = True,
    ) -> None:
        if not 1 <= num_actions_effective <= max_actions:
            raise SpecError(
                "DiscreteActionProjection: 1 <= num_actions_effective <= max_actions, found "
                f"{num_actions_effective!r} and {max_actions!r}."
            )
        keys = [as_key(action_key)]
        super().__init__(in_keys=keys if include_forward else [], in_keys_inv=keys)
        self.num_actions_effective, self.max_actions = num_actions_effective, max_actions
        self._draws = RowGenerators()
        self._one_hot: tuple[torch.dtype, list[torch.Tensor]] | None = None

    needs_all_rows = True  # True because each row draws from its own generator

    def _set_seed(self, seed: int | None) -> None:
        self._draws.seed(seed)

    def caller_spec(self, leaf: Spec, batch_dims: int) -> Spec:
        if leaf.choice_form != "one_hot" or leaf.shape[-1] != self.num_actions_effective:
            raise SpecError(
                f"DiscreteActionProjection({self.num_actions_effective}, {self.max_actions}) needs an environment with "
                f"one-hot actions of {self.num_actions_effective}, found {leaf}."
            )
        shape = (*leaf.shape[:-1], self.max_actions)
        return OneHot(self.max_actions, shape=shape, device=leaf.device, dtype=leaf.dtype)

    def _apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        return one_hot(value.to(torch.uint8).argmax(-1), self.max_actions).to(value.dtype)

    def _inv_apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        if value.shape[-1:] != (self.max_actions,):
            raise SpecError(
                f"DiscreteActionProjection: actions must have the shape [..., {self.max_actions}], found "
                f"{tuple(value.shape)}."
            )
        action = self._of_one(value) if value.ndim == 1 and value.is_cpu else None
        return self._projected(value, self.rows_of(value, 1)) if action is None else action

    def _of_one(self, value: torch.Tensor) -> torch.Tensor | None:
        """Project a single action, which is faster; None if it is not one-hot."""
        row: list[Any] = value.tolist()
        if row.count(0) != self.max_actions - 1 or 1 not in row:
            return None
        number = row.index(1)
        if number >= self.num_actions_effective:
            generator = self._draws.of(1)[0]
            number = int(torch.randint(self.num_actions_effective, (1,), generator=generator, device="cpu"))
        return self._rows_of(value.dtype)[number].clone()

    def _rows_of(self, dtype: torch.dtype) -> list[torch.Tensor]:
        """Return the one-hot vectors of all actions of the environment."""
        if self._one_hot is None or self._one_hot[0] is not dtype:
            rows = torch.eye(self.num_actions_effective, dtype=dtype, device="cpu")
            self._one_hot = dtype, list(rows.unbind(0))
        return self._one_hot[1]

    def _projected(self, value: torch.Tensor, rows: int) -> torch.Tensor:
        """Project the actions of several rows; each row draws from its own generator."""
        number = value.to(torch.uint8).argmax(-1)
        absent = number >= self.num_actions_effective
        if bool(absent.any()):
            flat, missing = number.reshape(rows, -1), absent.reshape(rows, -1)
            for row, generator in enumerate(self._draws.of(rows)):
                n = int(missing[row].sum())
                if n:
                    drawn = torch.randint(self.num_actions_effective, (n,), generator=generator, device="cpu")
                    flat[row, missing[row]] = drawn.to(number.device)
            number = flat.reshape(number.shape)
        return one_hot(number, self.num_actions_effective).to(value.dtype)

    def _repr_keys(self) -> Any:
        return ("num_actions_effective", "max_actions", "in_keys_inv")
