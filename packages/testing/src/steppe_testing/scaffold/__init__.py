"""Implementation of ``steppe new-plugin``: check names, inspect the library, fill templates.

Nothing here imports torch.
"""

from __future__ import annotations

from .fill_templates import write
from .plan import Plan
from .simulator import Simulator, look_at

__all__ = ["Plan", "Simulator", "look_at", "write"]
