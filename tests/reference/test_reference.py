"""All classes and code paths return the recorded data.

``python -m tests.reference.record`` makes records anew, where data is meant to change, and prints what has changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.reference.cases import CASES
from tests.reference.known_wrong import KNOWN_WRONG, Known, known_of
from tests.reference.programs import PROGRAMS
from tests.reference.record import FOLDER, record_name
from tests.reference.record_format import Record, differences, load
from tests.reference.ways import Players, ways_of

_RECORDS: dict[str, dict[str, Record]] = {}


@pytest.fixture(scope="module")
def players(request: pytest.FixtureRequest) -> Iterator[Players]:
    """The environments of a case in one way; tests that share them come one after the other."""
    made = Players(*request.param)
    yield made
    made.close()


def recorded(name: str, chain: str | None, program: str, way: str) -> Record:
    if name not in _RECORDS:
        _RECORDS[name] = load(FOLDER / f"{name}.xz")
    record = _RECORDS[name][record_name(chain, program, way)]
    if program == "rollout":  # a rollout ends without data to act on
        return {path: value for path, value in record.items() if not path.startswith("last/")}
    return record


def is_quick(name: str, chain: str | None, way: str) -> bool:
    """Whether a case is run with every change's tests, and not only at length."""
    if chain != "counted" or way == "parallel, outside":
        return False
    return not way.startswith("parallel") or name in ("cartpole", "dict", "arrays", "agents", "text")


def comparisons() -> Iterator[Any]:
    """Return all comparisons, without those known to be completely wrong."""
    quick = [pytest.mark.slow]  # all of them together
    for name, chain in CASES:
        for way in ways_of(chain):
            marks = quick if is_quick(name, chain, way) else [pytest.mark.exhaustive]
            for program, chosen in PROGRAMS.items():
                known = known_of(name, chain, way, program)
                if chosen.fits(name, chain) and not any(one.paths is None for one in known):
                    where = (name, chain, way)
                    yield pytest.param(where, program, marks=marks, id=f"{name}, {chain}, {way}, {program}")


@pytest.mark.parametrize(("players", "program"), list(comparisons()), indirect=["players"])
def test_data_is_as_recorded(players: Players, program: str) -> None:
    where = (players.name, players.chain, players.way)
    known = known_of(*where, program)

    found = differences(players.run(program), recorded(players.name, players.chain, program, players.way))

    assert [line for line in found if not any(one.says(line) for one in known)] == []


@pytest.mark.parametrize(
    "known",
    [
        pytest.param(known, marks=pytest.mark.xfail(strict=True, reason=known.reason), id=known.reason)
        for known in KNOWN_WRONG
    ],
)
def test_known_faults_of_the_records_are_right_here(known: Known) -> None:
    name, chain, way, program = known.example
    players = Players(name, chain, way)
    try:
        found = differences(players.run(program), recorded(name, chain, program, way))
    finally:
        players.close()

    assert [line for line in found if known.says(line)] == []


def test_examples_are_of_what_they_are_examples_of() -> None:
    assert [known.reason for known in KNOWN_WRONG if known not in known_of(*known.example)] == []


def test_every_record_is_compared() -> None:
    expected = {
        (name, record_name(chain, program, way))
        for name, chain in CASES
        for way in ways_of(chain)
        for program, chosen in PROGRAMS.items()
        if chosen.fits(name, chain)
    }
    names = {name for name, _ in CASES}

    assert {path.stem for path in FOLDER.glob("*.xz")} == names
    assert {(name, key) for name in names for key in load(FOLDER / f"{name}.xz")} == expected
