"""steppe tune: the table, the line, the plot, and wrong arguments."""

from __future__ import annotations

import pytest

from steppe.cli import main

SECONDS = ("--seconds", "0.3")


def test_the_command_prints_a_table_and_a_line(capsys, tmp_path):
    pytest.importorskip("matplotlib")
    plot = tmp_path / "speeds.png"
    status = main(["tune", "gym:CartPole-v1", "--num-envs", "2", *SECONDS, "--plot", str(plot)])
    out = capsys.readouterr().out

    assert status == 0
    assert "limit        " in out
    assert "SETTING" in out
    assert out.count("\n* ") == 1
    assert 'gym:CartPole-v1"' in out
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_a_policy_of_the_current_folder_is_used(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "steering.py").write_text(
        "import torch\n\n\ndef right(observation):\n"
        "    return torch.tensor([False, True]).expand(*observation.shape[:-1], 2)\n"
    )
    assert main(["tune", "gym:CartPole-v1", "--num-envs", "2", *SECONDS, "--policy", "steering:right"]) == 0
    assert "the policy" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["gym:CartPole-v1", "--seconds", "0"], "--seconds must be above 0, got 0.0"),
        (["gym:CartPole-v1", "--plot", "speeds.txt"], "the name of a plot ends in .png, .svg or .pdf"),
        (["gym:CartPole-v1", "--policy", "nothing"], "--policy takes module:callable"),
        (["nowhere:x"], "nowhere"),
    ],
)
def test_wrong_arguments_are_one_line(arguments, text, capsys):
    if "--plot" in arguments:
        pytest.importorskip("matplotlib")
    assert main(["tune", *arguments]) == 2
    error = capsys.readouterr().err
    assert text in error
    assert error.count("\n") == 1
