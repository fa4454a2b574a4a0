"""Finds a command, parses its arguments, runs it, and prints its errors to stderr."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn, cast

from ..errors import ActionError, EnvIdError, EnvNotFound, PluginError, PolicyError, SteppeError
from .command import Command
from .output import UsageError, one_line

# Modules of this folder. They take precedence over commands of other packages.
_CORE = ("plugins", "envs", "info")
_BAD_INPUT = (UsageError, EnvIdError, EnvNotFound, PluginError, PolicyError, ActionError)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the arguments after ``steppe``; None for ``sys.argv``.

    Returns:
        The exit status: 0, 1 if a check failed, 2 if the input is wrong (one line on stderr), 130 after Ctrl-C.
    """
    argv = sys.argv[1:] if argv is None else argv
    name = argv[0] if argv and not argv[0].startswith("-") else ""
    program = f"steppe {name}".rstrip()
    try:
        try:
            args = _parsed(name, argv)
        except SystemExit as stop:  # --help, --version and wrong arguments
            return int(stop.code or 0)
        status: int = args.run(args)
        sys.stdout.flush()
        return status
    except _BAD_INPUT as error:
        print(f"{program}: {one_line(error)}", file=sys.stderr)
        return 2
    except SteppeError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader has closed the pipe (`steppe envs gym | head`); the flush at exit would raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print(f"{program}: interrupted", file=sys.stderr)
        return 130


class _Parser(argparse.ArgumentParser):
    """Print errors in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} ('{self.prog} --help' says more)\n")


def _parsed(name: str, argv: Sequence[str]) -> argparse.Namespace:
    parser = _Parser(prog="steppe", description="Environments of every library, found in what is installed.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)
    # Only the requested command is imported; for the help, the commands of the core.
    for each in [name] if name else _CORE:
        command = _find(each)
        command_parser = commands.add_parser(each, help=command.help)
        command.add_arguments(command_parser)
        command_parser.set_defaults(run=command.run)
    if not name:
        from ..registry.discovery import steppe_version

        version = f"steppe {steppe_version()}"
        parser.add_argument("--version", action="version", version=version, help="print the version and exit")
        _list_others(commands)
    args, unknown = parser.parse_known_args(argv)
    if unknown:  # print the usage of the command, and not of this parser, to which argparse leaves the error
        _Parser(prog=f"{parser.prog} {args.command}").error(f"unrecognized arguments: {' '.join(unknown)}")
    return args


def _find(name: str) -> Command:
    if name in _CORE:
        return cast(Command, import_module(f".{name}", __package__))
    from ..registry import current

    return cast(Command, current().find_command(name, core=_CORE))


def _list_others(commands: argparse._SubParsersAction[_Parser]) -> None:
    """Add the commands of installed packages to the help."""
    from ..registry import current

    registry = current()
    for name in registry.providers.names("command"):
        records = registry.providers.visible(registry.providers.found()["command"][name])
        if name not in _CORE:
            packages = sorted(f"{record.dist} {record.version}" for record in records)
            commands.add_parser(name, help=f"from {' and '.join(packages)}")
