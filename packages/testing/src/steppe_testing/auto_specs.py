"""``auto_specs_``: infer the specs of an environment from the data of two steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from tensordict import NestedKey, TensorDictBase, is_leaf_nontensor

from steppe.envs import EnvBase
from steppe.errors import SpecError
from steppe.specs import Categorical, Composite, Unbounded, as_path, make_composite_from_td

__all__ = ["auto_specs_"]

#: One key or several.
_Keys: TypeAlias = "NestedKey | list[NestedKey]"

_DONE = ("done", "terminated", "truncated")


def auto_specs_(
    env: EnvBase,
    policy: Callable[[TensorDictBase], TensorDictBase],
    *,
    tensordict: TensorDictBase | None = None,
    action_key: _Keys = "action",
    done_key: _Keys | None = None,
    observation_key: _Keys | None = None,
    reward_key: _Keys = "reward",
) -> EnvBase:
    """Replace all specs by specs inferred from the data of two steps, for an environment without specs.

    Data does not show domains: leaves are Unbounded (NonTensor for values that are not tensors), actions too. Sizes
    that differ between the two steps are dynamic.

    >>> import torch
    >>> from steppe import EnvBase
    >>> from steppe_testing import auto_specs_
    >>> from tensordict import TensorDict
    >>> class Drift(EnvBase):  # without specs
    ...     def _reset(self, tensordict=None):
    ...         return TensorDict(position=torch.zeros(2), done=torch.tensor([False]))
    ...     def _step(self, tensordict):
    ...         position = tensordict["position"] + tensordict["action"]
    ...         return TensorDict(position=position, reward=torch.ones(1), done=torch.tensor([False]))
    ...     def _set_seed(self, seed):
    ...         pass
    >>> env = auto_specs_(Drift(), lambda td: td.set("action", torch.ones(2)))
    >>> env.observation_spec["position"], env.action_spec
    (Unbounded(shape=(2,), dtype=float32), Unbounded(shape=(2,), dtype=float32))

    Args:
        env: the environment.
        policy: takes a TensorDict and returns it with the action.
        tensordict: data to reset from; its entries become the state spec.
        action_key: one key or a list of keys that the policy writes.
        done_key: one key or a list of keys; by default all entries called done, terminated or truncated.
        observation_key: one key or a list of keys; by default all other entries that ``_step`` returns.
        reward_key: one key or a list of keys.

    Returns:
        The environment itself.

    Raises:
        SpecError: the policy writes no action, or ``_step`` returns no reward.
    """
    start = env._reset(tensordict)
    start_keys = set(_keys(tensordict)) if tensordict is not None else set()
    actions, rewards = _as_list(action_key), _as_list(reward_key)
    dones = _as_list(done_key) if done_key is not None else None
    following = []
    roots = [start if tensordict is None else tensordict.copy().update(start)]
    for _ in range(2):
        root = policy(roots[-1].copy())
        absent = [key for key in actions if root.get(key, None) is None]
        if absent:
            raise SpecError(
                f"auto_specs_: the policy wrote no action at {absent}. Found {_keys(root)}; set action_key."
            )
        following.append(env._step(root))
        roots.append(root.copy().update(following[-1]))
    step_keys = _keys(following[0])
    absent = [key for key in rewards if key not in step_keys]
    if absent:
        raise SpecError(f"auto_specs_: _step returned no reward at {absent}. Found {step_keys}; set reward_key.")
    done = [key for key in step_keys if (key in dones if dones is not None else as_path(key)[-1] in _DONE)]
    observations = [key for key in step_keys if key not in rewards and key not in done]
    if observation_key is not None:
        observations = [key for key in observations if key in _as_list(observation_key)]
    size = env.batch_size
    env.full_action_spec = _specs(
        [root.select(*actions) for root in (policy(roots[0].copy()), policy(roots[1].copy()))]
    )
    env.full_reward_spec = _specs([data.select(*rewards) for data in following])
    env.full_observation_spec = _specs([roots[0].select(*observations, strict=False), *following], observations)
    env.full_done_spec = Composite(
        {key: Categorical(2, shape=following[0].get(key).shape, dtype=torch.bool) for key in done}, shape=size
    )
    states = sorted(start_keys - set(actions) - {"_reset"}, key=str)
    env.full_state_spec = _specs([roots[0].select(*states)]) if states else Composite({}, shape=size)
    return env


def _specs(samples: list[TensorDictBase], keys: list[NestedKey] | None = None) -> Composite:
    """Return the spec of several samples; sizes that differ among them become -1."""
    samples = [sample if keys is None else sample.select(*keys, strict=False) for sample in samples]
    specs = make_composite_from_td(samples[-1], unsqueeze_null_shapes=False)
    for key, leaf in specs.items(include_nested=True, leaves_only=True):
        if leaf.dtype is None:
            continue
        shapes = [value.shape for s in samples if isinstance(value := s.get(key, None), torch.Tensor)]
        if len(set(shapes)) > 1:
            if len({len(shape) for shape in shapes}) > 1:
                raise SpecError(f"auto_specs_: {key!r} changes its number of dimensions: {sorted(set(shapes))}.")
            sizes = [column[0] if len(set(column)) == 1 else -1 for column in zip(*shapes, strict=True)]
            specs.set(key, Unbounded(tuple(sizes), leaf.device, leaf.dtype))
    return specs


def _keys(data: TensorDictBase) -> list[NestedKey]:
    return list(data.keys(include_nested=True, leaves_only=True, is_leaf=is_leaf_nontensor))


def _as_list(key: _Keys) -> list[NestedKey]:
    return list(key) if isinstance(key, list) else [key]
