"""Rollouts of array environments: every step is written where the result is."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from tensordict import TensorDictBase, is_leaf_nontensor

from steppe.envs.actions import CHUNK, draws_in_blocks, random_block
from steppe.envs.large_arrays import LARGE, large_array
from steppe.envs.policies import Policy, with_written
from steppe.envs.rollout import RolloutPlan, out_of_actions
from steppe.errors import PolicyError
from steppe.specs import Composite
from steppe.storage import Storage, TensorDictBuilder, build_td, entries

if TYPE_CHECKING:
    from steppe.envs.array import ArrayEnv
    from steppe.envs.array_plan import ArrayPlan

__all__ = ["fits", "run"]

_FIRST = 256
#: Bytes of observations after which roots are filled from ``next``: while those still are in the cache of a core.
_NEAR = 256 * 1024


def fits(env: ArrayEnv, arrays: ArrayPlan, plan: RolloutPlan) -> bool:
    """Whether a rollout can be written into storage: nobody looks at the TensorDict of a step."""
    start = plan.start
    assert start is not None
    known = {*arrays.obs_keys, *arrays.done_keys}
    return (
        plan.callback is None
        and plan.policy_device is None
        and not start.batch_size
        and not env.run_type_checks
        and set(start.keys(include_nested=True, leaves_only=True)) <= known
        and (plan.policy is not None or plan.actions is not None or draws_in_blocks(env))
    )


def run(env: ArrayEnv, arrays: ArrayPlan, plan: RolloutPlan) -> TensorDictBase:
    """Write up to ``max_steps`` steps into a new storage, and give it away."""
    rollout = _Rollout(env, arrays, plan)
    if plan.policy is None:
        rollout.with_blocks(_given_blocks(env, arrays, plan) if plan.actions is not None else _random_blocks(env))
    else:
        rollout.with_policy(plan.policy)
    return rollout.result()


def _random_blocks(env: ArrayEnv) -> Iterator[dict[Any, torch.Tensor]]:
    generator = env.action_generator()
    while True:
        yield random_block(env, generator)


def _given_blocks(env: ArrayEnv, arrays: ArrayPlan, plan: RolloutPlan) -> Iterator[dict[Any, torch.Tensor]]:
    """Gather ``actions=`` into blocks, each checked once."""
    assert plan.actions is not None
    left = plan.max_steps
    while True:
        entries_ = list(itertools.islice(plan.actions, min(CHUNK, left)))
        if not entries_:
            raise out_of_actions()
        left -= len(entries_)
        if isinstance(entries_[0], TensorDictBase):
            columns = {key: [entry.get(key, None) for entry in entries_] for key in arrays.action_keys}
        else:
            columns = {env.action_key: entries_}
        yield arrays.codec.fit_steps(columns, first=plan.max_steps - left - len(entries_))


class _Rollout:
    def __init__(self, env: ArrayEnv, arrays: ArrayPlan, plan: RolloutPlan) -> None:
        self.env = env
        self.arrays = arrays
        self.plan = plan
        # A rollout that may end early starts small and grows, so that max_steps may be generous.
        self.capacity = min(plan.max_steps, _FIRST) if plan.break_any or plan.break_all else plan.max_steps
        self.stop_at_done = plan.break_any or plan.break_all
        device = arrays.device
        obs, reward, done = env.full_observation_spec, env.full_reward_spec, env.full_done_spec
        self.root_spec = _union(obs, done)
        self.next_spec = _union(_union(obs, reward), done)
        self.root = self._storage(self.root_spec, self.capacity)
        self.next = self._storage(self.next_spec, self.capacity)
        self.step_keys = (*arrays.obs_keys, *(key for key in arrays.reward_keys if key not in arrays.obs_keys))
        self.device = device
        self.columns: dict[Any, list[Any]] = {}
        self.action_blocks: list[dict[Any, torch.Tensor]] = []
        self.steps = 0
        # Roots up to this one are written.
        self.filled = 1
        row = sum(array[0].nbytes for key, array in self.root.arrays.items() if key in arrays.obs_keys)
        self.stretch = max(1, min(CHUNK, _NEAR // max(row, 1)))
        self._write_start()
        self._bind()

    def _storage(self, spec: Composite, capacity: int) -> Storage:
        """Memory for these steps. Large observations, of which each row is written, need not begin as zeros."""
        storage = Storage(spec, (capacity,))
        for key in self.arrays.obs_keys:
            found = storage.arrays[key]
            if found.nbytes >= LARGE:
                storage.arrays[key] = large_array(found.shape, found.dtype)
                storage.tensors[key] = torch.from_numpy(storage.arrays[key])
        return storage

    def _write_start(self) -> None:
        start = self.plan.start
        assert start is not None
        for key, array in self.root.arrays.items():
            value = start.get(key, None)
            array[0] = 0 if value is None else value.detach().numpy()

    def _bind(self) -> None:
        next_arrays, root_arrays = self.next.arrays, self.root.arrays
        self.outs = [(key, next_arrays[key]) for key in self.step_keys]
        self.root_obs = [(key, root_arrays[key]) for key in self.arrays.obs_keys]
        self.done_rows = [(name, next_arrays[name]) for name in self.arrays.done_keys]

    def _grow(self) -> None:
        capacity = min(self.capacity * 2, self.plan.max_steps)
        for name, spec in (("root", self.root_spec), ("next", self.next_spec)):
            old = getattr(self, name)
            new = self._storage(spec, capacity)
            for key, array in old.arrays.items():
                new.arrays[key][: self.capacity] = array
            setattr(self, name, new)
        self.capacity = capacity
        self._bind()

    def _ended(self, t: int, terminated: bool, truncated: bool) -> bool:
        """Write the done entries of step ``t``; True where the rollout stops."""
        for name, array in self.done_rows:
            array[t] = terminated if name == "terminated" else truncated if name == "truncated" else True
        if self.stop_at_done or t + 1 == self.plan.max_steps:
            return True
        self._fill_roots(t + 1)
        self.filled = t + 2
        out = {key: array[t + 1, ...] for key, array in self.root_obs}
        self.env.reset_into(out, self.env.take_seed(), None)
        return False

    def with_blocks(self, blocks: Iterator[dict[Any, torch.Tensor]]) -> None:
        """Actions that are known ahead, decoded a block at a time."""
        env, limit = self.env, self.plan.max_steps
        step_into = env.step_into
        t = 0
        running = True
        while running and t < limit:
            block = next(blocks)
            self.action_blocks.append(block)
            natives = self.arrays.decode({key: value.numpy() for key, value in block.items()})
            if t + len(natives) > self.capacity and self.capacity < limit:
                self._grow()
            outs, stretch = self.outs, self.stretch
            todo = natives[: limit - t]
            for first in range(0, len(todo), stretch):
                for action in todo[first : first + stretch]:
                    terminated, truncated = step_into(action, {key: array[t, ...] for key, array in outs})
                    t += 1
                    if (terminated or truncated) and self._ended(t - 1, terminated, truncated):
                        running = False
                        break
                self._fill_roots(t)
                if not running:
                    break
        self.steps = t

    def with_policy(self, policy: Policy) -> None:
        """A policy: each step's root is a TensorDict of views of its row."""
        env, plan, arrays = self.env, self.plan, self.arrays
        builder = TensorDictBuilder(self.root_spec, (), device=self.device)
        flat = not any(isinstance(child, Composite) for child in self.root_spec.values())
        t = 0
        carried: dict[Any, Any] = {}
        while True:
            rows = {key: torch.from_numpy(array[t, ...]) for key, array in self.root.arrays.items()}
            root = build_td(rows, torch.Size([]), self.device) if flat else builder(rows)
            for key, value in carried.items():
                root.set(key, value)
            root = with_written(root, policy(root))
            native = arrays.native(root)
            self._keep(root, rows)
            carried = self._carried(root, rows)
            terminated, truncated = env.step_into(native, {key: array[t, ...] for key, array in self.outs})
            t += 1
            self.steps = t
            if (terminated or truncated) and self._ended(t - 1, terminated, truncated):
                break
            if t == plan.max_steps:
                break
            if t == self.capacity:
                self._grow()
            if not (terminated or truncated):
                for key, array in self.root_obs:
                    array[t] = self.next.arrays[key][t - 1]

    @staticmethod
    def _carried(root: TensorDictBase, rows: dict[Any, torch.Tensor]) -> dict[Any, Any]:
        """What the policy finds in the next root of what it wrote: as ``step_mdp`` keeps it, ``next`` first."""
        found: dict[Any, Any] = {}
        for data in (root, (entries(root) if type(root) is _TD else root).get("next")):
            if data is None:
                continue
            for key, value in (entries(data) if type(data) is _TD else data).items():
                if not isinstance(value, TensorDictBase):
                    if key not in rows:
                        found[key] = value
                elif key != "next" or data is not root:
                    # Entries of the environment's in a group that the policy wrote into are those of this step.
                    found.update({path: leaf for path, leaf in _leaves(key, value) if path not in rows})
        return found

    def _keep(self, root: TensorDictBase, rows: dict[Any, torch.Tensor]) -> None:
        """Remember what the policy wrote; stacked at the end, so that gradients survive."""
        source: Any = entries(root) if type(root) is _TD else root
        for key, value in source.items():
            if key in rows:
                self._keep_own(key, value, rows)
            elif key[0] == "_":
                continue
            elif isinstance(value, TensorDictBase):
                for path, leaf in _leaves(key, value):
                    if path in rows:
                        self._keep_own(path, leaf, rows)
                    else:
                        self.columns.setdefault(path, []).append(leaf)
            else:
                self.columns.setdefault(key, []).append(value)

    def _keep_own(self, key: Any, value: torch.Tensor, rows: dict[Any, torch.Tensor]) -> None:
        """An entry of the environment's is in storage, until a policy puts another tensor in its place."""
        column = self.columns.get(key)
        if column is not None:
            column.append(value)
        elif value is not rows[key]:
            self.columns[key] = [*self.root.tensors[key][: self.steps].unbind(0), value]

    def _fill_roots(self, end: int) -> None:
        """Write the roots before ``end`` that a reset did not: each is the ``next`` of the step before."""
        start = self.filled
        if start < end:
            for key, array in self.root_obs:
                array[start:end] = self.next.arrays[key][start - 1 : end - 1]
            self.filled = end

    def result(self) -> TensorDictBase:
        """All steps as one TensorDict ``[T]``."""
        steps = self.steps
        whole = steps == self.capacity
        # Slices of a storage that is mostly unused would keep all of it alive: copy those.
        cut = (
            (lambda x: x)
            if whole
            else (lambda x: x[:steps])
            if steps * 2 > self.capacity
            else (lambda x: x[:steps].clone())
        )
        root = TensorDictBuilder(self.root_spec, (steps,), device=self.device)(
            {key: cut(tensor) for key, tensor in self.root.tensors.items()}
        )
        following = TensorDictBuilder(self.next_spec, (steps,), device=self.device)(
            {key: cut(tensor) for key, tensor in self.next.tensors.items()}
        )
        if self.action_blocks:
            for key in self.arrays.action_keys:
                blocks = [block[key] for block in self.action_blocks]
                joined = torch.cat(blocks) if len(blocks) > 1 else blocks[0]
                root.set(key, joined[:steps])
        root.set("next", following)
        for key, column in self.columns.items():
            if len(column) != steps:
                raise PolicyError(f"The policy wrote {key!r} in {len(column)} of {steps} steps; write it in each.")
            root.set(key, torch.stack(column))
        return root


_TD = type(build_td({}))


def _leaves(name: str, group: TensorDictBase) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Entries at any depth of a group, with the keys that they have in the data it is in."""
    for path, leaf in group.items(include_nested=True, leaves_only=True, is_leaf=is_leaf_nontensor):
        yield (name, *((path,) if isinstance(path, str) else path)), leaf


def _union(first: Composite, second: Composite) -> Composite:
    """One Composite with the entries of both; groups that both have are joined."""
    children: dict[str, Any] = dict(first.items())
    for name, child in second.items():
        mine = children.get(name)
        children[name] = _union(mine, child) if isinstance(mine, Composite) and isinstance(child, Composite) else child
    return Composite(children, shape=first.shape)
