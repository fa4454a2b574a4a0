"""The pictures of the performance page show the committed results of the benchmarks."""

from __future__ import annotations

import re

import pytest

from tools import performance_plots
from tools.workspace import ROOT


def test_each_picture_shows_the_figures_of_its_json():
    assert performance_plots.outdated() == [], "run tools/performance_plots.py"


def test_a_picture_of_other_figures_is_out_of_date(monkeypatch):
    plots = performance_plots.plots()
    plots["ppo"].panels["SB3's PPO on 8 CartPoles"]["SB3 DummyVecEnv"] += 0.1
    monkeypatch.setattr(performance_plots, "plots", lambda: plots)

    assert performance_plots.outdated() == ["ppo"]


@pytest.mark.parametrize("name", sorted(performance_plots.plots()))
def test_the_performance_page_shows_each_picture(name):
    assert f"](plots/{name}.png)" in (ROOT / "docs/performance.md").read_text(encoding="utf-8")


def test_the_readme_begins_the_table_within_a_screen():
    before, table, _ = (ROOT / "README.md").read_text(encoding="utf-8").partition("| Package |")

    assert table
    assert before.count("\n") <= 20
    assert re.search(r"!\[[^]]+\]\(docs/speed\.png\)", before)
