"""The ``steppe`` command, and helpers for the commands of other packages. Imports no torch.

A package adds a command with an entry point of the group ``steppe.commands``: see `Command`.
"""

from __future__ import annotations

from .command import Command
from .main import main
from .output import UsageError, natural, one_line, positive, print_json, print_pairs, print_table
from .policy import Act, import_policy

__all__ = [
    "Act",
    "Command",
    "UsageError",
    "import_policy",
    "main",
    "natural",
    "one_line",
    "positive",
    "print_json",
    "print_pairs",
    "print_table",
]
