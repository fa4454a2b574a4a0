"""Classes that packages add by entry points: lookup, lists, errors."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import steppe
import steppe.loggers
from steppe import errors
from steppe.registry import find_class, list_classes, list_plugins


class Kind(NamedTuple):
    """A kind of classes: its lookup, and a known name of a missing package."""

    name: str
    noun: str
    group: str
    known: str
    package: str
    error: type[Exception]
    module: str

    def find(self, name: str) -> Any:
        return find_class(self.name, name)

    def listed(self) -> list[str]:
        return list_classes(self.name)


KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            "collector", "class", "steppe.collectors",
            "Herd", "steppe-herd", errors.ClassNotFound, "steppe.collectors",
        ),
        Kind(
            "env class", "class", "steppe.env_classes",
            "Den", "steppe-den", errors.ClassNotFound, "steppe.envs",
        ),
        Kind(
            "function", "function", "steppe.functions",
            "howl", "steppe-wolf", errors.ClassNotFound, "steppe",
        ),
        Kind(
            "logger", "logger", "steppe.loggers",
            "StoneLogger", "steppe-quarry", errors.ClassNotFound, "steppe.loggers",
        ),
        Kind(
            "transform", "transform", "steppe.transforms",
            "Resize", "steppe-vision", errors.TransformNotFound, "steppe.transforms",
        ),
    )
}  # fmt: skip


@pytest.fixture(params=KINDS.values(), ids=KINDS.keys())
def kind(request, registry) -> Kind:
    return request.param


@pytest.fixture
def own(kind, fake_dist):
    """A package with two names of the kind, of which one is no class."""
    names = {"OwnLogger": "fake_own:OwnLogger", "Blur": "fake_own:Blur"}
    source = "class OwnLogger: ...\n\nBlur = 3\n"
    fake_dist("steppe-own", "0.1.0", entry_points={kind.group: names}, files={"fake_own.py": source})


def text_of(error: type[Exception], call: Callable[..., Any], *args: Any) -> str:
    with pytest.raises(error) as caught:
        call(*args)
    return str(caught.value)


def test_a_class_is_imported_at_the_first_use_of_its_name(kind, own):
    assert kind.listed() == ["Blur", "OwnLogger"]
    assert [(record.kind, record.name) for record in list_plugins()] == [(kind.name, "Blur"), (kind.name, "OwnLogger")]
    assert "fake_own" not in sys.modules
    assert kind.find("OwnLogger") is sys.modules["fake_own"].OwnLogger


def test_a_known_class_says_what_to_install(kind):
    assert issubclass(kind.error, ImportError)
    assert text_of(kind.error, kind.find, kind.known) == (
        f"No installed package has the {kind.noun} '{kind.known}'. It is in {kind.package}: "
        f"pip install 'steppe[{kind.package.removeprefix('steppe-')}]'."
    )


def test_an_unknown_class_is_an_error_with_a_suggestion(kind, own):
    assert text_of(AttributeError, kind.find, "OwnLoger") == (
        f"module '{kind.module}' has no attribute 'OwnLoger'. Did you mean 'OwnLogger'?"
    )


def test_a_conflict_is_for_that_name_only(kind, own, fake_dist):
    fake_dist("other-own", "0.3", entry_points={kind.group: {"Blur": "other:Blur"}})

    assert kind.find("OwnLogger").__name__ == "OwnLogger"
    assert text_of(errors.PluginConflict, kind.find, "Blur") == (
        f"Two packages provide the {kind.name} 'Blur': other-own 0.3 (other:Blur) and "
        "steppe-own 0.1.0 (fake_own:Blur). Uninstall one, or hide it: STEPPE_DISABLE_PLUGINS=steppe-own."
    )


def test_a_hidden_class_is_an_error_with_the_reason(kind, own, monkeypatch):
    monkeypatch.setenv("STEPPE_DISABLE_PLUGINS", "steppe-own")

    assert text_of(errors.PluginBlocked, kind.find, "Blur") == (
        f"{kind.name.capitalize()} 'Blur' is installed (steppe-own 0.1.0) but hidden by "
        "STEPPE_DISABLE_PLUGINS=steppe-own."
    )
    assert kind.listed() == []


def test_wrong_metadata_is_named(kind, own, fake_dist):
    fake_dist("steppe-holes", "0.1.0", entry_points={kind.group: {"Hole": "fake_holes:Hole"}})

    assert text_of(errors.PluginBroken, kind.find, "Blur") == (
        f"{kind.name.capitalize()} 'Blur' (steppe-own 0.1.0) names 'fake_own:Blur', which cannot be called: "
        "its package metadata is wrong."
    )
    text = text_of(errors.PluginBroken, kind.find, "Hole")
    assert text.startswith(f"{kind.name.capitalize()} 'Hole' (steppe-holes 0.1.0) names the module")


def test_requirements_are_checked_before_the_import(kind, fake_dist):
    fake_dist("blurry", "0.2", entry_points={kind.group: {"Blur": "blurry:Blur"}}, requires=["opticians>=2"])

    assert text_of(errors.LibraryMissing, kind.find, "Blur") == (
        f"{kind.name.capitalize()} 'Blur' (blurry 0.2) needs opticians>=2, which is not installed: "
        "pip install 'opticians>=2'."
    )


@pytest.mark.parametrize("kind", [KINDS["collector"], KINDS["env class"]], ids=["collector", "env class"])
def test_steppe_itself_finds_the_class_or_says_what_to_install(kind, registry, own):
    assert steppe.OwnLogger.__name__ == "OwnLogger"
    assert kind.package in text_of(kind.error, getattr, steppe, kind.known)
    assert text_of(AttributeError, getattr, steppe, "OwnLoger").startswith(
        "module 'steppe' has no attribute 'OwnLoger'"
    )


# -- transforms -------------------------------------------------------------------------------------------------------


def test_names_of_the_core_are_suggested(registry):
    assert text_of(AttributeError, lambda: find_class("transform", "StepCountr", core=["StepCounter", "Compose"])) == (
        "module 'steppe.transforms' has no attribute 'StepCountr'. Did you mean 'StepCounter'?"
    )


def test_a_private_name_is_an_attribute_error_without_a_search(registry):
    with pytest.raises(AttributeError, match=r"has no attribute '__wrapped__'$"):
        find_class("transform", "__wrapped__")


def test_hiding_a_distribution_hides_its_transforms(registry, fake_dist, monkeypatch):
    """Hiding a namespace hides the environments alone."""
    fake_dist("steppe-acme", envs={"acme": "fake_acme"}, transforms={"Shine": "fake_acme:Shine"})
    fake_dist("two", envs={"left": "two"}, transforms={"Turn": "two:Turn"})
    monkeypatch.setenv("STEPPE_DISABLE_PLUGINS", "steppe-acme,left")

    with pytest.raises(errors.PluginBlocked, match=r"'Shine' is installed .* hidden by STEPPE_DISABLE_PLUGINS=steppe"):
        find_class("transform", "Shine")
    assert list_classes("transform") == ["Turn"]
    monkeypatch.setenv("STEPPE_DISABLE_PLUGINS", "")
    monkeypatch.setenv("STEPPE_PLUGINS", "steppe-acme,left")
    assert list_classes("transform") == ["Shine"]


def test_an_env_plugin_and_a_transform_may_share_a_name(registry, fake_dist):
    fake_dist("steppe-vision", transforms={"Resize": "fake_vision:Resize"})
    fake_dist("acme-sim", envs={"Resize": "acme_sim"})
    assert [(record.kind, record.state) for record in list_plugins()] == [
        ("env", "available"),
        ("transform", "available"),
    ]


# -- loggers ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def paper(registry, fake_dist):
    source = "class PaperLogger:\n    def __init__(self, name, log_dir=None):\n        self.given = name, log_dir\n"
    entry_points = {"steppe.loggers": {"PaperLogger": "fake_paper:PaperLogger"}}
    fake_dist("steppe-paper", "0.1.0", entry_points=entry_points, files={"fake_paper.py": source})


def test_a_logger_is_found_by_the_name_of_its_class(paper):
    made = steppe.loggers.PaperLogger("run", log_dir="here")

    assert (type(made).__name__, made.given) == ("PaperLogger", ("run", "here"))
    assert "PaperLogger" in dir(steppe.loggers)
    with pytest.raises(AttributeError, match=r"has no attribute 'PaprLogger'. Did you mean 'PaperLogger'\?"):
        _ = steppe.loggers.PaprLogger


def test_a_misspelt_name_of_steppe_suggests_the_right_one():
    with pytest.raises(AttributeError, match="Did you mean 'ParallelEnv'"):
        steppe.ParalelEnv  # noqa: B018
