"""Options of ``steppe collect``: in the background, by trajectories, with a picture."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from tensordict import TensorDict

from steppe_testing import assert_equal_data
from tests.forked import python
from tests.limits import CHILD

pytestmark = pytest.mark.programs


def collect(out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [*python(), "-m", "steppe", "collect", "gym:CartPole-v1", "--frames", "400", "--out", str(out)]
    return subprocess.run([*command, *options], capture_output=True, text=True, timeout=CHILD)


def test_collecting_in_the_background_gives_the_same_data(tmp_path: Path) -> None:
    loaded: list[Any] = []
    for name, options in (("here", ()), ("there", ("--async",))):
        done = collect(tmp_path / name, "--num-envs", "2", "--num-processes", "1", *options)
        assert done.returncode == 0, done.stderr
        assert "return (mean, min, max)" in done.stdout
        loaded.append(TensorDict.load_memmap(tmp_path / name))
    assert_equal_data(loaded[1], loaded[0])


def test_trajectories_and_a_picture_of_their_returns(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    done = collect(tmp_path / "data", "--split-trajs", "--plot", str(tmp_path / "returns.png"))
    assert done.returncode == 0, done.stderr
    data = TensorDict.load_memmap(tmp_path / "data")
    mask = data["collector", "mask"]
    assert int(mask.sum()) == 400
    assert mask[:, 0].all()
    assert data.batch_size == mask.shape
    assert (tmp_path / "returns.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(("file", "said"), [("a.jpg", "ends in .png"), ("nowhere/a.png", "no such folder")])
def test_an_impossible_plot_is_refused_before_collecting(tmp_path: Path, file: str, said: str) -> None:
    """A plot that cannot be drawn is refused, and no data is written."""
    done = collect(tmp_path / "data", "--plot", str(tmp_path / file))
    assert done.returncode == 2
    assert said in done.stderr
    assert not (tmp_path / "data").exists()
