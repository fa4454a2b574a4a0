from __future__ import annotations

import sys

import pytest

from steppe import errors
from steppe.registry import find_transform, list_plugins, list_transforms


@pytest.fixture
def vision(registry, fake_dist):
    fake_dist(
        "steppe-vision",
        "0.1.0",
        transforms={"Resize": "fake_vision:Resize", "Blur": "fake_vision:Blur"},
        files={"fake_vision.py": "class Resize: ...\n\nBlur = 3\n"},
    )


def test_a_transform_is_imported_when_its_name_is_asked_for(vision):
    assert list_transforms() == ["Blur", "Resize"]
    assert "fake_vision" not in sys.modules
    assert find_transform("Resize") is sys.modules["fake_vision"].Resize


def test_a_known_transform_says_what_to_install(registry):
    with pytest.raises(errors.TransformNotFound) as caught:
        find_transform("Resize")
    assert str(caught.value) == (
        "No installed package has the transform 'Resize'. It is in steppe-vision: pip install 'steppe[vision]'."
    )
    assert isinstance(caught.value, ImportError)


def test_an_unknown_name_is_an_attribute_error_with_a_suggestion(vision):
    with pytest.raises(AttributeError) as caught:
        find_transform("StepCountr", core=["StepCounter", "Compose"])
    assert str(caught.value) == (
        "module 'steppe.transforms' has no attribute 'StepCountr'. Did you mean 'StepCounter'?"
    )


def test_a_private_name_is_an_attribute_error_without_a_search(registry):
    with pytest.raises(AttributeError, match=r"has no attribute '__wrapped__'$"):
        find_transform("__wrapped__")


def test_a_conflict_is_for_that_name_only(vision, fake_dist):
    fake_dist("other-vision", "0.3", transforms={"Blur": "other_vision:Blur"})
    assert find_transform("Resize").__name__ == "Resize"
    with pytest.raises(errors.PluginConflict) as caught:
        find_transform("Blur")
    assert str(caught.value) == (
        "Two packages provide the transform 'Blur': other-vision 0.3 (other_vision:Blur) and "
        "steppe-vision 0.1.0 (fake_vision:Blur). Uninstall one, or hide it: STEPPE_DISABLE_PLUGINS=steppe-vision."
    )


def test_a_hidden_transform_says_so(vision, monkeypatch):
    monkeypatch.setenv("STEPPE_DISABLE_PLUGINS", "steppe-vision")
    with pytest.raises(errors.PluginBlocked) as caught:
        find_transform("Resize")
    assert str(caught.value) == (
        "Transform 'Resize' is installed (steppe-vision 0.1.0) but hidden by STEPPE_DISABLE_PLUGINS=steppe-vision."
    )


def test_hiding_the_namespace_of_a_package_hides_its_transforms_too(registry, fake_dist, monkeypatch):
    fake_dist(
        "steppe-acme",
        envs={"acme": "fake_acme"},
        transforms={"Shine": "fake_acme:Shine"},
        files={"fake_acme.py": "class Shine: ...\n"},
    )
    fake_dist("two", envs={"left": "two", "right": "two"}, transforms={"Turn": "two:Turn"})
    monkeypatch.setenv("STEPPE_DISABLE_PLUGINS", "acme,left")

    with pytest.raises(errors.PluginBlocked, match=r"'Shine' is installed .* hidden by STEPPE_DISABLE_PLUGINS=acme"):
        find_transform("Shine")
    assert list_transforms() == ["Turn"]
    monkeypatch.setenv("STEPPE_DISABLE_PLUGINS", "")
    monkeypatch.setenv("STEPPE_PLUGINS", "acme")
    assert list_transforms() == ["Shine"]


def test_an_entry_point_to_something_else_is_wrong_metadata(vision):
    with pytest.raises(errors.PluginBroken) as caught:
        find_transform("Blur")
    assert str(caught.value) == (
        "Transform 'Blur' (steppe-vision 0.1.0) names 'fake_vision:Blur', which is not a class: "
        "its package metadata is wrong."
    )


def test_requirements_are_checked_before_the_import(registry, fake_dist):
    fake_dist("blurry", "0.2", transforms={"Blur": "blurry:Blur"}, requires=["opticians>=2"])
    with pytest.raises(errors.LibraryMissing) as caught:
        find_transform("Blur")
    assert str(caught.value) == (
        "Transform 'Blur' (blurry 0.2) needs opticians>=2, which is not installed: pip install 'opticians>=2'."
    )


def test_an_env_plugin_and_a_transform_may_share_a_name(vision, fake_dist):
    fake_dist("acme-sim", envs={"Resize": "acme_sim"})
    assert [(record.kind, record.state) for record in list_plugins() if record.name == "Resize"] == [
        ("env", "available"),
        ("transform", "available"),
    ]


def test_a_planned_transform_is_named_as_planned(registry):
    with pytest.raises(errors.TransformNotFound) as caught:
        find_transform("Dream")
    assert str(caught.value) == (
        "No installed package has the transform 'Dream'. It is planned in steppe-dreams, which does not have it yet."
    )
