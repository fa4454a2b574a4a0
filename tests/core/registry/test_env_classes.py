"""Classes of environments of other packages: found by name in ``steppe.envs`` and in ``steppe``."""

from __future__ import annotations

import pytest

from steppe import errors
from steppe.registry import find_env_class, list_env_classes, list_plugins

SOURCE = """
class Burrow:
    pass
"""


@pytest.fixture
def burrow(registry, fake_dist):
    fake_dist(
        "steppe-burrow",
        "0.1.0",
        entry_points={"steppe.env_classes": {"Burrow": "fake_burrow:Burrow"}},
        files={"fake_burrow.py": SOURCE},
    )


def test_a_class_is_found_by_its_name(burrow):
    assert list_env_classes() == ["Burrow"]
    assert find_env_class("Burrow").__name__ == "Burrow"
    assert [(record.kind, record.name) for record in list_plugins()] == [("env class", "Burrow")]


def test_a_known_class_says_what_to_install(registry):
    with pytest.raises(errors.EnvClassNotFound) as caught:
        find_env_class("Den")
    assert str(caught.value) == (
        "No installed package has the class 'Den'. It is in steppe-den: pip install 'steppe[den]'."
    )
    assert isinstance(caught.value, ImportError)


def test_an_unknown_class_is_an_attribute_error_with_a_suggestion(burrow):
    with pytest.raises(AttributeError, match=r"'steppe\.envs' has no attribute 'Burow'\. Did you mean 'Burrow'\?"):
        find_env_class("Burow")


def test_a_hidden_package_and_a_broken_one_are_named(burrow, fake_dist, monkeypatch):
    fake_dist("steppe-holes", "0.1.0", entry_points={"steppe.env_classes": {"Hole": "fake_holes:Hole"}})
    with pytest.raises(errors.PluginBroken, match=r"^Env class 'Hole' \(steppe-holes 0\.1\.0\) names the module"):
        find_env_class("Hole")
    monkeypatch.setenv("STEPPE_DISABLE_PLUGINS", "steppe-burrow")
    with pytest.raises(errors.PluginBlocked, match=r"^Env class 'Burrow' is installed \(steppe-burrow 0\.1\.0\)"):
        find_env_class("Burrow")


def test_steppe_itself_finds_the_class_or_says_what_to_install(burrow):
    import steppe

    assert steppe.Burrow.__name__ == "Burrow"
    with pytest.raises(errors.EnvClassNotFound, match="steppe-den"):
        steppe.Den  # noqa: B018 - the access raises
    with pytest.raises(AttributeError, match="module 'steppe' has no attribute 'Burow'"):
        steppe.Burow  # noqa: B018 - the access raises
