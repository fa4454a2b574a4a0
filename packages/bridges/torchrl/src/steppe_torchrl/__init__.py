"""Convert specs between steppe and TorchRL.

Data needs no conversion: both use the same TensorDict layout.
"""

from __future__ import annotations

from steppe_torchrl.specs import from_torchrl, to_torchrl

__all__ = ["from_torchrl", "to_torchrl"]
