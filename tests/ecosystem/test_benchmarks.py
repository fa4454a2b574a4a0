"""The comparison of two checkouts, of this one with itself; tables of committed figures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.limits import CHILD
from tools.workspace import ROOT


def compare(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmarks/compare.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=CHILD, env={**os.environ, "COLUMNS": "150"})


@pytest.mark.slow
def test_rows_of_two_checkouts_are_compared_written_and_read(tmp_path: Path) -> None:
    file, rows = tmp_path / "figures.json", ("--rows", "raw*CartPole", "rollout, CartPole", "--rounds", "2")

    first = compare(str(ROOT), str(ROOT), *rows, "--write", str(file))
    second = compare(str(ROOT), *rows, "--read", str(file), "--limit", "0.0001")

    assert first.returncode == 0, first.stderr
    content = json.loads(file.read_text())
    assert list(content["rows"]) == ["raw gymnasium, CartPole", "rollout, CartPole"]
    row = content["rows"]["rollout, CartPole"]
    assert row["ratio"] == pytest.approx(row["new"] / row["old"], abs=0.01)
    assert "rollout, CartPole" in first.stdout
    assert second.returncode == 1
    assert "more than 0.0001 times as slow" in second.stderr


def test_the_baseline_has_every_row() -> None:
    names = compare("--list").stdout.splitlines()

    assert list(json.loads((ROOT / "benchmarks/baseline.json").read_text())["rows"]) == names


#: Rows of tables in documents, and the contestants of benchmarks/vector.json that they are of.
VECTOR = {
    "`make_vec`": "steppe make_vec(8)",
    "`make_vec`, `caller_share=True`": "steppe make_vec, caller_share(8)",
    "`make_vec`, `num_processes=0`": "steppe make_vec, num_processes=0(8)",
    "gymnasium `SyncVectorEnv`": "gymnasium SyncVectorEnv(8)",
    "EnvPool (C++)": "EnvPool(8)",
    "`as_vec_env` for SB3": "steppe as_vec_env(8)",
    "`as_vec_env`, `caller_share=True`": "steppe as_vec_env, caller_share(8)",
    "SB3 `DummyVecEnv`": "SB3 DummyVecEnv(8)",
    "SB3 `SubprocVecEnv`": "SB3 SubprocVecEnv(8)",
}


def rows_below(page: str, head: str) -> list[list[str]]:
    """Return the cells of the table with this head."""
    table = page.split(f"{head}\n")[1].split("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[1:]]


@pytest.mark.parametrize("page", ["performance.md", "guides/gymnasium-vector-environments.md"])
def test_tables_of_documents_repeat_the_committed_figures(page: str) -> None:
    figures = json.loads((ROOT / "benchmarks/vector.json").read_text())
    medians = [figures[kind]["medians"] for kind in ("cartpole", "image", "halfcheetah")]
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    rows = rows_below(text, "| | CartPole | images 84x84x4 | HalfCheetah |")

    assert len(rows) >= 3
    for label, *cells in rows:
        ratios = [each.get(VECTOR[label], 0) / each["gymnasium AsyncVectorEnv(8)"] for each in medians]
        assert cells == [f"{ratio:.1f}" if ratio else "" for ratio in ratios], label


def test_figures_of_actors_repeat_the_committed_ones() -> None:
    figures = json.loads((ROOT / "benchmarks/distributed.json").read_text())["sizes"]
    text = (ROOT / "docs/performance.md").read_text(encoding="utf-8")
    rows = rows_below(text, "| frames | over processes | over Ray alone |")

    assert [name for name, *_ in rows] == list(figures)
    for name, *cells in rows:
        ratios = [figures[name]["RayCollector"] / figures[name][other] for other in ("processes", "Ray alone")]
        shown = ratios[:1] if "steps of" in name else ratios  # Ray alone has no steps to take
        assert [cell for cell in cells if cell] == [f"{ratio:.2f}" for ratio in shown], name


def test_figures_of_requests_repeat_the_committed_ones() -> None:
    figures = json.loads((ROOT / "benchmarks/requests.json").read_text())
    page = (ROOT / "docs/performance.md").read_text(encoding="utf-8")
    rows = rows_below(page, "| Episodes | loop by hand | `execute` | ratio | 2 workers, 4 each | 2 workers, 8 each |")

    assert [name for name, *_ in rows] == list(figures)
    for name, *cells in rows:
        hand, execute, *workers = list(figures[name]["medians"].values())[:4]
        speeds = [f"{round(speed, -2):,.0f}" for speed in (hand, execute)]
        assert cells == [*speeds, *(f"{speed / hand:.2f}" for speed in (execute, *workers))], name


def test_tables_of_libraries_repeat_the_committed_figures() -> None:
    figures = json.loads((ROOT / "benchmarks/libraries.json").read_text())
    page = (ROOT / "docs/performance.md").read_text(encoding="utf-8")
    ratios = {
        "| Environment | loop | rollout | rollout / loop |": lambda first, second: f"{second / first:.2f}",
        "| Environment | loop | collector | collector / loop |": lambda first, second: f"{second / first:.2f}",
        "| Environment | loop | rollout | share |": lambda first, second: f"{100 * first / second:.0f} %",
        "| Environments | SuperSuit | ParallelEnv | ratio |": lambda first, second: f"{second / first:.2f}",
    }

    seen = []
    for head, ratio in ratios.items():
        for name, *cells in rows_below(page, head):
            medians = list(figures[name]["medians"].values())
            shown = [f"{value:.1f}" if value < 100 else f"{value:,.0f}" for value in medians]
            assert cells == [*shown, ratio(*medians)], name
            seen.append(name)
    assert sorted(seen) == sorted(figures)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [((), "the folders of two checkouts"), (("a", "b"), "no packages/core/src/steppe"), (("--rows", "x"), "--list")],
)
def test_an_impossible_comparison_fails_with_a_reason(arguments: tuple[str, ...], said: str) -> None:
    done = compare(*arguments)

    assert done.returncode != 0
    assert said in done.stderr
