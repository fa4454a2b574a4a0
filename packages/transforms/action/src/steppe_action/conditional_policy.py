"""ConditionalPolicySwitch: let another policy act if a condition holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDictBase

from steppe.envs import merge_rows, rows_ended, step_mask
from steppe.errors import SpecError
from steppe.transforms import SteppingTransform

__all__ = ["ConditionalPolicySwitch"]


class ConditionalPolicySwitch(SteppingTransform):
    """Let another policy take an extra step in rows where a condition holds.

    Use it for the moves of an opponent, for example. The condition is evaluated after each step and each reset. In rows
    where it holds and the episode continues, the policy acts; ``next`` (after a reset: the root) then holds the data of
    its step, with its reward. All other rows stay unchanged. Transforms before this one run on both steps, those after
    it once.

    >>> from steppe import ConditionalPolicySwitch, TransformedEnv
    >>> from steppe_testing import ConstantPolicy, CountingEnv
    >>> base = CountingEnv(max_steps=20)
    >>> opponent = ConstantPolicy(base)
    >>> env = TransformedEnv(base, ConditionalPolicySwitch(opponent, lambda td: td["observation"] % 2 == 1))
    >>> env.rollout(3)["next", "observation"].flatten()  # the opponent moves after each odd step
    tensor([2., 4., 6.])

    Args:
        policy: function that reads the root of the rows in which it acts, and returns it with the actions.
        condition: function of the data of a step or reset that returns a bool, or a bool tensor ``[*B]`` or ``[*B,
            1]``.

    Raises:
        SpecError: an argument is not a function, or the condition returns something else.
    """

    writes_done = True

    def __init__(
        self,
        policy: Callable[[TensorDictBase], TensorDictBase],
        condition: Callable[[TensorDictBase], bool | torch.Tensor],
    ) -> None:
        for name, value in (("policy", policy), ("condition", condition)):
            if not callable(value):
                raise SpecError(
                    f"ConditionalPolicySwitch: {name} must be a function of a TensorDict, found {type(value).__name__}."
                )
        super().__init__()
        # Stored outside of torch's attributes, because the policy's parameters are not parameters of this transform.
        self.__dict__["policy"] = policy
        self.condition = condition

    def _holds(self, data: TensorDictBase) -> torch.Tensor | None:
        """Return the rows where the condition holds, ``[*B]`` bool; None if there are none."""
        flags = self.condition(data)
        if type(flags) is torch.Tensor and flags.dtype is torch.bool and flags.numel() == 1 and not bool(flags):
            return None
        acting = self._of_rows(flags, data)
        return acting if bool(acting.any()) else None

    @staticmethod
    def _of_rows(condition: Any, data: TensorDictBase) -> torch.Tensor:
        size = data.batch_size
        if isinstance(condition, bool):
            return torch.full(size, condition, dtype=torch.bool, device=data.device or "cpu")
        if isinstance(condition, torch.Tensor) and condition.dtype is torch.bool:
            if condition.shape == size or condition.numel() == size.numel():
                return condition.reshape(size)
            if condition.numel() == 1:
                return condition.reshape(()).expand(size)
        what = (
            f"{condition.dtype} of shape {tuple(condition.shape)}"
            if isinstance(condition, torch.Tensor)
            else type(condition).__name__
        )
        raise SpecError(
            "ConditionalPolicySwitch: the condition returns a bool, or a bool tensor of shape "
            f"{tuple(size)}; found {what}."
        )

    def _acted(self, root: TensorDictBase, acting: torch.Tensor) -> TensorDictBase:
        """Step the environment with the policy in some rows, and return the data.

        Other rows stay unchanged.
        """
        env = self.env
        if bool(acting.all()):
            return env.step(_with_actions(root, self.policy(root), env.action_keys))  # type: ignore[no-any-return]
        some = self.policy(root[acting])
        actions = env.full_action_spec.zero(() if env.batch_size else root.batch_size)
        for key in env.action_keys:
            whole = actions.get(key)
            whole[acting] = some.get(key).to(whole.dtype)
            root.set(key, whole)
        root.set("_step", acting)
        return env.step(root)  # type: ignore[no-any-return]

    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        acting = self._holds(next_tensordict.copy())
        return next_tensordict if acting is None else self._next_of(tensordict, next_tensordict, acting)

    def _next_of(
        self, tensordict: TensorDictBase, next_tensordict: TensorDictBase, acting: torch.Tensor
    ) -> TensorDictBase:
        """Return ``next`` after the policy has acted in some rows."""
        env = self.env
        acting = acting & ~rows_ended(next_tensordict, env.done_groups)
        mask: Any = tensordict.pop("_step", None)
        if mask is not None:
            acting = acting & step_mask(tensordict, mask)
        if not bool(acting.any()):
            return next_tensordict
        again: TensorDictBase = self._acted(env.step_mdp(tensordict.set("next", next_tensordict)), acting).get("next")
        return again if bool(acting.all()) else merge_rows(acting, again, next_tensordict)

    def _reset(self, tensordict: TensorDictBase | None, tensordict_reset: TensorDictBase) -> TensorDictBase:
        env, size = self.env, tensordict_reset.batch_size
        groups = env.done_groups
        acting = self._holds(tensordict_reset)
        if acting is None:
            return tensordict_reset
        masks = [] if tensordict is None else [tensordict.get(group.reset_key, None) for group in groups]
        begins = [mask.reshape(*size, -1).any(-1) for mask in masks if mask is not None]
        if begins:
            acting = acting & torch.stack(begins).any(0)
        if not bool(acting.any()):
            return tensordict_reset
        data = self._acted(tensordict_reset.copy(), acting)
        # If that step ends an episode, the row is reset, and the policy does not act again.
        data = env.maybe_reset(env.step_mdp(data.exclude("_step")))
        keys = tensordict_reset.keys(include_nested=True, leaves_only=True)
        fresh = data.select(*keys, strict=False)
        return tensordict_reset.update(merge_rows(acting, fresh, tensordict_reset))


def _with_actions(root: TensorDictBase, returned: Any, action_keys: Any) -> TensorDictBase:
    """Return the root with the actions of a policy.

    The policy may return its actions in another TensorDict.
    """
    if returned is not root:
        for key in action_keys:
            root.set(key, returned.get(key))
    return root
