"""What ``steppe new-plugin`` does: names that fit each other, a look at the library, templates filled in.

Everything here runs without torch.
"""

from __future__ import annotations

from .fill_templates import write
from .plan import Plan
from .simulator import Simulator, look_at

__all__ = ["Plan", "Simulator", "look_at", "write"]
