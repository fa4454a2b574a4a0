"""``steppe collect`` and ``steppe record`` with an environment of every plugin whose library is in this environment."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tensordict import TensorDict

from steppe.cli import main
from tests.forked import python
from tests.limits import CHILD

IDS = [
    "dm:ball_in_cup-catch",
    "envpool:Catch-v0",
    "gym:MountainCar-v0",
    "mo-gym:four-room-v0",
    "pettingzoo:classic/connect_four_v3",
    "pettingzoo:mpe2/simple_spread_v3",
    "vmas:dispersion",
]

#: What renders nothing, and what the command says of it.
UNRECORDED = {"envpool:Catch-v0": "MultiThreadedEnv has no method 'render'"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("id", IDS)
@pytest.mark.parametrize("count", [1, 3])
def test_transitions_of_every_plugin_are_collected(tmp_path, capsys, id, count):
    arguments = ["--num-envs", str(count), "--num-processes", "1"] if count > 1 else []
    status = main(["collect", id, "--frames", "60", "--out", str(tmp_path / "data"), *arguments])
    out, err = capsys.readouterr()
    assert status == 0, err
    assert "frames per second" in out
    assert TensorDict.load_memmap(tmp_path / "data").batch_size == (count, 60 // count)


@pytest.mark.filterwarnings("ignore")
def test_a_batch_of_a_library_is_collected(tmp_path, capsys):
    arguments = ["--num-envs", "2", "--num-processes", "1", "--max-steps", "5", "--frames", "40"]
    status = main(["collect", "vmas:dispersion", "--out", str(tmp_path / "data"), *arguments])
    out, err = capsys.readouterr()
    assert status == 0, err
    assert TensorDict.load_memmap(tmp_path / "data").batch_size == (2, 20)
    assert "length (mean, min, max)  5.0, 5, 5" in out


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("id", IDS)
@pytest.mark.parametrize("count", [1, 2])
def test_every_plugin_is_recorded_or_says_why_not(tmp_path, capsys, id, count):
    out = tmp_path / "it.mp4"
    status = main(["record", id, "--steps", "4", "--num-envs", str(count), "--out", str(out)])
    said, err = capsys.readouterr()
    if id in UNRECORDED:
        text = UNRECORDED[id] if count == 1 else "SerialEnv has no method 'render'"
        assert (status, said, err.count("\n"), out.exists()) == (2, "", 1, False)
        assert err.startswith(f"steppe record: {id} cannot be recorded: ")
        assert text in err
        return
    assert status == 0, err
    assert out.exists()
    assert "frames, " in said


@pytest.mark.programs
@pytest.mark.parametrize("choice", ["", "moon"])
def test_dm_control_is_recorded_without_a_display(tmp_path, choice):
    """MuJoCo chooses how to render when it is imported: here by the command, there by the user."""
    hidden = ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL", "PYOPENGL_PLATFORM")
    env = {name: value for name, value in os.environ.items() if name not in hidden}
    if choice:
        env["MUJOCO_GL"] = "disable"
    done = record_alone(tmp_path, "dm:finger-spin", env)
    if choice:
        assert (done.returncode, done.stdout) == (2, "")
        assert "steppe record: dm:finger-spin cannot be recorded: " in done.stderr
        assert "set MUJOCO_GL=egl" in done.stderr
        assert "Traceback" not in done.stderr
    else:
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "it.mp4").exists()


def record_alone(folder: Path, id: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [*python(), "-W", "ignore", "-m", "steppe", "record", id, "--steps", "3", "--out", "it.mp4"]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=CHILD)
