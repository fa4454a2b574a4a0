from __future__ import annotations

import pytest
from packaging.requirements import Requirement

from steppe.errors import LibraryMissing, LibraryVersionError
from steppe.registry import Alternative, PluginRecord
from steppe.registry.requirements import Installed, check, requirement_text, split


def record(*requires, alternatives=()):
    return PluginRecord("env", "acme", "acme", "acme-sim", "2.1", requires=requires, alternatives=alternatives)


def check_with(one, installed, steppe="0.1.0"):
    found = {name: Installed(version, "/lib") for name, version in installed.items()}
    check(one, installed=found.get, steppe_version=steppe)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("gym<0.27,>=0.13", "gym>=0.13,<0.27"),
        ("a!=1.5,<2,>1", "a>1,!=1.5,<2"),
        ("a[y,x]>=1; python_version > '3'", "a[x,y]>=1"),
        ("a @ file:///tmp/a", "a @ file:///tmp/a"),
        ("a", "a"),
    ],
)
def test_requirements_are_shown_as_a_person_writes_them(text, shown):
    assert requirement_text(Requirement(text)) == shown


def test_optional_extras_and_other_platforms_are_not_needed():
    needed, choices = split("acme-sim", ["a>=1", "b; extra == 'docs'", "c; sys_platform == 'nowhere'"], extras=["docs"])
    assert (needed, choices) == (("a>=1",), ())


def test_an_alternative_of_two_packages_stays_together():
    lines = ["a; extra == 'any-of'", "b; extra == 'any-of'", "c; extra == 'any-of'"]
    lines += ["a; extra == 'two'", "b; extra == 'two'", "c; extra == 'one'"]
    _, choices = split("acme-sim", lines, extras=["any-of", "one", "two"], preferred=["two"])
    assert choices == (Alternative("acme-sim[two]", ("a", "b")), Alternative("acme-sim[one]", ("c",)))


def test_an_alternative_without_an_extra_is_installed_by_name():
    _, choices = split("acme-sim", ["a>=1; extra == 'any-of'"], extras=["any-of"])
    assert choices == (Alternative("a>=1", ("a>=1",)),)


def test_a_self_reference_may_go_over_another_extra():
    lines = ["acme_sim[all]; extra == 'any-of'", "acme-sim[one]; extra == 'all'", "c; extra == 'one'"]
    _, choices = split("acme-sim", lines, extras=["all", "any-of", "one"])
    assert choices == (Alternative("acme-sim[all]", ("c",)),)


def test_alternatives_come_in_the_order_of_any_of():
    lines = ["acme-sim[two]; extra == 'any-of'", "acme-sim[one]; extra == 'any-of'"]
    lines += ["a; extra == 'one'", "b; extra == 'two'"]
    _, choices = split("acme-sim", lines, extras=["any-of", "one", "two"])
    assert choices == (Alternative("acme-sim[two]", ("b",)), Alternative("acme-sim[one]", ("a",)))


def test_installed_versions_in_range_pass():
    check_with(record("steppe>=0.1,<0.2", "Acme_Engine>=1"), {"Acme_Engine": "1.5"})


def test_prereleases_count_by_their_order():
    check_with(record("a>=1"), {"a": "1.1rc1"})
    with pytest.raises(LibraryVersionError):
        check_with(record("a>=1.1"), {"a": "1.1rc1"})


def test_an_invalid_version_is_left_to_the_plugin():
    check_with(record("a>=1"), {"a": "unknown"})


def test_an_unknown_steppe_is_not_checked():
    check_with(record("steppe>=9"), {}, steppe=None)


def test_one_alternative_is_enough_whatever_the_other_is():
    choices = (Alternative("a", ("a>=1",)), Alternative("b", ("b>=1",)))
    check_with(record(alternatives=choices), {"a": "0.5", "b": "1.0"})


def test_an_incomplete_alternative_does_not_count():
    choices = (Alternative("acme-sim[two]", ("a", "b")),)
    with pytest.raises(LibraryMissing, match=r"needs a and b; it is not installed: pip install 'acme-sim\[two\]'"):
        check_with(record(alternatives=choices), {"a": "1.0"})


def test_a_missing_library_is_an_import_error():
    with pytest.raises(ImportError):
        check_with(record("a"), {})
