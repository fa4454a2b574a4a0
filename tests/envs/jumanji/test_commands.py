"""``steppe collect`` and ``steppe record`` with environments of Jumanji."""

from __future__ import annotations

import pytest

pytest.importorskip("jumanji")

import torch
from tensordict import TensorDict

from steppe import TransformedEnv, make_env
from steppe.cli import main
from steppe.errors import NotSupported

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("count", [1, 2])
def test_transitions_are_collected(tmp_path, capsys, count):
    arguments = ["--num-envs", str(count), "--num-processes", "1", "--frames", "24", "--out", str(tmp_path / "data")]
    assert main(["collect", "jumanji:Maze-v0", *arguments]) == 0, capsys.readouterr()
    assert TensorDict.load_memmap(tmp_path / "data").batch_size == (count, 24 // count)


@pytest.mark.parametrize("count", [1, 2])
def test_a_video_is_recorded(tmp_path, capsys, count):
    pytest.importorskip("steppe_record")
    arguments = ["--steps", "3", "--num-envs", str(count), "--out", str(tmp_path / "it.mp4")]
    assert main(["record", "jumanji:Maze-v0", *arguments]) == 0, capsys.readouterr()
    assert capsys.readouterr().out.startswith("4 frames")


def test_frames_show_the_episode():
    # Snake's own render() drops what its viewer returns.
    env = make_env("jumanji:Snake-v1", render_mode="rgb_array")
    env.set_seed(0)
    td = env.reset()
    first, again = env.render(), env.render()
    assert first.shape[-1] == 3
    assert (first == again).all()
    env.step(env.rand_action(td))
    assert (env.render() != first).any()


@pytest.mark.parametrize("name", ["Snake-v1", "RubiksCube-v0"])
def test_a_rollout_of_one_environment_keeps_frames(name):
    transforms = pytest.importorskip("steppe_record")
    env = make_env(f"jumanji:{name}", render_mode="rgb_array")
    with TransformedEnv(env, transforms.PixelRenderTransform(out_keys=["frame"])) as drawn:
        drawn.set_seed(0)
        data = drawn.rollout(3, break_when_any_done=False)
    assert data["frame"].dtype is torch.uint8
    assert (data["next", "frame"] != data["frame"]).any(), "a step changes the frame"


def test_another_render_mode_is_refused():
    with pytest.raises(NotSupported, match="render_mode must be 'rgb_array' or None, found 'human'"):
        make_env("jumanji:Snake-v1", render_mode="human")
