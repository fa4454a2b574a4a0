"""The commands, and what every one of them does with an error."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

from ..errors import ActionError, EnvIdError, EnvNotFound, PluginError, PolicyError, SteppeError
from .output import UsageError, one_line

_COMMANDS = ("plugins", "envs", "info", "check", "collect", "record", "new-plugin")
_BAD_INPUT = (UsageError, EnvIdError, EnvNotFound, PluginError, PolicyError, ActionError)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the arguments after ``steppe``; None for those of the process.

    Returns:
        The exit status: 0, 1 where a check failed, 2 where the input is wrong (one line on stderr), 130 after Ctrl-C.
    """
    try:
        argv = sys.argv[1:] if argv is None else argv
        parser = _parser(argv)
        args, unknown = parser.parse_known_args(argv)
        if unknown:  # the parser of the command leaves them to this one, whose help does not say what the command takes
            _Parser(prog=f"{parser.prog} {args.command}").error(f"unrecognized arguments: {' '.join(unknown)}")
    except SystemExit as stop:  # --help, --version and wrong arguments
        return int(stop.code or 0)
    try:
        status: int = args.run(args)
        sys.stdout.flush()
        return status
    except _BAD_INPUT as error:
        print(f"steppe {args.command}: {one_line(error)}", file=sys.stderr)
        return 2
    except SteppeError as error:
        print(f"steppe {args.command}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader has gone (`steppe envs gym | head`); Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print(f"steppe {args.command}: interrupted", file=sys.stderr)
        return 130


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} ('{self.prog} --help' says more)\n")


class _Version(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        from ..registry.discovery import steppe_version

        print(f"steppe {steppe_version()}")
        parser.exit()


def _parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    parser = _Parser(prog="steppe", description="Environments of every library, found in what is installed.")
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)
    # Each command is a module: only the one that is asked for is imported, all of them for the help.
    for name in argv[:1] if argv and argv[0] in _COMMANDS else _COMMANDS:
        import_module(f".{name.replace('-', '_')}", __package__).add(commands)
    return parser
