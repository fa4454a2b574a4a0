"""Base classes of transforms that need an environment: SteppingTransform steps it, PlannedTransform reads its specs."""

from __future__ import annotations

from typing import Any

from tensordict import TensorDictBase

from steppe.errors import StateError
from steppe.transforms.base import Transform
from steppe.transforms.compiled.transform_hooks import EnvSpecs, Hooks

__all__ = ["EnvTransform", "PlannedTransform", "SteppingTransform"]


class EnvTransform(Transform):
    """Base class of transforms that use their environment."""

    @property
    def env(self) -> Any:
        """The environment with the transforms before this one.

        Raises:
            StateError: the transform belongs to no environment.
        """
        env = self.parent
        if env is None:
            name = type(self).__name__
            raise StateError(
                f"{name} {self.does}, and belongs to none. Append it to one: env.append_transform({name}(...))."
            )
        return env


class SteppingTransform(EnvTransform):
    """Base class of transforms that step their environment, several times in one step or at a reset.

    A subclass overrides ``_step`` or ``_reset`` and uses ``self.env``. It cannot be called on stored data.
    """

    needs_all_rows = True
    needs_env = True
    does = "steps its environment"


class PlannedTransform(EnvTransform):
    """Base class of transforms that override only ``hooks`` and ``transform_specs``.

    Use it if the functions depend on the specs of the environment, such as its levels with done entries. The methods
    ``_step``, ``_reset`` and ``_inv_call`` then need an environment. On stored data, the specs describe the data.
    """

    writes_done = False
    writes_step = False
    needs_all_rows = False

    _bound_hooks: Hooks | None = None
    _derived = (*EnvTransform._derived, "_bound_hooks")

    @property
    def _bound(self) -> Hooks:
        bound = self._bound_hooks
        if bound is None:
            bound = self._bound_hooks = self.hooks(EnvSpecs.of(self.env))
        return bound

    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        step = self._bound.step
        return next_tensordict if step is None else step(tensordict, next_tensordict)

    def _reset(self, tensordict: TensorDictBase | None, tensordict_reset: TensorDictBase) -> TensorDictBase:
        reset = self._bound.reset
        return tensordict_reset if reset is None else reset(tensordict, tensordict_reset)

    def _inv_call(self, tensordict: TensorDictBase) -> TensorDictBase:
        inverse = self._bound.inverse if self.in_keys_inv or self.parent is not None else None
        return tensordict if inverse is None else inverse(tensordict)

    def hooks(self, specs: EnvSpecs) -> Hooks:
        raise NotImplementedError(f"{type(self).__name__} does not define hooks(specs).")
