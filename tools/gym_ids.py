"""Try the environments of libraries that are used through ``gym:``, and keep the table of the README of steppe-gym.

    python tools/gym_ids.py                 print the lines of the installed libraries
    python tools/gym_ids.py --write         write them to the README
    python tools/gym_ids.py --check         fail if the README has other lines for them

The newest version of each id is made, compared with its specs in random steps, and rolled out, in a process for each
library, or for each id. Libraries that are not installed keep their lines.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import warnings
from collections import defaultdict
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from steppe.systems import render_without_display

README = Path(__file__).resolve().parent.parent / "packages/envs/gym/README.md"

_STEPS = 20
_LIMIT = 900.0  # time limit of a library in seconds
_TABLE = re.compile(r"(<!-- gym ids -->\n).*?(<!-- end of gym ids -->)", re.DOTALL)
_HEAD = "| Library | ids | on rows of arrays | on TensorDicts | fail |\n|---|---|---|---|---|\n"
_VECTOR = {"vectorization_mode": "vector_entry_point"}


@dataclass(frozen=True)
class Library:
    """A library whose environments are made through ``gym:``.

    Attributes:
        distribution: name of its distribution.
        arguments: arguments of its ids, by a pattern of ids; the first one that matches counts.
        prefix: text before each id.
        backend: ``gym`` or ``gymnasium``.
        takes_seed: whether a reset of its environments takes a seed.
        process_per_id: try each environment in a process of its own.
    """

    distribution: str
    arguments: dict[str, dict[str, Any]] = field(default_factory=dict)
    prefix: str = ""
    backend: str = "gymnasium"
    takes_seed: bool = True
    process_per_id: bool = False


LIBRARIES = {
    "minigrid": Library("minigrid"),
    "miniworld": Library("miniworld"),
    "gymnasium_robotics": Library("gymnasium-robotics"),
    "metaworld": Library(
        "metaworld",
        {
            r".*/MT1$": {"env_name": "reach-v3"},
            r".*/goal_": {"env_name": "drawer-open-v3", "seed": 1},
            r".*/MT(\d+)$": {"num_envs": 10, **_VECTOR},
            r".*/ML1-": {"env_name": "push-v3", "num_envs": 10, "meta_batch_size": 10, **_VECTOR},
            r".*/ML\d+-test": {"num_envs": 5, "meta_batch_size": 5, **_VECTOR},
            r".*/ML10-": {"num_envs": 10, "meta_batch_size": 10, **_VECTOR},
            r".*/ML25-": {"num_envs": 25, "meta_batch_size": 25, **_VECTOR},
            r".*/ML45-": {"num_envs": 45, "meta_batch_size": 45, **_VECTOR},
            r".*/custom-mt": {
                "num_envs": 2,
                "vector_strategy": "sync",
                "envs_list": ["reach-v3", "push-v3"],
                **_VECTOR,
            },
            r".*/custom-ml": {
                "num_envs": 10,
                "meta_batch_size": 10,
                "vector_strategy": "sync",
                "train_envs": ["reach-v3"],
                "test_envs": ["push-v3"],
                **_VECTOR,
            },
        },
    ),
    "procgen": Library(
        "procgen-mirror",
        {"": {"apply_api_compatibility": True, "rand_seed": 0}},
        prefix="procgen:",
        backend="gym",
        takes_seed=False,
        process_per_id=True,  # gym3 waits for itself if an old environment is freed while another is made
    ),
}


def ids_of(module: str) -> list[str]:
    """Return the newest version of each id that a library registers."""
    library = LIBRARIES[module]
    render_without_display()  # miniworld opens a window when it is imported
    backend = import_module(library.backend)
    before = set(backend.envs.registration.registry)
    extension = import_module(module)
    if hasattr(extension, "register_robotics_envs"):
        extension.register_robotics_envs()
    newest: dict[str, str] = {}
    number = re.compile(r"-v(\d+)$")
    for name in sorted({*backend.envs.registration.registry} - before):
        base, found = number.sub("", name), number.search(name)
        old = number.search(newest.get(base, ""))
        if old is None or found is None or int(found[1]) > int(old[1]):
            newest[base] = name
    return list(newest.values())


def attempt(library: Library, name: str) -> tuple[str, str]:
    """Make and step an environment.

    Returns ``"rows"``, ``"TensorDicts"`` or ``"fail"``, and a remark or an error.
    """
    from steppe import check_env_specs, make_env
    from steppe.errors import SpecError

    kwargs = next((found for pattern, found in library.arguments.items() if re.match(pattern, name)), {})
    env = None
    remark = ""
    try:
        env = make_env(f"gym:{library.prefix}{name}", backend=library.backend, **kwargs)
        if library.takes_seed:
            env.set_seed(0)
        if re.match(r".*/(ML|custom-ml)", name):
            env.call("sample_tasks")  # before the first reset, as the library's own users do
        try:
            check_env_specs(env)
        except SpecError as error:
            if "must lie in" not in str(error):
                raise
            remark = "observations leave the space that the library declares"
        env.rollout(_STEPS, break_when_any_done=False)
        return "rows" if env.no_row_writer_reason is None else "TensorDicts", remark
    except Exception as error:
        missing = (
            re.search(r"site-packages/(\S+)/[^/\s]+'", str(error)) if isinstance(error, FileNotFoundError) else None
        )
        if missing is not None:
            return "fail", f"its wheel lacks files of {missing[1]}"
        text = " ".join(str(error).split("\nwhile making")[0].split())
        return "fail", f"{type(error).__name__}: {text[:120]}".rstrip(": ")
    finally:
        if env is not None:
            env.close(raise_if_closed=False)


def report(module: str, *names: str) -> dict[str, tuple[str, str]]:
    """Try some ids of a library, or all: id -> result and remark."""
    warnings.filterwarnings("ignore")
    library, found = LIBRARIES[module], ids_of(module)
    if names or not library.process_per_id:
        return {name: attempt(library, name) for name in names or found}
    return {name: result for each in found for name, result in answer(module, each).items()}


def answer(*what: str) -> dict[str, tuple[str, str]]:
    """Return the report of a process: of a library, or of a library and one of its ids."""
    command = [sys.executable, __file__, "--answer", *what]
    env = {**os.environ, "MUJOCO_GL": "egl"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT, env=env)
    if done.returncode:
        raise SystemExit(f"{' '.join(what)}: {done.stderr[-2000:]}")
    # Libraries print while they are imported, so the answer is the last line.
    found: dict[str, tuple[str, str]] = json.loads(done.stdout.splitlines()[-1])
    return found


def lines_of(module: str) -> tuple[str, list[str]]:
    """Return the row of a library in the table, and its remarks."""
    answers = answer(module)
    results = [result for result, _ in answers.values()]
    title = f"{LIBRARIES[module].distribution} {version(LIBRARIES[module].distribution)}"
    counts = " | ".join(str(results.count(result)) for result in ("rows", "TensorDicts", "fail"))
    named = defaultdict(list)
    for name, (_, remark) in answers.items():
        if remark:
            named[remark].append(name)
    remarks = [
        f"* {LIBRARIES[module].distribution}: {remark} (`{names[0]}`"
        + (f" and {len(names) - 1} more)." if len(names) > 1 else ").")
        for remark, names in named.items()
    ]
    return f"| {title} | {len(answers)} | {counts} |", remarks


def replaced(text: str, module: str, row: str, remarks: list[str]) -> str:
    """Return the table with other lines for a library."""
    name = LIBRARIES[module].distribution
    rows = {line.split()[1]: line for line in text.splitlines() if line.startswith("| ") and "Library" not in line}
    others = [line for line in text.splitlines() if line.startswith("* ") and not line.startswith(f"* {name}:")]
    rows[name] = row
    order = [library.distribution for library in LIBRARIES.values()]
    lines = [rows[each] for each in order if each in rows]
    notes = sorted([*others, *remarks], key=lambda line: order.index(line[2:].partition(":")[0]))
    return _HEAD + "\n".join(lines) + "\n" + ("\n" + "\n".join(notes) + "\n" if notes else "")


def updated(readme: str, modules: list[str]) -> str:
    """Return the README with a new table for these libraries."""
    found = _TABLE.search(readme)
    if found is None:
        raise SystemExit(f"{README} has no table between the comments 'gym ids' and 'end of gym ids'")
    text = found[0].removeprefix(found[1]).removesuffix(found[2])
    for module in modules:
        text = replaced(text, module, *lines_of(module))
    return _TABLE.sub(lambda match: match[1] + text + match[2], readme)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", help=f"modules of libraries: {', '.join(LIBRARIES)}; all by default")
    parser.add_argument("--write", action="store_true", help="write the table to the README")
    parser.add_argument("--check", action="store_true", help="fail if the README has another table")
    parser.add_argument("--answer", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.answer:
        print(json.dumps(report(*args.modules)))
        return
    modules = [module for module in args.modules or LIBRARIES if find_spec(module) is not None]
    old = README.read_text(encoding="utf-8")
    new = updated(old, modules)
    if args.write:
        README.write_text(new, encoding="utf-8")
    elif args.check and new != old:
        raise SystemExit(
            f"{README} has another table; run tools/gym_ids.py --write. It should be:\n{_TABLE.search(new)[0]}"
        )
    else:
        print(_TABLE.search(new)[0])


if __name__ == "__main__":
    main()
