"""``steppe collect`` and ``steppe record`` with environments of Brax."""

from __future__ import annotations

import pytest

pytest.importorskip("brax")

from tensordict import TensorDict

from steppe import make_env
from steppe.cli import main
from steppe.errors import NotSupported

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("count", [1, 2])
def test_transitions_are_collected(tmp_path, capsys, count):
    arguments = ["--num-envs", str(count), "--num-processes", "1", "--frames", "24", "--out", str(tmp_path / "data")]
    assert main(["collect", "brax:inverted_pendulum", *arguments]) == 0, capsys.readouterr()
    assert TensorDict.load_memmap(tmp_path / "data").batch_size == (count, 24 // count)


@pytest.mark.parametrize("count", [1, 2])
def test_a_video_is_recorded(tmp_path, capsys, count):
    pytest.importorskip("steppe_record")
    arguments = ["--steps", "3", "--num-envs", str(count), "--out", str(tmp_path / "it.mp4")]
    assert main(["record", "brax:inverted_pendulum", *arguments]) == 0, capsys.readouterr()
    assert capsys.readouterr().out.startswith("4 frames")


def test_an_environment_without_a_model_is_not_recorded(tmp_path, capsys):
    pytest.importorskip("steppe_record")
    assert main(["record", "brax:fast", "--out", str(tmp_path / "it.gif")]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "brax:fast cannot be recorded: " in err
    assert "has no MuJoCo model" in err


def test_a_frame_shows_the_requested_row():
    env = make_env("brax:inverted_pendulum", batch_size=2, render_mode="rgb_array")
    env.set_seed(0)
    env.rollout(20, break_when_any_done=False)
    frames = [env.render(row=row, height=48, width=64) for row in range(2)]
    assert [frame.shape for frame in frames] == [(48, 64, 3)] * 2
    assert (frames[0] != frames[1]).any()


def test_another_render_mode_is_refused():
    with pytest.raises(NotSupported, match="render_mode must be 'rgb_array' or None, found 'human'"):
        make_env("brax:fast", render_mode="human")
