"""Implementation of ``steppe new-plugin``.

It checks names, inspects the library and fills templates.

Nothing here imports torch.
"""

from __future__ import annotations

from .fill_templates import write
from .plan import Plan
from .simulator import Simulator, look_at

__all__ = ["Plan", "Simulator", "look_at", "write"]
