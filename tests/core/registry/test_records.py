"""Records of plugins and libraries."""

from __future__ import annotations

import pytest

from steppe.registry import list_plugins
from steppe.registry.records import GROUPS, canonical


@pytest.mark.parametrize(("name", "expected"), [("Steppe_Gym", "steppe-gym"), ("a.b", "a-b"), ("x--y", "x-y")])
def test_names_of_packages_have_one_spelling(name, expected):
    assert canonical(name) == expected


def test_a_record_names_its_package_and_kind():
    records = {record.name: record for record in list_plugins() if record.kind == "env"}

    assert records["gym"].dist == "steppe-gym"
    assert "gym" in records["gym"].label
    assert {record.kind for record in list_plugins()} <= set(GROUPS.values())
