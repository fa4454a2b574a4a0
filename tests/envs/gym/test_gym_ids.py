"""The table of libraries in the README of steppe-gym says what their ids do."""

from __future__ import annotations

import importlib.util
import re
from importlib.metadata import version

import pytest

from tools.gym_ids import LIBRARIES, README, replaced, updated

TABLE = README.read_text(encoding="utf-8")


@pytest.mark.matrix
@pytest.mark.library
@pytest.mark.timeout(1000)  # tries each id, those of Procgen and Meta-World for minutes
@pytest.mark.parametrize("module", LIBRARIES)
def test_the_table_of_ids_is_what_a_library_does(module):
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    distribution = LIBRARIES[module].distribution
    if f"| {distribution} {version(distribution)} |" not in TABLE:
        pytest.skip(f"the table has another version of {distribution}")

    assert updated(TABLE, [module]) == TABLE, "run: python tools/gym_ids.py --write"


def test_the_table_has_a_line_for_each_library():
    rows = re.findall(r"^\| (\S+) \S+ \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", TABLE, re.MULTILINE)

    assert [row[0] for row in rows] == [library.distribution for library in LIBRARIES.values()]
    for name, ids, *results in rows:
        assert sum(map(int, results)) == int(ids) > 0, name


def test_a_new_line_replaces_the_one_of_its_library_alone():
    metaworld = "| metaworld 2.0 | 1 | 1 | 0 | 0 |"
    old = f"| minigrid 1.0 | 3 | 1 | 1 | 1 |\n{metaworld}\n\n* minigrid: x (`A`).\n* metaworld: y (`B`).\n"

    new = replaced(old, "minigrid", "| minigrid 1.1 | 3 | 3 | 0 | 0 |", [])

    assert new.splitlines()[2:] == [
        "| minigrid 1.1 | 3 | 3 | 0 | 0 |",
        "| metaworld 2.0 | 1 | 1 | 0 | 0 |",
        "",
        "* metaworld: y (`B`).",
    ]
