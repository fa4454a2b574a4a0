"""Random actions, drawn in blocks: the same way in every class, so that one seed gives one data set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from tensordict import LazyStackedTensorDict, TensorDict, TensorDictBase, lazy_stack

from steppe.specs import Composite, StackedComposite, check_no_exclusive_keys
from steppe.storage import entries

if TYPE_CHECKING:
    from steppe.envs.base import EnvBase
    from steppe.envs.seeds_and_actions import SeedsAndActions

__all__ = ["CHUNK", "ActionWriter", "RandomActions", "draw_actions", "draws_in_blocks", "put_actions", "write_actions"]

#: How many steps' actions are drawn at once. Part of the contract: it decides which numbers a seed gives.
CHUNK = 128


def draws_in_blocks(env: EnvBase) -> bool:
    """Whether actions may be drawn ahead: nothing the environment does changes what it accepts."""
    return (
        not env.chooses_random_actions
        and bool(env.action_keys)
        and all(
            leaf is not None
            and leaf.dtype is not None
            and getattr(leaf, "mask", None) is None
            and not any(size < 0 for size in leaf.shape)
            for leaf in env.full_action_spec.values(include_nested=True, leaves_only=True)
        )
        and not isinstance(env.full_action_spec, StackedComposite)
        and check_no_exclusive_keys(env.full_action_spec)
    )


def draw_actions(
    env: SeedsAndActions, tensordict: TensorDictBase | None, generator: torch.Generator | None
) -> TensorDictBase:
    """Write random actions into data, or into a new TensorDict; see :meth:`EnvBase.rand_action`."""
    lead: tuple[int, ...] = ()
    if tensordict is None:
        tensordict = TensorDict({}, batch_size=env.batch_size, device=env.device)
    elif not env.batch_locked and not env.batch_size:
        lead = tuple(tensordict.batch_size)
    return put_actions(env, tensordict, env.full_action_spec.rand(lead, generator=generator))


def put_actions(env: SeedsAndActions, tensordict: TensorDictBase, sample: TensorDictBase) -> TensorDictBase:
    """Put actions into data; returns it, or a lazy stack of its rows where these have actions of their own."""
    if isinstance(sample, LazyStackedTensorDict) and not env.cached(
        "alike_actions", lambda: _has_alike_rows(env.full_action_spec)
    ):
        if not isinstance(tensordict, LazyStackedTensorDict):
            tensordict = lazy_stack(list(tensordict.unbind(sample.stack_dim)), sample.stack_dim)
        return tensordict.update(sample)
    write_actions(tensordict, sample, env.full_action_spec)
    return tensordict


def _has_alike_rows(spec: Composite) -> bool:
    """Whether the actions of stacked rows are one tensor for each key."""
    keys = set(spec.keys(include_nested=True, leaves_only=True))
    rows = spec.unbind(0)
    return all(set(row.keys(include_nested=True, leaves_only=True)) == keys for row in rows) and all(
        len({(row[key].shape, row[key].dtype) for row in rows}) == 1 for key in keys
    )


def write_actions(tensordict: TensorDictBase, actions: TensorDictBase, spec: Composite) -> None:
    """Put actions into data, in place.

    Args:
        tensordict: where they go. What else is there stays, in nested TensorDicts too.
        actions: data of ``spec``.
        spec: the actions' Composite.
    """
    for name, child in spec.items():
        value = actions.get(name, None)
        present = tensordict.get(name, None) if isinstance(child, Composite) else None
        if value is None:
            continue  # the step says that it is missing
        if present is None:
            tensordict.set(name, value)
        elif isinstance(child, StackedComposite):
            # Rows may have actions of their own names and sizes, which no entry of the whole could hold.
            dim = value.ndim - child.ndim + child.dim
            rows = []
            for part, row, own in zip(child.specs, present.unbind(dim), value.unbind(dim), strict=True):
                rows.append(row.copy())
                write_actions(rows[-1], own, part)
            tensordict.set(name, lazy_stack(rows, dim))
        else:
            write_actions(present, value, child)


class ActionWriter:
    """Puts the actions of one step into data, as :func:`write_actions` does, with a plan for groups made once.

    Args:
        spec: the actions' Composite.
    """

    def __init__(self, spec: Composite) -> None:
        self._spec = spec
        self._paths: list[tuple[str, ...]] | None = None
        if not any(isinstance(child, StackedComposite) for child in (spec, *spec.values(include_nested=True))):
            keys = spec.keys(include_nested=True, leaves_only=True)
            self._paths = [key if isinstance(key, tuple) else (key,) for key in keys]

    def __call__(self, tensordict: TensorDictBase, actions: TensorDictBase) -> None:
        """Put actions into data, in place; both are data of one step."""
        if self._paths is None or not self._put(tensordict, actions, self._paths):
            write_actions(tensordict, actions, self._spec)

    @staticmethod
    def _put(tensordict: TensorDictBase, actions: TensorDictBase, paths: list[tuple[str, ...]]) -> bool:
        """The same where plain TensorDicts hold tensors in both, and the groups are there: 5 times faster."""
        found: list[tuple[dict[str, Any], str, torch.Tensor]] = []
        for path in paths:
            level: Any = tensordict
            source: Any = actions
            for name in path[:-1]:
                if type(level) is not TensorDict or type(source) is not TensorDict:
                    return False
                level, source = entries(level).get(name), entries(source).get(name)
            if type(level) is not TensorDict or type(source) is not TensorDict or level.is_locked:
                return False
            value = entries(source).get(path[-1])
            alike = level.batch_size == source.batch_size and level.device == source.device
            if type(value) is not torch.Tensor or not alike:
                return False
            found.append((entries(level), path[-1], value))
        for target, name, value in found:
            target[name] = value
        return True


class RandomActions:
    """The random actions of an environment: a policy, or blocks of actions for who takes many steps at once.

    They are drawn ``CHUNK`` steps at a time where that is possible, in the order of time, whoever asks for them and in
    whatever portions: one seed gives one data set.

    Args:
        env: the environment; the numbers come from the generator that its ``set_seed`` seeded.

    Attributes:
        in_blocks: whether actions are drawn ahead; otherwise each step asks ``env.rand_action``.
    """

    def __init__(self, env: EnvBase) -> None:
        self.in_blocks = draws_in_blocks(env)
        self._env = env
        self._keys = list(env.action_keys)
        self._spec = env.full_action_spec
        self._write = ActionWriter(self._spec)
        self._flat = all(isinstance(key, str) for key in self._keys)
        self._generator = env.action_generator() if self.in_blocks else None
        self._block: dict[Any, torch.Tensor] = {}
        self._drawn: Any = None
        self._rows: list[Any] = []
        self._at = self._size = 0

    def take(self, at_most: int) -> dict[Any, torch.Tensor]:
        """Return the actions of the next steps, ``{key: [k, *shape]}`` with ``1 <= k <= at_most``."""
        if self._at == self._size:
            self._draw(())
        start, self._at = self._at, min(self._at + at_most, self._size)
        return {key: value[start : self._at] for key, value in self._block.items()}

    def _draw(self, lead: tuple[int, ...]) -> None:
        assert self._generator is not None
        drawn = self._spec.rand((CHUNK, *lead), generator=self._generator)
        self._block = {key: drawn.get(key) for key in self._keys}
        self._drawn = drawn
        self._rows = []
        self._at, self._size = 0, CHUNK

    def __call__(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the actions of one step."""
        env = self._env
        if not self.in_blocks:
            return env.rand_action(tensordict)
        if self._at == self._size:
            self._draw(() if env.batch_locked or env.batch_size else tuple(tensordict.batch_size))
        if not self._rows:
            # All at once is cheaper than a view for each step.
            if self._flat:
                self._rows = list(zip(*(self._block[key].unbind(0) for key in self._keys), strict=True))
            else:
                self._rows = list(self._drawn.unbind(0))
        row, self._at = self._rows[self._at], self._at + 1
        if not self._flat:
            self._write(tensordict, row)
        elif type(tensordict) is TensorDict and not tensordict.is_locked:
            entries(tensordict).update(zip(self._keys, row, strict=True))
        else:
            for key, value in zip(self._keys, row, strict=True):
                tensordict.set(key, value)
        return tensordict
