"""Write the page of errors: when each is raised (its docstring), what to do (docs/errors.toml), and its text."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from tools.workspace import read_toml

__all__ = ["classes", "page"]


def classes() -> list[type[BaseException]]:
    """Return all exceptions and warnings of ``steppe.errors``, each base before its subclasses."""
    import steppe.errors

    found = [
        value
        for name in steppe.errors.__all__
        if inspect.isclass(value := getattr(steppe.errors, name)) and issubclass(value, BaseException)
    ]
    lines, _ = inspect.getsourcelines(steppe.errors)
    order = {line.split()[1].partition("(")[0]: place for place, line in enumerate(lines) if line.startswith("class ")}
    return sorted(found, key=lambda each: order[each.__name__])


def page(docs: Path) -> str:
    """Return the page in reStructuredText.

    Args:
        docs: the folder with errors.toml, which has a table for each class: ``fix``, and for most of them ``program``
            and the ``text`` that it prints.
    """
    table = read_toml(docs / "errors.toml")
    parts = [
        "Errors\n======\n",
        "Every error that steppe raises on purpose is a ``SteppeError``, and also the built-in exception that you "
        "would catch: ``except ValueError`` catches a ``SpecError``. The text says what was asked, what was found, and "
        "what to write instead.\n",
    ]
    for each in classes():
        entry = table[each.__name__]
        bases = ", ".join(f"``{base.__name__}``" for base in each.__bases__ if base is not Exception)
        parts += [each.__name__, "-" * len(each.__name__), ""]
        parts += [f"*Also:* {bases}\n"] if bases else []
        parts += [f"**When.** {inspect.cleandoc(each.__doc__ or '').partition(chr(10) * 2)[0]}\n"]
        parts += [f"**What to do.** {_literals(entry['fix'].strip())}\n"]
        if "program" in entry:
            parts += [".. code-block:: python\n", _indented(entry["program"]), ""]
            parts += [".. code-block:: text\n", _indented(entry["text"]), ""]
        parts += [f"API: :class:`steppe.errors.{each.__name__}`\n"]
    return "\n".join(parts)


def _literals(text: str) -> str:
    """Return Markdown text, whose only markup is code in backticks, in reStructuredText."""
    return re.sub(r"`([^`]+)`", r"``\1``", text)


def _indented(text: str) -> str:
    return "".join(f"   {line}".rstrip() + "\n" for line in text.strip().splitlines())
