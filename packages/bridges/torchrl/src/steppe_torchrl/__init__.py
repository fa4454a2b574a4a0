"""Between steppe and TorchRL: specs of one as specs of the other. Data is the same in both."""

from __future__ import annotations

from steppe_torchrl.specs import from_torchrl, to_torchrl

__all__ = ["from_torchrl", "to_torchrl"]
