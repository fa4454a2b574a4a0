"""Write the page of the command line from the parsers of the commands."""

from __future__ import annotations

import os

from steppe.cli import main
from tools.workspace import packages

__all__ = ["names", "page"]

#: Commands of the core; those of other packages are entry points.
_CORE = ("envs", "info", "plugins")


def names() -> dict[str, str]:
    """Return the package of each command of this repository, by its name."""
    found = dict.fromkeys(_CORE, "steppe")
    for package in packages():
        found |= dict.fromkeys(package.entry_points("steppe.commands"), package.name)
    return dict(sorted(found.items()))


def page() -> str:
    """Return the page in Markdown."""
    os.environ["COLUMNS"] = "100"  # the width that argparse wraps to
    parts = [
        "# Command line\n",
        "`steppe --help` lists the commands of all installed packages, and `steppe COMMAND --help` prints these texts. "
        "The exit status is 0, 1 if a check failed, 2 if the input is wrong, and 130 after Ctrl-C.\n",
    ]
    for name, package in names().items():
        extra = package.removeprefix("steppe-")
        parts += [f"## steppe {name}\n"]
        parts += [f"`pip install 'steppe[{extra}]'`\n"] if package != "steppe" else []
        parts += ["```text", _help(name).strip(), "```\n"]
    return "\n".join(parts)


def _help(name: str) -> str:
    import contextlib
    import io

    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        status = main([name, "--help"])
    if status:
        raise RuntimeError(f"`steppe {name} --help` ended with status {status}.")
    return text.getvalue()
