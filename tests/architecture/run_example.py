"""Run an example and compare its output: in this process, or as a program that reads the example from stdin."""

from __future__ import annotations

import doctest
import sys

__all__ = ["run"]


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


if __name__ == "__main__":
    sys.exit(run(sys.stdin.read(), sys.argv[1]) or None)
