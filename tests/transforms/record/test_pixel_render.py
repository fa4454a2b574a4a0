"""PixelRenderTransform: frames of environments that render."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from steppe import ParallelEnv, SerialEnv, TransformedEnv, check_env_specs, make_env
from steppe.errors import SpecError
from steppe.specs import Unbounded
from steppe.transforms import PixelRenderTransform, VideoRecorder
from steppe_testing import ArrayDataEnv

pytestmark = pytest.mark.matrix


class Rendered(ArrayDataEnv):
    """Renders the number of steps of the episode."""

    def __init__(self) -> None:
        super().__init__({"observation": Unbounded((3,))}, max_steps=3)

    def render(self, mode: str = "rgb_array", times: int = 1) -> np.ndarray:
        return np.full((6, 8, 3), self.count * times, np.uint8)

    def render_nothing(self) -> None:
        return None

    def render_given(self, tensordict) -> torch.Tensor:
        return tensordict["observation"].expand(4, 5, 3).clone()


def test_a_frame_is_what_the_library_renders():
    env = TransformedEnv(make_env("gym:CartPole-v1", render_mode="rgb_array"), PixelRenderTransform())
    check_env_specs(env)
    assert env.no_row_writer_reason is None
    td = env.reset()
    assert torch.equal(td["pixels"], torch.from_numpy(env.render()))
    td = env.step(env.rand_action(td))
    assert torch.equal(td["next", "pixels"], torch.from_numpy(env.render()))


@pytest.mark.parametrize("batch", [SerialEnv, ParallelEnv])
@pytest.mark.parametrize("inside", [True, False])
def test_a_last_frame_is_rendered_before_the_batch_resets_it(batch, inside):
    """An episode of a batch is rendered at its end, before the next one begins."""
    if inside:
        env = batch(2, lambda: TransformedEnv(Rendered(), PixelRenderTransform()))
    else:
        env = TransformedEnv(batch(2, Rendered), PixelRenderTransform())
    check_env_specs(env)
    data = env.rollout(5, break_when_any_done=False)
    env.close()
    assert data["pixels"].shape == (2, 5, 6, 8, 3)
    assert data["pixels"][1, :, 0, 0, 0].tolist() == [0, 1, 2, 0, 1]
    assert data["next", "pixels"][1, :, 0, 0, 0].tolist() == [1, 2, 3, 1, 2]


def test_render_arguments_and_preproc_are_applied():
    """Arguments go to the method that renders, and its result goes through preproc."""
    render = PixelRenderTransform(out_keys=["small"], preproc=lambda frame: frame[::2], times=10)
    data = TransformedEnv(Rendered(), render).rollout(2)
    assert data["next", "small"].shape == (2, 3, 8, 3)
    assert data["next", "small"][:, 0, 0, 0].tolist() == [10, 20]


def test_a_method_may_be_given_the_data():
    render = PixelRenderTransform(render_method="render_given", pass_tensordict=True)
    data = TransformedEnv(Rendered(), render).rollout(2)
    assert torch.equal(data["next", "pixels"][:, 0, 0], data["next", "observation"])


def test_one_image_of_a_whole_batch_is_recorded_unchanged():
    env = make_env("vmas:balance", num_envs=4)
    env = TransformedEnv(env, PixelRenderTransform())
    env.append_transform(VideoRecorder(None, None, skip=1))
    data = env.rollout(2)
    assert data.batch_size == (4, 2)
    assert [frame.shape for frame in env.transform[-1].obs] == [(3, 700, 700)] * 3


def test_a_batch_of_batches_of_one_has_a_frame_of_each():
    env = SerialEnv(3, lambda: make_env("vmas:balance", num_envs=1))
    env = TransformedEnv(env, PixelRenderTransform())
    data = env.rollout(2)
    env.close()
    assert data["next", "pixels"].shape == (3, 1, 2, 700, 700, 3)
    assert env.observation_spec["pixels"].shape == (3, 1, 700, 700, 3)


@pytest.mark.parametrize(
    ("make", "arguments", "text"),
    [
        (lambda: make_env("gym:Pendulum-v1"), {}, r"render\(\) of GymEnv returned None, .* render_mode='rgb_array'"),
        (Rendered, {"render_method": "draw"}, "Rendered has no method 'draw'. Name another with render_method"),
        (Rendered, {"render_method": "render_nothing"}, r"render_nothing\(\) of Rendered returned None"),
        (Rendered, {"out_keys": ["a", "b"]}, "writes one entry, found out_keys="),
    ],
)
def test_an_environment_without_frames_names_the_fix(make, arguments, text):
    with pytest.raises(SpecError, match=text):
        TransformedEnv(make(), PixelRenderTransform(**arguments))


@pytest.mark.parametrize("batch", [SerialEnv, ParallelEnv])
def test_frames_are_switched_off_and_on_while_a_batch_runs(batch):
    env = TransformedEnv(batch(2, Rendered), PixelRenderTransform())
    render, td, seen = env.transform, env.reset(), []
    for mode in (None, "off", None, "on", None):
        if mode is not None:
            render.switch(mode)
        frame, td = env.step_and_maybe_reset(env.rand_action(td))
        found = frame["next"].get("pixels", None)
        seen.append(None if found is None else found[:, 0, 0, 0].tolist())
        assert ("pixels" in env.observation_spec.keys()) == render.enabled == (found is not None)
    render.switch()
    off = env.rollout(4, break_when_any_done=False)
    render.switch(True)
    on = env.rollout(4, break_when_any_done=False)
    check_env_specs(env)
    env.close()

    # Episodes of three steps: the third is rendered before the next one begins.
    assert seen == [[1, 1], None, None, [1, 1], [2, 2]]
    assert "pixels" not in off["next"].keys()
    assert "pixels" not in off.keys()
    assert on["next", "pixels"][0, :, 0, 0, 0].tolist() == [1, 2, 3, 1]
    assert on["pixels"][0, :, 0, 0, 0].tolist() == [0, 1, 2, 0]


def test_transforms_may_be_switched_off_inside_a_batch():
    def made():
        env = TransformedEnv(Rendered(), PixelRenderTransform())
        env.transform.switch("off")
        return env

    env = SerialEnv(2, made)
    assert "pixels" not in env.rollout(2)["next"].keys()
    env.close()


def test_a_switch_has_two_positions():
    with pytest.raises(SpecError, match="'on', 'off' or a bool, found 'up'"):
        PixelRenderTransform().switch("up")
