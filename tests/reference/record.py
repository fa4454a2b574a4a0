"""Record the data of the current code.

Run ``python -m tests.reference.record [ENVIRONMENT ...]`` in the repository's root.

The data of single environments is recorded; all classes are compared with it. Each difference from the old records is
printed. Read all of them before you commit.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.reference.cases import CASES, ENVIRONMENTS
from tests.reference.known_wrong import KNOWN_WRONG, known_of
from tests.reference.programs import PROGRAMS
from tests.reference.record_format import Record, differences, load, save
from tests.reference.ways import Players, ways_of

__all__ = ["FOLDER", "record_name"]

FOLDER = Path(__file__).with_name("data")


def record_name(chain: str | None, program: str, way: str) -> str:
    """The name of the record that a program's data is compared with."""
    chosen = PROGRAMS[program]
    alone = ", alone" if chosen.apart and way == "alone" else ""
    return f"{chain or 'bare'}, {chosen.record}{alone}"


def record(name: str) -> dict[str, Record]:
    """Play everything that is recorded of an environment."""
    records: dict[str, Record] = {}
    for chain in (chain for other, chain in CASES if other == name):
        for way in ways_of(chain):
            players = Players(name, chain, way)
            for program, chosen in PROGRAMS.items():
                key = record_name(chain, program, way)
                # The first way and program that are not known to be wrong: mostly that of an environment alone.
                if chosen.fits(name, chain) and key not in records and not known_of(name, chain, way, program):
                    records[key] = players.run(program)
            players.close()
    return records


def main(names: list[str]) -> None:
    """Record some environments, or all."""
    FOLDER.mkdir(exist_ok=True)
    for name in names or ENVIRONMENTS:
        path = FOLDER / f"{name}.xz"
        before = load(path) if path.exists() else {}
        after = record(name)
        for key in sorted(before.keys() | after.keys()):
            if key not in after or key not in before:
                print(f"{name} | {key}: {'new' if key in after else 'gone'}")
                continue
            for line in differences(after[key], before[key]):
                print(f"{name} | {key}: {line}")
        save(path, after)
    if KNOWN_WRONG:
        print(f"{len(KNOWN_WRONG)} known mistakes are recorded as they should be (tests/reference/known_wrong.py).")


if __name__ == "__main__":
    main(sys.argv[1:])
