"""Keys of entries: names, and tuples of names."""

from __future__ import annotations

import pytest

from steppe.specs import as_path, is_key


@pytest.mark.parametrize(
    ("key", "path"), [("x", ("x",)), (("a", "b"), ("a", "b")), ((("a", "b"), "c"), ("a", "b", "c"))]
)
def test_a_path_lists_the_names_of_a_key(key, path):
    assert as_path(key) == path


@pytest.mark.parametrize(
    ("value", "expected"), [("x", True), (("a", "b"), True), (3, False), ((), False), (("a", 1), False)]
)
def test_names_and_tuples_of_names_are_keys(value, expected):
    assert is_key(value) is expected
