"""The page for users of TorchRL keeps up with the code."""

from __future__ import annotations

import pytest

import steppe
from steppe.batched import AsyncEnvPool, SerialEnv
from tools.workspace import ROOT

PAGE = (ROOT / "docs" / "migrating-from-torchrl.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("argument", sorted({*SerialEnv._ignored, *AsyncEnvPool._ignored}))
def test_an_argument_without_an_effect_is_on_the_page(argument):
    assert f"`{argument}`" in PAGE


def test_the_names_that_old_ones_became_exist():
    rows = [line.split("|")[1:-1] for line in PAGE.split("## Names of older versions")[1].split("##")[0].splitlines()]
    names = [row[1].split("`")[1] for row in rows if len(row) == 2 and row[1].count("`") == 2]

    assert len(names) > 10
    assert [name for name in names if not name.startswith('"') and not hasattr(steppe, name)] == []
