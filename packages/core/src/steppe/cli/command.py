"""Command: the protocol of commands of ``steppe``, in the core and in other packages."""

from __future__ import annotations

import argparse
from typing import Protocol

__all__ = ["Command"]


class Command(Protocol):
    """A command of ``steppe``: usually a module with these three names.

    Another package provides one with an entry point of the group ``steppe.commands``, ``name = "package.module"`` or
    ``name = "package.module:object"``. It is imported when the command or its ``--help`` is used.

    Attributes:
        help: a short description of the command, for ``steppe --help``.
    """

    help: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments. Import nothing slow here: wrong arguments should be reported at once."""

    def run(self, args: argparse.Namespace) -> int:
        """Run the command.

        Args:
            args: the parsed arguments.

        Returns:
            The exit status: 0, or 1 if the command failed.

        Raises:
            UsageError: the input is wrong; the text is printed to stderr in one line, and the status is 2.
            SteppeError: printed to stderr; the status is 2 for errors of an id, a plugin or a policy, otherwise 1.
        """
