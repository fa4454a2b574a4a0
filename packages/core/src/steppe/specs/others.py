"""Specs of other libraries: what to say of them where one of steppe's is needed."""

from __future__ import annotations

from typing import Any

__all__ = ["conversion_hint"]


def conversion_hint(value: Any) -> str:
    """The end of an error about ``value`` in the place of a spec: how TorchRL's are converted, "" for all others."""
    if any(cls.__name__ == "TensorSpec" and cls.__module__.startswith("torchrl.") for cls in type(value).__mro__):
        return " It is TorchRL's: from_torchrl(spec) of steppe_torchrl converts it (pip install steppe-torchrl)."
    return ""
