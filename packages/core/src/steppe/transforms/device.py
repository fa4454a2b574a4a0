"""DeviceCastTransform: data moved between devices."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase

from steppe.specs import SPEC_KINDS
from steppe.transforms.compiled.hooks import EnvSpecs, Hooks, pair_hook
from steppe.transforms.compiled.planned import PlannedTransform

__all__ = ["DeviceCastTransform"]


class DeviceCastTransform(PlannedTransform):
    """Moves what the environment returns to a device, and what it is given back to its own.

    Args:
        device: where the caller has the data.
        orig_device: where the environment has it; by default its device, or the CPU where it claims none.
        in_keys: entries to move. Without any keys everything is moved, and ``env.device`` becomes ``device``; with keys
            the environment claims no device.
        out_keys: where they go; by default the same keys.
        in_keys_inv: entries to move back.
        out_keys_inv: keys that the caller writes for them.
    """

    def __init__(
        self,
        device: torch.device | str | int,
        orig_device: torch.device | str | int | None = None,
        *,
        in_keys: Any = None,
        out_keys: Any = None,
        in_keys_inv: Any = None,
        out_keys_inv: Any = None,
    ) -> None:
        super().__init__(in_keys, out_keys, in_keys_inv, out_keys_inv)
        self.device = torch.device(device)
        self._orig_device = None if orig_device is None else torch.device(orig_device)
        self._everything = not self.in_keys and not self.in_keys_inv

    @property
    def orig_device(self) -> torch.device | None:
        """Where the environment has the data: as given, or the device of the environment; None for neither."""
        given: torch.device | None = self._orig_device
        if given is not None or self.parent is None:
            return given
        return self.parent.device

    def transform_env_device(self, device: torch.device | None) -> torch.device | None:
        return self.device if self._everything else None

    def transform_specs(self, specs: EnvSpecs) -> EnvSpecs:
        if self._everything:
            moved = {kind: getattr(specs, kind).to(self.device) for kind in SPEC_KINDS}
            return specs.changed(**moved, device=self.device)
        specs = specs.copy()
        for kind in SPEC_KINDS:
            getattr(specs, kind).clear_device_()
        for pairs, kinds_ in (
            (self._pairs, (specs.observation, specs.reward, specs.done)),
            ([(key, out_key) for out_key, key in self._inverse_pairs], (specs.action, specs.state)),
        ):
            for key, out_key in pairs:
                for spec in kinds_:
                    leaf = spec.get(key, None)
                    if leaf is not None:
                        spec.set(out_key, leaf.to(self.device))
        return specs.changed(device=None)

    def hooks(self, specs: EnvSpecs) -> Hooks:
        origin = self._orig_device or specs.device or torch.device("cpu")
        if not self._everything:
            return self._hooks_of_keys(origin)

        def outward(_: Any, data: TensorDictBase) -> TensorDictBase:
            return data.to(self.device)

        def inward(data: TensorDictBase | None) -> Any:
            if data is None:
                return None
            data = data.to(origin)
            return data if specs.device is not None else data.clear_device_()

        return Hooks(step=outward, reset=outward, inverse=inward, before_reset=inward)

    def _hooks_of_keys(self, origin: torch.device) -> Hooks:
        forward = pair_hook(self._pairs, lambda value: value.to(self.device), None)
        inverse = pair_hook(self._inverse_pairs, lambda value: value.to(origin), None)

        def outward(_: Any, data: TensorDictBase) -> TensorDictBase:
            return forward(data.copy().clear_device_())

        return Hooks(step=outward, reset=outward, inverse=lambda data: inverse(data.copy().clear_device_()))

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Move data that is there already."""
        if self._everything:
            return tensordict.to(self.device)
        return pair_hook(self._pairs, lambda value: value.to(self.device), self._missing)(tensordict.clear_device_())

    def _inv_call(self, tensordict: TensorDictBase) -> TensorDictBase:
        origin = self.orig_device
        if origin is None:
            return tensordict
        if self._everything:
            return tensordict.to(origin)
        return pair_hook(self._inverse_pairs, lambda value: value.to(origin), self._missing)(tensordict.clear_device_())

    def _repr_keys(self) -> Any:
        return ("device", "orig_device", *super()._repr_keys())
