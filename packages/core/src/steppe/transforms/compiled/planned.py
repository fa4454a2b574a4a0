"""PlannedTransform: the base class of transforms that are written as hooks."""

from __future__ import annotations

from tensordict import TensorDictBase

from steppe.transforms.compiled.transform_hooks import EnvSpecs, Hooks
from steppe.transforms.stepping import EnvTransform

__all__ = ["PlannedTransform"]


class PlannedTransform(EnvTransform):
    """Base class of transforms that override only ``hooks`` and ``transform_specs``.

    Use it if the functions depend on the specs of the environment, such as its levels with done entries. The methods
    ``_step``, ``_reset`` and ``_inv_call`` then need an environment.
    """

    writes_done = False
    writes_step = False
    needs_all_rows = False
    does = "works on the data of an environment"

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
        inverse = self._bound.inverse
        return tensordict if inverse is None else inverse(tensordict)

    def hooks(self, specs: EnvSpecs) -> Hooks:
        raise NotImplementedError(f"{type(self).__name__} does not define hooks(specs).")
