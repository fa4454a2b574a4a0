"""Follow the author's guide: write its files, run its commands, compare the output.

    python tools/author.py FOLDER

works in a new folder, with the ``steppe`` and the ``python`` that are first on the path. The blocks of the guide are:

* Python or TOML whose first line is a comment with a path: the block is written to this path. If the file exists, the
  block is an excerpt: its lines must be in the file in this order; ``...`` stands for omitted lines.
* Other Python blocks are programs, which must run. Other TOML blocks must parse.
* ``console``: commands after ``$``, each with a part of its output, compared without spaces and line ends. All commands
  must succeed, except the last one of a block below ``<!-- fails -->``.
* ``diff``: breaks a file in one place. The console block below it has the output of the last command; afterwards the
  file is restored.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

GUIDE = Path(__file__).resolve().parent.parent / "docs/authors/write-a-plugin.md"

_BLOCK = re.compile(r"^(<!-- fails -->\n)?```(python|toml|console|diff)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LIMIT = 400.0  # time limit of a command in seconds; the conformance kit takes 20 s on an idle machine


class GuideError(Exception):
    """An error of the guide: a wrong file, command or output."""


@dataclass(frozen=True)
class Block:
    """A code block of the guide.

    Attributes:
        kind: ``python``, ``toml``, ``console`` or ``diff``.
        text: the text between the fences.
        fails: whether its last command must fail.
    """

    kind: str
    text: str
    fails: bool

    @property
    def path(self) -> str | None:
        """The file that the block contains, completely or in part."""
        first = re.match(r"# ([\w./-]+\.(?:py|toml))\n", self.text)
        return first[1] if first and self.kind in ("python", "toml") else None

    @property
    def body(self) -> str:
        """The text of the block without the line that names the file."""
        return self.text.partition("\n")[2] if self.path else self.text


def blocks(guide: Path = GUIDE) -> list[Block]:
    """Return the code blocks of the guide, in order."""
    text = guide.read_text(encoding="utf-8")
    return [Block(kind, body, bool(fails)) for fails, kind, body in _BLOCK.findall(text)]


def check_excerpt(block: Block, folder: Path) -> None:
    """Compare an excerpt with its file.

    Raises:
        GuideError: a line of the excerpt is missing, or in another place.
    """
    path = folder / str(block.path)
    lines = path.read_text(encoding="utf-8").splitlines()
    for part in re.split(r"^\s*\.\.\.\n", block.body, flags=re.MULTILINE):
        wanted = part.strip("\n").splitlines()
        starts = [i for i in range(len(lines) - len(wanted) + 1) if lines[i : i + len(wanted)] == wanted]
        if not starts:
            raise GuideError(f"{block.path} does not have these lines, in this order:\n{part}")
        lines = lines[starts[0] + len(wanted) :]


def check_output(command: str, expected: str, found: str) -> None:
    """Compare the output of a command with the output in the guide.

    Raises:
        GuideError: a part of the output is missing.
    """
    rest = " ".join(found.split())
    for part in re.split(r"^\s*\.\.\.$", expected, flags=re.MULTILINE):
        wanted = " ".join(part.split())
        if wanted not in rest:
            raise GuideError(f"$ {command}\nshould print\n  {wanted}\nand printed\n{found}")
        rest = rest[rest.index(wanted) + len(wanted) :]


def commands(block: Block) -> list[tuple[str, str]]:
    """Return the commands of a console block, each with its expected output."""
    found: list[tuple[str, str]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], ""))
        else:
            command, output = found[-1]
            found[-1] = (command, f"{output}{line}\n")
    return found


class Author:
    """Follow the guide in a folder: write files, run commands, break files.

    Args:
        folder: where to work.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.place = folder
        self.before: dict[Path, str] = {}  # contents of broken files before the change
        self.broken = 0

    def follow(self, block: Block) -> None:
        """Follow one block of the guide.

        Raises:
            GuideError: the result differs from the guide.
        """
        if block.kind == "console":
            self.run_all(block)
        elif block.kind == "diff":
            self.break_file(block.text)
        elif block.path is None and block.kind == "toml":
            tomllib.loads(block.text)
        elif block.path is None:
            self.run("a program", f"{sys.executable} -", succeeds=True, text=block.text)
        elif (self.folder / block.path).exists():
            check_excerpt(block, self.folder)
        else:
            (self.folder / block.path).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / block.path).write_text(block.body, encoding="utf-8")

    def run_all(self, block: Block) -> None:
        """Run the commands of a console block, and restore the file that was broken for it."""
        breaks = bool(self.before) or block.fails
        steps = commands(block)
        for number, (command, expected) in enumerate(steps, 1):
            if command.startswith("cd "):
                self.place = (self.place / command[3:]).resolve()
                continue
            fails = breaks and number == len(steps)
            check_output(command, expected, self.run(command, command, succeeds=not fails))
        self.broken += breaks
        again = [path for path in self.before if path.suffix == ".toml"]
        for path, text in self.before.items():
            path.write_text(text, encoding="utf-8")
        self.before.clear()
        if again:
            self.run("undo", "python -m pip install -e .", succeeds=True)

    def run(self, name: str, command: str, *, succeeds: bool, text: str | None = None) -> str:
        """Run a command in the shell and return its output."""
        print(f"$ {command}", flush=True)
        done = subprocess.run(
            command,
            shell=True,
            input=text,
            cwd=self.place,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_LIMIT,
            env=os.environ,
        )
        if (done.returncode == 0) is not succeeds:
            raise GuideError(f"{name} ended with status {done.returncode}:\n{text or ''}{done.stdout}")
        return done.stdout

    def break_file(self, diff: str) -> None:
        """Replace lines of a file as a diff says.

        The diff has one run of lines that begin with ``-``, and one of lines that begin with ``+``.
        """
        name = diff.partition("\n")[0].removeprefix("--- ")
        lines = diff.splitlines()[1:]
        old, new = ("".join(f"{line[1:]}\n" for line in lines if line.startswith((" ", sign))) for sign in ("-", "+"))
        path = self.folder / name
        text = path.read_text(encoding="utf-8")
        if text.count(old) != 1:
            raise GuideError(f"{name} has these lines {text.count(old)} times, and should have them once:\n{old}")
        self.before[path] = text
        path.write_text(text.replace(old, new), encoding="utf-8")


def main(arguments: list[str]) -> None:
    """Follow the guide in a folder."""
    folder = Path(arguments[0]).resolve()
    folder.mkdir(parents=True)
    author = Author(folder)
    for block in blocks():
        author.follow(block)
    print(f"the guide holds; broken and repaired in {author.broken} ways")


if __name__ == "__main__":
    main(sys.argv[1:])
