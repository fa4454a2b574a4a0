"""Collectors, agents and actors of other packages: found by name in ``steppe.collectors`` and in ``steppe``."""

from __future__ import annotations

import pytest

from steppe import errors
from steppe.registry import find_collector, list_collectors, list_plugins

SOURCE = """
class Flock:
    pass
"""


@pytest.fixture
def flock(registry, fake_dist):
    fake_dist(
        "steppe-flock",
        "0.1.0",
        entry_points={"steppe.collectors": {"Flock": "fake_flock:Flock"}},
        files={"fake_flock.py": SOURCE},
    )


def test_a_class_is_found_by_its_name(flock):
    assert list_collectors() == ["Flock"]
    assert find_collector("Flock").__name__ == "Flock"
    assert [(record.kind, record.name) for record in list_plugins()] == [("collector", "Flock")]


def test_a_known_class_says_what_to_install(registry):
    with pytest.raises(errors.CollectorNotFound) as caught:
        find_collector("Herd")
    assert str(caught.value) == (
        "No installed package has the class 'Herd'. It is in steppe-herd: pip install 'steppe[herd]'."
    )
    assert isinstance(caught.value, ImportError)


def test_an_unknown_class_is_an_attribute_error_with_a_suggestion(flock):
    with pytest.raises(AttributeError, match=r"has no attribute 'Flok'\. Did you mean 'Flock'\?"):
        find_collector("Flok")


def test_two_packages_with_one_class_are_a_conflict(flock, fake_dist):
    fake_dist("other-flock", "3.0", entry_points={"steppe.collectors": {"Flock": "other:Flock"}})
    with pytest.raises(errors.PluginConflict, match=r"'Flock': other-flock 3\.0 .* and steppe-flock"):
        find_collector("Flock")


def test_steppe_itself_finds_the_class_or_says_what_to_install(flock):
    import steppe

    assert steppe.Flock.__name__ == "Flock"
    with pytest.raises(errors.CollectorNotFound, match="steppe-herd"):
        steppe.Herd  # noqa: B018 - the access raises
    with pytest.raises(AttributeError, match="module 'steppe' has no attribute 'Flok'"):
        steppe.Flok  # noqa: B018 - the access raises
