"""The document about the kit lists each of its tests and flags."""

from __future__ import annotations

import pytest

from steppe_testing import EnvConformance, PluginConformance, TransformConformance
from tools.workspace import ROOT

TEXT = (ROOT / "docs/authors/conformance-kit.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("kit", [EnvConformance, PluginConformance, TransformConformance])
def test_every_test_of_the_kit_is_explained_and_no_other(kit):
    tests = {name for name in vars(kit) if name.startswith("test_")}
    named = {word.strip("`") for word in TEXT.replace(",", " ").split() if word.startswith("`test_")}

    assert tests - named == set()
    everything = {name for one in (EnvConformance, PluginConformance, TransformConformance) for name in vars(one)}
    assert named - everything == set()


def test_every_flag_of_an_environment_is_explained():
    flags = {name for name, kind in EnvConformance.__annotations__.items() if "bool" in str(kind)}

    assert {name for name in flags if name not in TEXT} <= {"batch_locked"}
