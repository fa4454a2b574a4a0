"""MultiAction: take several actions in one step (action chunks)."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase

from steppe.envs import merge_rows, rows_ended, step_mask
from steppe.errors import SpecError
from steppe.specs import Spec
from steppe.transforms import EnvSpecs, SteppingTransform, as_key, names_of, replace_last, set_beside

__all__ = ["MultiAction"]


class MultiAction(SteppingTransform):
    """Take several actions in one step, one after the other.

    For an action ``[*B, *F]`` of the environment the caller writes ``[*B, K, *F]`` (``dim=1``); the number ``K`` may
    differ from step to step. A row whose episode ends is not stepped again. Transforms before this one run on each of
    these steps, those after it once.

    With ``stack_rewards`` the rewards are ``[*B, K, 1]``, with 0 for actions that were not taken. With
    ``stack_observations`` the observations are ``[*B, K, *F]``, and ``[*B, 1, *F]`` after a reset; the last observation
    is repeated for actions that were not taken. States, such as counts, are not stacked. Otherwise ``next`` holds the
    values of the last action.

    >>> import torch
    >>> from steppe import MultiAction, TransformedEnv, make_env
    >>> env = TransformedEnv(make_env("gym:Pendulum-v1"), MultiAction())
    >>> root = env.reset()
    >>> root["action"] = torch.zeros(4, 1)  # four actions, one after the other
    >>> env.step(root)["next", "reward"].shape
    torch.Size([4, 1])

    Args:
        dim: dimension of the actions of one step, counted from 1 after the batch size.
        stack_rewards: keep all rewards; otherwise the last one.
        stack_observations: keep all observations.
        action_key: action of the environment. Default: all actions.
        chunk_key: key that the caller writes. Default: ``action_key``.

    Raises:
        SpecError: ``dim`` is not a whole number >= 1, the argument of a step has no actions, or its keys hold different
            numbers of actions.
    """

    writes_done = True
    writes_step = False

    def __init__(
        self,
        *,
        dim: int = 1,
        stack_rewards: bool = True,
        stack_observations: bool = False,
        action_key: NestedKey | None = None,
        chunk_key: NestedKey | None = None,
    ) -> None:
        if isinstance(dim, bool) or not isinstance(dim, int) or dim < 1:
            raise SpecError(f"MultiAction: dim must be a whole number >= 1, after the batch size; found {dim!r}.")
        action_key = "action" if action_key is None and chunk_key is not None else action_key
        chunk_key = action_key if chunk_key is None else chunk_key
        super().__init__(
            in_keys_inv=None if action_key is None else [as_key(action_key)],
            out_keys_inv=None if chunk_key is None else [as_key(chunk_key)],
        )
        self.dim = dim
        self.stack_rewards, self.stack_observations = bool(stack_rewards), bool(stack_observations)

    @classmethod
    def from_vla(cls, *, action_key: Any = "action", **kwargs: Any) -> MultiAction:
        """Make a transform that reads ``("vla_action", "chunk")``.

        This is the key of vision-language-action policies.

        Args:
            action_key: action of the environment.
            **kwargs: more arguments of the class.
        """
        return cls(action_key=action_key, chunk_key=("vla_action", "chunk"), **kwargs)

    # -- specs -----------------------------------------------------------------------------------------------------

    def _pairs_in(self, action: Any) -> list[tuple[Any, Any]]:
        """Return pairs of keys: of the environment's action, and of the caller's."""
        if self.in_keys_inv:
            return list(zip(self.in_keys_inv, self.out_keys_inv, strict=True))
        return [(key, key) for key in action.keys(include_nested=True, leaves_only=True)]

    def _wide(self, leaf: Spec, batch_dims: int) -> Spec:
        at = batch_dims + self.dim - 1
        if at > leaf.ndim:
            raise SpecError(f"MultiAction(dim={self.dim}): there are {leaf.ndim - batch_dims} dimensions in {leaf}.")
        wide = leaf.unsqueeze(at)
        wide.make_neg_dim(at)
        return wide

    def transform_specs(self, specs: EnvSpecs) -> EnvSpecs:
        batch_dims = len(specs.batch_size)
        before, specs = specs, specs.copy()
        for key, chunk_key in self._pairs_in(before.action):
            leaf = before.action.get(key, None)
            if leaf is None:
                keys = list(before.action.keys(include_nested=True, leaves_only=True))
                raise SpecError(f"MultiAction: the environment has no action {key!r}. It takes {keys}.")
            if chunk_key != key:
                specs.action.pop(key)
            set_beside(specs.action, chunk_key, self._wide(leaf, batch_dims), before.action)
        if self.stack_rewards:
            for key, leaf in before.reward.items(include_nested=True, leaves_only=True):
                specs.reward[key] = self._wide(leaf, batch_dims)
        if self.stack_observations:
            for key in self._stacked(before.observation, before.state):
                specs.observation[key] = self._wide(before.observation[key], batch_dims)
        return specs

    @staticmethod
    def _stacked(observation: Any, state: Any) -> list[Any]:
        keys = observation.keys(include_nested=True, leaves_only=True)
        return [key for key in keys if state.get(key, None) is None]

    # -- steps -----------------------------------------------------------------------------------------------------

    def _inv_call(self, tensordict: TensorDictBase) -> TensorDictBase:
        env, sizes = self.env, set()
        at = tensordict.batch_dims + self.dim - 1
        for key, chunk_key in self._pairs_in(env.full_action_spec):
            chunk = tensordict.get(chunk_key, None)
            if chunk is None:
                keys = sorted(map(str, tensordict.keys(include_nested=True, leaves_only=True)))
                raise KeyError(f"MultiAction: the argument of step has no actions {chunk_key!r}. It has {keys}.")
            if chunk.ndim <= at or chunk.shape[at] < 1:
                raise SpecError(
                    f"MultiAction(dim={self.dim}): {chunk_key!r} holds actions along dimension {at}, found the shape "
                    f"{tuple(chunk.shape)}."
                )
            sizes.add(chunk.shape[at])
            tensordict.set(_rest(key), chunk)
            tensordict.set(key, chunk.select(at, 0))
        if len(sizes) > 1:
            raise SpecError(f"MultiAction: all keys must hold the same number of actions, found {sorted(sizes)}.")
        return tensordict

    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        env, following = self.env, next_tensordict
        groups, size = env.done_groups, following.batch_size
        at = len(size) + self.dim - 1
        chunks = {key: tensordict.get(_rest(key)) for key, _ in self._pairs_in(env.full_action_spec)}
        count = next(iter(chunks.values())).shape[at]
        reward_keys = list(env.reward_keys)
        seen_keys = self._stacked(env.full_observation_spec, env.full_state_spec) if self.stack_observations else []
        rewards = {key: [following.get(key)] for key in reward_keys} if self.stack_rewards else {}
        seen = {key: [following.get(key)] for key in seen_keys}
        mask: Any = tensordict.pop("_step", None)
        running = None if mask is None else step_mask(tensordict, mask)
        root = tensordict
        for i in range(1, count):
            acting = ~rows_ended(following, groups)
            if running is not None:
                acting = acting & running
            if not bool(acting.any()):
                for key, values in rewards.items():
                    rewards[key] = values + [torch.zeros_like(values[0])] * (count - i)
                for key, values in seen.items():
                    seen[key] = values + [values[-1]] * (count - i)
                break
            root = env.step_mdp(root.set("next", following))
            for key, chunk in chunks.items():
                root.set(key, chunk.select(at, i))
            partial = not bool(acting.all())
            if partial:
                root.set("_step", acting)
            again = env.step(root).get("next")
            root.pop("_step", None)
            before, following = following, merge_rows(acting, again, following) if partial else again
            for key in reward_keys:
                shaped = acting.reshape(*acting.shape, *(1,) * (again.get(key).ndim - acting.ndim))
                if self.stack_rewards:
                    rewards[key].append(torch.where(shaped, again.get(key), torch.zeros_like(again.get(key))))
                elif partial:
                    following.set(key, torch.where(shaped, again.get(key), before.get(key)))
            for key, values in seen.items():
                values.append(following.get(key))
        for stacked in (rewards, seen):
            for key, values in stacked.items():
                following.set(key, torch.stack(values, at))
        return following

    def _reset(self, tensordict: TensorDictBase | None, tensordict_reset: TensorDictBase) -> TensorDictBase:
        if self.stack_observations:
            env, at = self.env, tensordict_reset.batch_dims + self.dim - 1
            for key in self._stacked(env.full_observation_spec, env.full_state_spec):
                tensordict_reset.set(key, tensordict_reset.get(key).unsqueeze(at))
        return tensordict_reset

    def _repr_keys(self) -> Any:
        return ("dim", "stack_rewards", "stack_observations", "in_keys_inv", "out_keys_inv")


def _rest(key: Any) -> Any:
    """Return the key at which the inverse keeps the actions of a step."""
    return replace_last(key, f"_all_{names_of(key)[-1]}")
