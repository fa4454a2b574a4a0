"""The contract between the command line and a command, of the core or of another package."""

from __future__ import annotations

import argparse
from typing import Protocol

__all__ = ["Command"]


class Command(Protocol):
    """A command of ``steppe``: usually a module with these three names.

    Another package provides one with an entry point of the group ``steppe.commands``, ``name = "package.module"`` or
    ``name = "package.module:object"``. It is imported when the command is used, or its ``--help``.

    Attributes:
        help: what the command does, in a few words, for ``steppe NAME --help``.
    """

    help: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments. Import nothing heavy here: wrong arguments should be answered at once."""

    def run(self, args: argparse.Namespace) -> int:
        """Do it.

        Args:
            args: the arguments, parsed.

        Returns:
            The exit status: 0, or 1 where what was asked for failed.

        Raises:
            UsageError: the input is wrong; the text goes to stderr in one line, and the status is 2.
            SteppeError: printed to stderr; the status is 2 where it is about an id, a plugin or a policy, otherwise 1.
        """
