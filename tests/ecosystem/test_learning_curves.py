"""The tool for learning curves runs, stops and continues trainings, and has the curves that docs/examples.md shows."""

from __future__ import annotations

import inspect
import json
import runpy
from pathlib import Path

import pytest

from tools import learning_curves
from tools.learning_curves import EXAMPLES, FOLDER, TRAININGS, arguments, curves_of, gather, rows, train_all
from tools.workspace import ROOT

JOB = ("dqn-cartpole", "steppe", 0)


def written(runs: Path, name: str, side: str, seed: int, points: list[tuple[int, float]]) -> None:
    content = {"points": points, "seconds": 1.0, "complete": True}
    runs.mkdir(exist_ok=True)
    (runs / f"{name}-{side}-{seed}.json").write_text(json.dumps(content))


@pytest.mark.parametrize("name", TRAININGS)
def test_each_program_takes_the_arguments_of_its_training(name):
    training = TRAININGS[name]
    train = runpy.run_path(str(EXAMPLES / f"{training.program}.py"))["train"]

    inspect.signature(train).bind(training.frames, 0, **arguments(training))


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Trainings that are short programs: they write their arguments, and the returns 1, 2, ... until they end."""
    program = tmp_path / "program.py"
    program.write_text(
        "import json, sys, time\n"
        "runs, name, side, seed = sys.argv[2], *sys.argv[4:]\n"
        "path = f'{runs}/{name}-{side}-{seed}.json'\n"
        "points = [[frames, float(seed)] for frames in (10, 20)]\n"
        "for n in (1, 2):\n"
        "    done = n == 2 and side == 'steppe'\n"
        "    open(path, 'w').write(json.dumps({'points': points[:n], 'seconds': 0.1, 'complete': done}))\n"
        "    time.sleep(0 if side == 'steppe' else 60 * n)\n"
    )
    monkeypatch.setattr(learning_curves, "__file__", str(program))


def test_rows_have_the_evaluations_that_all_seeds_have():
    curves = [[(10, 1.0), (20, 5.0), (30, 9.0)], [(10, 3.0), (22, 4.0)], [(10, 2.0), (21, 8.0)]]

    assert list(rows(curves)) == [(10, 1.0, 2.0, 3.0), (21, 4.0, 5.0, 8.0)]


@pytest.mark.programs
def test_trainings_that_are_complete_are_not_repeated(tmp_path, programs, capsys):
    runs = tmp_path / "runs"
    written(runs, *JOB, [(5, 7.0)])
    train_all(runs, [JOB, ("dqn-cartpole", "steppe", 1)], processes=2, limit=30)

    assert json.loads((runs / "dqn-cartpole-steppe-0.json").read_text())["points"] == [[5, 7.0]]
    assert json.loads((runs / "dqn-cartpole-steppe-1.json").read_text())["points"] == [[10, 1.0], [20, 1.0]]
    assert "dqn-cartpole steppe 0" not in capsys.readouterr().out


@pytest.mark.programs
def test_a_limit_stops_trainings_and_keeps_their_returns(tmp_path, programs, capsys):
    jobs = [("ppo-cartpole", "sb3", 3), ("sac-pendulum", "sb3", 1)]
    train_all(tmp_path / "runs", jobs, processes=1, limit=1.5)

    out = capsys.readouterr().out
    assert "sac-pendulum sb3 1 STOPPED" in out, "the longest begins first"
    assert "ppo-cartpole sb3 3 NOT BEGUN" in out
    assert json.loads((tmp_path / "runs/sac-pendulum-sb3-1.json").read_text())["points"] == [[10, 1.0]]


def test_new_runs_of_one_side_keep_the_other(tmp_path, monkeypatch):
    monkeypatch.setattr(learning_curves, "FOLDER", tmp_path)
    (tmp_path / "dqn-cartpole.json").write_text('{"steppe": {"curves": [[[1, 2.0]]], "seconds": [3.0]}}')
    written(tmp_path / "runs", "dqn-cartpole", "sb3", 0, [(4, 5.0)])
    gather(tmp_path / "runs", ["dqn-cartpole"], seeds=5)

    content = json.loads((tmp_path / "dqn-cartpole.json").read_text())
    assert content["steppe"] == {"curves": [[[1, 2.0]]], "seconds": [3.0]}
    assert content["sb3"] == {"curves": [[[4, 5.0]]], "seconds": [1.0]}


@pytest.mark.parametrize("name", [name for name in TRAININGS if (FOLDER / f"{name}.json").exists()])
def test_committed_curves_have_five_seeds_and_a_picture(name):
    for side, content in curves_of(name).items():
        assert len(content["curves"]) == 5, side
        for curve in content["curves"]:
            frames = [point[0] for point in curve]
            assert frames == sorted(set(frames)), side
    assert f"(examples/curves/{name}.png)" in (ROOT / "docs/examples.md").read_text(encoding="utf-8")
    assert (FOLDER / f"{name}.png").stat().st_size <= 100_000
