"""Error hints for specs of other libraries."""

from __future__ import annotations

__all__ = ["conversion_hint"]


def conversion_hint(value: object) -> str:
    """Return how to convert a spec of TorchRL, for the end of an error; "" for other values."""
    if any(cls.__name__ == "TensorSpec" and cls.__module__.startswith("torchrl.") for cls in type(value).__mro__):
        return " It is TorchRL's: from_torchrl(spec) of steppe_torchrl converts it (pip install steppe-torchrl)."
    return ""
