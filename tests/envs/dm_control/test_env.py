"""Making and using dm_control's environments: names, arguments, frames, seeds, errors."""

from __future__ import annotations

import os
import subprocess
import textwrap

import numpy as np
import pytest
import torch

pytest.importorskip("dm_control")

import dm_env
from dm_control import suite
from dm_control.suite.wrappers import action_scale, pixels

from steppe import ParallelEnv, SerialEnv, TransformedEnv, list_envs, make_env
from steppe.errors import ArgumentError, EnvNotFound, NotSupported, SpecError
from steppe.transforms import DoubleToFloat, RewardSum, StepCounter
from steppe_dm_control import DMControlEnv, DMControlWrapper
from steppe_testing import assert_equal_data
from tests.forked import python
from tests.limits import CHILD


def test_names_may_contain_a_dash_or_a_slash():
    """ball_in_cup-catch and ball_in_cup/catch are the same environment."""
    found = []
    for env in (
        make_env("dm:ball_in_cup-catch"),
        make_env("dm:ball_in_cup/catch"),
        DMControlEnv("ball_in_cup", "catch"),
    ):
        env.set_seed(1)
        found.append(env.reset())
    assert (found[0] == found[1]).all()
    assert (found[0] == found[2]).all()


def test_names_of_all_tasks_are_listed():
    names = list_envs("dm")

    assert {"cheetah-run", "manipulation/reach_site_features", "locomotion/cmu_humanoid_run_walls"} <= set(names)
    assert len([name for name in names if "/" not in name]) == len(suite.ALL_TASKS)
    assert dict(DMControlEnv.available_envs)["cartpole"] == [
        task for name, task in suite.ALL_TASKS if name == "cartpole"
    ]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("cheetah-runs", "cheetah-run"),
        ("manipulation/reach_site", "manipulation/"),
        ("locomotion/rodent", "locomotion/"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(name, meant):
    with pytest.raises(EnvNotFound, match=f"Plugin 'dm'.*steppe-dm-control.*Did you mean '{meant}"):
        make_env(f"dm:{name}")


def test_dtypes_and_bounds_match_the_library():
    env, raw = make_env("dm:cheetah-run"), suite.load("cheetah", "run")

    assert env.observation_spec["position"].dtype is torch.float64
    np.testing.assert_array_equal(env.action_spec.space.low.numpy(), raw.action_spec().minimum)
    np.testing.assert_array_equal(env.action_spec.space.high.numpy(), raw.action_spec().maximum)
    assert env.reward_spec.dtype is torch.float32


def test_frames_are_those_that_the_library_renders():
    size = {"height": 24, "width": 32}
    env = DMControlEnv("cheetah", "run", from_pixels=True, camera_id=1, render_kwargs=size)
    raw = suite.load("cheetah", "run", task_kwargs={"random": 2})
    env.set_seed(2)

    root = env.reset()
    raw.reset()

    assert root["pixels"].shape == (24, 32, 3)
    np.testing.assert_array_equal(root["pixels"].numpy(), raw.physics.render(camera_id=1, **size))
    action = np.full(6, 0.5)
    for _ in range(3):
        raw.step(action)
        root = env.step(root.set("action", torch.from_numpy(action)))["next"]
    np.testing.assert_array_equal(root["pixels"].numpy(), raw.physics.render(camera_id=1, **size))
    assert "position" in root.keys()
    assert env.render(height=8, width=8).shape == (8, 8, 3)


def test_frame_skip_renders_one_frame_per_step():
    """With pixels_only, repeated actions render one frame for each step."""
    env = DMControlEnv("cartpole", "balance", from_pixels=True, pixels_only=True, frame_skip=4)
    frames = []
    physics = env.physics
    render = physics.render
    physics.render = lambda **kwargs: frames.append(1) or render(**kwargs)

    env.rollout(3)

    assert list(env.observation_spec.keys()) == ["pixels"]
    assert env.observation_spec["pixels"].shape == (240, 320, 3)
    assert len(frames) == 4  # the reset and three steps


WITHOUT_A_DISPLAY = {
    "pixels first": "print(make_env(name, **frames).reset()['pixels'].shape)",
    "pixels after an environment without": """
        plain = make_env(name)
        plain.rollout(2)
        print(make_env(name, **frames).rollout(2)['pixels'][1].shape)
        """,
    "a frame of an environment without pixels": """
        from steppe.transforms import PixelRenderTransform, TransformedEnv
        env = TransformedEnv(make_env(name, render_kwargs=frames['render_kwargs']), PixelRenderTransform())
        print(env.rollout(2)['pixels'][1].shape)
        """,
    "the library was imported before": """
        from dm_control import suite
        from steppe_dm_control import DMControlWrapper
        print(DMControlWrapper(suite.load('cartpole', 'balance'), **frames).reset()['pixels'].shape)
        """,
    "in one worker with one without": """
        from functools import partial
        from steppe import ParallelEnv
        def only_pixels(**kwargs):
            make_env(name).rollout(1)
            return make_env(name, **kwargs)
        with ParallelEnv(2, partial(only_pixels, **frames), num_processes=1) as env:
            print(env.rollout(2)['pixels'][1, 1].shape)
        """,
}


@pytest.mark.programs
@pytest.mark.parametrize("case", WITHOUT_A_DISPLAY)
def test_frames_without_a_display_need_no_settings(case):
    code = (
        "from steppe import make_env\n"
        "name = 'dm:cartpole-balance'\n"
        "frames = {'from_pixels': True, 'render_kwargs': {'height': 8, 'width': 12}}\n"
    ) + textwrap.dedent(WITHOUT_A_DISPLAY[case])
    hidden = ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY")
    environment = {key: value for key, value in os.environ.items() if key not in hidden}
    done = subprocess.run([*python(), "-c", code], env=environment, capture_output=True, text=True, timeout=CHILD)

    assert "torch.Size([8, 12, 3])" in done.stdout, done.stderr


@pytest.mark.programs
def test_a_choice_of_the_user_is_left_alone():
    code = (
        "import os\n"
        "from steppe import make_env\n"
        "env = make_env('dm:cartpole-balance')\n"
        "try:\n    env.render()\nexcept Exception as error:\n    print(type(error).__name__)\n"
        "print(os.environ['MUJOCO_GL'])\n"
    )
    environment = {key: value for key, value in os.environ.items() if key not in ("DISPLAY", "WAYLAND_DISPLAY")}
    environment["MUJOCO_GL"] = "disable"
    done = subprocess.run([*python(), "-c", code], env=environment, capture_output=True, text=True, timeout=CHILD)

    assert done.stdout.split() == ["NotSupported", "disable"], done.stderr


def test_a_wrapper_takes_environments_and_library_wrappers():
    plain = DMControlWrapper(suite.load("cheetah", "run"))
    scaled = DMControlWrapper(action_scale.Wrapper(suite.load("cheetah", "run"), minimum=-2.0, maximum=2.0))
    framed = DMControlWrapper(pixels.Wrapper(suite.load("cheetah", "run"), render_kwargs={"height": 8, "width": 8}))

    assert scaled.action_spec.space.high.max() == 2
    assert framed.observation_spec["pixels"].shape == (8, 8, 3)
    found = []
    for env in (plain, scaled):
        env.set_seed(3)
        found.append(env.reset())
    assert (found[0] == found[1]).all()


def test_the_library_s_own_arguments_reach_it():
    env = DMControlEnv("cheetah", "run", random=4, time_limit=0.05, environment_kwargs={"flat_observation": True})

    raw = suite.load(
        "cheetah", "run", task_kwargs={"random": 4, "time_limit": 0.05}, environment_kwargs={"flat_observation": True}
    )
    np.testing.assert_array_equal(env.reset()["observations"].numpy(), raw.reset().observation["observations"])
    assert len(env.rollout(100)) == 5


def test_attributes_come_from_the_library():
    env = DMControlEnv("cheetah", "run")

    assert env.physics.control().shape == (6,)
    assert type(env.task).__name__ == "Cheetah"


def test_transforms_run_on_its_rows():
    env = TransformedEnv(make_env("dm:cheetah-run", time_limit=0.1))
    env.append_transform(DoubleToFloat()).append_transform(RewardSum()).append_transform(StepCounter())
    assert env.row_writer is not None

    data = env.rollout(25, break_when_any_done=False)

    assert data["position"].dtype is torch.float32
    assert data["next", "step_count"].max() == 10
    torch.testing.assert_close(data["next", "episode_reward"][9], data["next", "reward"][:10].sum(0))


def test_the_discount_is_an_info():
    env = DMControlEnv("cheetah", "run").set_info_dict_reader(["discount"])

    assert env.rollout(2)["next", "discount"].flatten().tolist() == [1.0, 1.0]


def test_several_players_are_refused():
    from dm_control.locomotion import soccer

    with pytest.raises(NotSupported, match="several players"):
        DMControlWrapper(soccer.load(team_size=1))


def test_an_observation_may_not_have_the_name_of_another_entry():
    raw = suite.load("cheetah", "run")
    get = raw.task.get_observation
    raw.task.get_observation = lambda physics: {"reward": np.zeros(2), **get(physics)}

    with pytest.raises(SpecError, match=r"\['reward'\]"):
        DMControlWrapper(raw)


def test_an_environment_without_a_random_state_takes_no_seed():
    import dm_env

    class Still(dm_env.Environment):
        def reset(self):
            return dm_env.restart(np.zeros(2, np.float32))

        def step(self, action):
            return dm_env.transition(1.0, np.ones(2, np.float32))

        def observation_spec(self):
            return dm_env.specs.Array((2,), np.float32)

        def action_spec(self):
            return dm_env.specs.DiscreteArray(3)

    env = DMControlWrapper(Still())

    assert env.rollout(2)["action"].shape == (2, 3)
    assert env.rollout(2)["next", "observation"].eq(1).all()
    assert DMControlWrapper(Still(), categorical_action_encoding=True).rollout(2)["action"].shape == (2,)
    with pytest.raises(NotSupported, match="no numpy RandomState"):
        env.set_seed(0)


def test_a_seed_may_have_any_size_and_none_forgets_the_last():
    env = DMControlEnv("cheetah", "run")
    found = []
    for seed in (2**40 + 3, 3, None, None):
        env.set_seed(3)
        env.reset()
        env.set_seed(seed)
        found.append(env.reset()["position"])

    assert torch.equal(found[0], found[1])
    assert len({tuple(position.tolist()) for position in found[1:]}) == 3


@pytest.mark.parametrize(
    "several",
    [
        lambda: DMControlEnv("cheetah", "run", frame_skip=2, num_workers=2),
        lambda: make_env("dm:cheetah-run", frame_skip=2, num_workers=2),
    ],
    ids=["class", "make_env"],
)
def test_num_workers_makes_a_batch_of_worker_processes(several):
    env = several()
    assert isinstance(env, ParallelEnv)
    with env:
        env.set_seed(1)
        found = env.rollout(5)
    same = SerialEnv(2, lambda: DMControlEnv("cheetah", "run", frame_skip=2))
    same.set_seed(1)

    assert_equal_data(found, same.rollout(5))


def test_a_single_worker_is_no_batch():
    assert all(type(DMControlEnv("cheetah-run", num_workers=n)) is DMControlEnv for n in (0, 1, None))
    for wrong in (-1, 1.5, True, "2"):
        with pytest.raises(ArgumentError, match="num_workers is a whole number >= 0, found"):
            DMControlEnv("cheetah-run", num_workers=wrong)


def test_wrong_arguments_are_answered():
    with pytest.raises(NotSupported, match=r"ParallelEnv\(n, 'dm:cheetah-run'\)"):
        DMControlEnv("cheetah", "run", batch_size=(2,))
    with pytest.raises(TypeError, match=r"does not take \['time_limit'\]"):
        make_env("dm:manipulation/reach_site_features", time_limit=3)
    with pytest.raises(TypeError, match=r"DMControlEnv\('cheetah', 'run'\)"):
        DMControlWrapper("cheetah")


# -- values that are none --------------------------------------------------------------------------------------------


class Breaks(dm_env.Environment):
    """An environment that returns valid values in two steps, then its argument."""

    def __init__(self, *, numbers=(2,), **later):
        self.numbers, self.later, self.steps = numbers, later, 0

    def observation_spec(self):
        return {"x": dm_env.specs.Array(self.numbers, np.float64)}

    def action_spec(self):
        return dm_env.specs.BoundedArray((1,), np.float64, -1.0, 1.0)

    def reset(self):
        self.steps = 0
        return dm_env.restart({"x": np.zeros(self.numbers)})

    def step(self, action):
        self.steps += 1
        later = self.later if self.steps > 2 else {}
        return dm_env.TimeStep(
            later.get("step_type", dm_env.StepType.MID),
            later.get("reward", 1.0),
            later.get("discount", 1.0),
            {"x": later.get("x", np.ones(self.numbers))},
        )


class OnTensorDicts(DMControlWrapper):
    def read_obs(self, observations):
        return super().read_obs(observations)


NONE = {
    "reward None": ({"reward": None}, "'reward' must be a number"),
    "reward text": ({"reward": "2.0"}, "'reward' must be a number"),
    "observation None": ({"x": [None, 1.0]}, "'x' must be a number"),
    "observation of objects": ({"x": np.array([None, 1.0], dtype=object)}, "'x' must be a number"),
    "number None": ({"x": None, "numbers": ()}, "'x' must be a number"),
    "discount None": ({"discount": None, "step_type": dm_env.StepType.LAST}, "'discount' must be a number"),
}


@pytest.mark.parametrize("case", NONE)
@pytest.mark.parametrize("frame_skip", [None, 2])
@pytest.mark.parametrize("wrapper", [DMControlWrapper, OnTensorDicts])
def test_none_is_an_error_instead_of_nan(wrapper, frame_skip, case):
    later, text = NONE[case]

    with pytest.raises(SpecError, match=text) as caught:
        wrapper(Breaks(**later), frame_skip=frame_skip).rollout(6)
    assert f"{wrapper.__name__}(NoneType).step: " in str(caught.value)
