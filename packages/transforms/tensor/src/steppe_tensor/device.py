"""DeviceCastTransform: move data to another device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase

from steppe.specs import SPEC_KINDS
from steppe.transforms import EnvSpecs, Hooks, PlannedTransform, pair_hook

__all__ = ["DeviceCastTransform"]


class DeviceCastTransform(PlannedTransform):
    """Move data to a device for the caller, and back for the environment.

    >>> from steppe import DeviceCastTransform, TransformedEnv, make_env
    >>> env = TransformedEnv(make_env("gym:CartPole-v1"), DeviceCastTransform("cpu"))
    >>> env.device
    device(type='cpu')

    Args:
        device: device of the data for the caller.
        orig_device: device of the data in the environment. Default: ``env.device``, or the CPU if that is None.
        in_keys: entries to move. Without any keys, all data is moved and ``env.device`` becomes ``device``; with keys,
            ``env.device`` becomes None.
        out_keys: keys to write, as many as ``in_keys``. Default: ``in_keys``.
        in_keys_inv: actions and states to move back.
        out_keys_inv: keys that the caller writes instead. Default: ``in_keys_inv``.
    """

    def __init__(
        self,
        device: torch.device | str | int,
        orig_device: torch.device | str | int | None = None,
        *,
        in_keys: NestedKey | Sequence[NestedKey] | None = None,
        out_keys: NestedKey | Sequence[NestedKey] | None = None,
        in_keys_inv: NestedKey | Sequence[NestedKey] | None = None,
        out_keys_inv: NestedKey | Sequence[NestedKey] | None = None,
    ) -> None:
        super().__init__(in_keys, out_keys, in_keys_inv, out_keys_inv)
        self.device = torch.device(device)
        self._orig_device = None if orig_device is None else torch.device(orig_device)
        self._everything = not self.in_keys and not self.in_keys_inv

    @property
    def orig_device(self) -> torch.device | None:
        """Device of the data in the environment.

        The argument, or the device of the environment, which may be None.
        """
        device: torch.device | None = self._orig_device
        if device is not None or self.parent is None:
            return device
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
            (self.key_pairs, (specs.observation, specs.reward, specs.done)),
            ([(key, out_key) for out_key, key in self.inverse_key_pairs], (specs.action, specs.state)),
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

        return Hooks(step=outward, reset=outward, inverse=inward, before_reset=inward, reads_root=False)

    def _hooks_of_keys(self, origin: torch.device) -> Hooks:
        forward = pair_hook(self.key_pairs, lambda value: value.to(self.device), None)
        inverse = pair_hook(self.inverse_key_pairs, lambda value: value.to(origin), None)

        def outward(_: Any, data: TensorDictBase) -> TensorDictBase:
            return forward(data.copy().clear_device_())

        return Hooks(
            step=outward,
            reset=outward,
            inverse=lambda data: inverse(data.copy().clear_device_()),
            reads_root=False,
        )

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Move data that comes from no environment."""
        if self._everything:
            return tensordict.to(self.device)
        return pair_hook(self.key_pairs, lambda value: value.to(self.device), self.missing_entry)(
            tensordict.clear_device_()
        )

    def _inv_call(self, tensordict: TensorDictBase) -> TensorDictBase:
        origin = self.orig_device
        if origin is None:
            return tensordict
        if self._everything:
            return tensordict.to(origin)
        return pair_hook(self.inverse_key_pairs, lambda value: value.to(origin), self.missing_entry)(
            tensordict.clear_device_()
        )

    def _repr_keys(self) -> Any:
        return ("device", "orig_device", *super()._repr_keys())
