"""Run an example and compare its output: in this process, or as a program that reads the example from stdin."""

from __future__ import annotations

import doctest
import os
import subprocess
import sys

__all__ = ["run", "run_in_child"]

#: Seconds that an example may take in a process of its own; on a quiet machine the longest takes 20.
LIMIT = 240.0


def run(text: str, name: str) -> str:
    """Return the differences of the output from the one shown; "" if there are none.

    Args:
        text: the example, or a docstring that contains it.
        name: the name that it shows.
    """
    names = {"__name__": "__main__"}  # as for a reader who copies the example into an interpreter
    example = doctest.DocTestParser().get_doctest(text, names, name, None, 0)
    printed: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS).run(example, out=printed.append)
    return "".join(printed)


def run_in_child(text: str, name: str) -> str:
    """Do the same in a process of its own, for a library that leaves something behind until its process ends."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, __file__, name]
    done = subprocess.run(command, input=text, env=environment, capture_output=True, text=True, timeout=LIMIT)
    return "" if done.returncode == 0 else done.stderr


if __name__ == "__main__":
    sys.exit(run(sys.stdin.read(), sys.argv[1]) or None)
