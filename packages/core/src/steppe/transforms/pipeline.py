"""Pipeline: the transforms of an environment, reduced to what they do at each step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase

from steppe.envs import EnvBase
from steppe.storage import build_td, copy_names, entries
from steppe.transforms.base import Transform
from steppe.transforms.compose import Compose
from steppe.transforms.hooks import EnvSpecs

__all__ = ["Pipeline", "leaves"]


def leaves(transform: Transform) -> Iterator[Transform]:
    """The transforms that a chain consists of, nested ones in their place."""
    if isinstance(transform, Compose) and not any(
        getattr(type(transform), name) is not getattr(Compose, name)
        for name in ("_call", "_step", "_reset", "_inv_call", "_reset_env_preprocess", "transform_specs")
    ):
        for part in transform:
            yield from leaves(part)
    else:
        yield transform


class Pipeline:
    """What happens around each call of the base environment, compiled once.

    Attributes:
        specs: of the environment behind all transforms.
        steps, resets, inverses, before_resets: callables in the order in which they run; transforms that have nothing
            to do there are left out.
        two_trips: the base may not reset by itself, because whether an episode has ended is decided by a transform.
    """

    def __init__(self, base: EnvBase, transform: Transform) -> None:
        before = EnvSpecs.of(base)
        self.base_specs = before
        found = []
        for part in leaves(transform):
            hooks = part.hooks(before)
            found.append(hooks)
            before = part.transform_specs(before)
        self.specs = before
        self.steps = [hooks.step for hooks in found if hooks.step is not None]
        self.resets = [hooks.reset for hooks in found if hooks.reset is not None]
        self.inverses = [hooks.inverse for hooks in reversed(found) if hooks.inverse is not None]
        self.before_resets = [hooks.before_reset for hooks in reversed(found) if hooks.before_reset is not None]
        ends_alike = _leaf_keys(self.specs.done) == _leaf_keys(self.base_specs.done)
        self.two_trips = (
            transform.writes_done
            or transform.writes_step
            or not ends_alike
            or type(base).step_and_maybe_reset is EnvBase.step_and_maybe_reset
            or self.specs.batch_size != self.base_specs.batch_size
        )
        self.writes_step = transform.writes_step
        self.same_batch = self.specs.batch_size == self.base_specs.batch_size
        self._own_outputs = self._outputs(self.specs, self.base_specs)
        self._base_outputs = [*_leaf_keys(self.base_specs.observation), *_leaf_keys(self.base_specs.done)]

    @staticmethod
    def _outputs(specs: EnvSpecs, base: EnvSpecs) -> list[Any]:
        """Entries of the root that the base must not take for its own: they are transformed, or not known to it."""
        states = _leaf_keys(base.state)
        found = {
            key
            for kind in ("observation", "reward", "done")
            for holder in (specs, base)
            for key in _leaf_keys(getattr(holder, kind))
        }
        return [*(found - states), "next"]

    def without_outputs(self, tensordict: TensorDictBase) -> TensorDictBase:
        """A copy of the root without observations, rewards and done entries, unless they are states of the base."""
        return tensordict.exclude(*self._own_outputs)

    def base_outputs(self, root: TensorDictBase) -> TensorDictBase:
        """A copy of the observations and done entries of a root that the base has made."""
        return root.select(*self._base_outputs, strict=False)

    @staticmethod
    def copy(tensordict: TensorDictBase) -> TensorDictBase:
        """A copy without ``next`` that shares its tensors, for inverses and the base to write into."""
        if type(tensordict) is not TensorDict:
            return tensordict.exclude("next")
        level = {
            name: value if isinstance(value, torch.Tensor) else value.copy()
            for name, value in entries(tensordict).items()
            if name != "next"
        }
        return copy_names(tensordict, build_td(level, tensordict.batch_size, tensordict.device))


def _leaf_keys(spec: Any) -> set[Any]:
    return set(spec.keys(include_nested=True, leaves_only=True))
