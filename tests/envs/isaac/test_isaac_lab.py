"""Environments of Isaac Lab in steppe, compared with the double of the library."""

from __future__ import annotations

import gymnasium
import pytest
import torch

pytest.importorskip("steppe_isaac")

from steppe import ParallelEnv, SerialEnv, StepCounter, SyncDataCollector, TransformedEnv, make_env
from steppe.envs import next_seed
from steppe.errors import ArgumentError, EnvNotFound, LibraryMissing, NotSupported
from steppe.registry import env_factory
from steppe_isaac import IsaacLabEnv, IsaacLabWrapper
from steppe_testing.doubles.isaaclab_double import DirectMARLEnv, parse_env_cfg

pytestmark = [pytest.mark.library, pytest.mark.matrix, pytest.mark.filterwarnings("ignore")]

_TASKS = ("Isaac-Cartpole-v0", "Isaac-Cartpole-Direct-v0")


def raw_env(task, n):
    IsaacLabEnv.available_envs  # noqa: B018 (registers the tasks)
    return gymnasium.make(task, cfg=parse_env_cfg(task, "cpu", n))


def assert_equal_to_library(data, seed, task, final=None):
    """Take the actions of data ``[n, T]`` with the library, and compare all entries.

    ``final`` is the value of last observations; None if they are computed.
    """
    raw = raw_env(task, data.shape[0])
    seen = raw.reset(seed=seed)[0]["policy"].clone()
    for t in range(data.shape[1]):
        row = data[:, t]
        assert torch.equal(row["policy"], seen)
        observation, reward, terminated, truncated, _ = raw.step(row["action"])
        ended = (terminated | truncated)[:, None]
        assert torch.equal(row["next", "reward"][:, 0], reward)
        assert torch.equal(row["next", "terminated"][:, 0], terminated)
        assert torch.equal(row["next", "truncated"][:, 0], truncated)
        shown = row["next", "policy"]
        assert torch.equal(torch.where(ended, 0, shown), torch.where(ended, 0, observation["policy"]))
        if final is not None:
            lost = shown[ended[:, 0]]
            assert bool((lost.isnan() if final != final else lost == final).all())
        if "critic" in row.keys():
            assert row["next", "critic", "far"].dtype == torch.bool
        seen = observation["policy"].clone()


@pytest.mark.parametrize("task", _TASKS)
def test_a_rollout_equals_the_library(task):
    env = make_env(f"isaaclab:{task}", num_envs=5, device="cpu")
    env.set_seed(4)

    data = env.rollout(100, break_when_any_done=False)

    ends = data["next", "done"][..., 0]
    assert ends.sum() > 5
    assert len(set(ends.nonzero()[:, 1].tolist())) > 2, "rows end alone"
    assert_equal_to_library(data, 4, task, final=float("nan"))


@pytest.mark.parametrize("task", _TASKS)
def test_final_observations_are_those_before_the_reset(task):
    env = IsaacLabEnv(task, num_envs=5, device="cpu", final_observations=True)
    env.set_seed(4)

    data = env.rollout(100, break_when_any_done=False)

    assert_equal_to_library(data, 4, task)
    ended = data["next", "terminated"][..., 0]
    assert (data["next", "policy"][ended][:, 0].abs() > 2).all(), "a row ends where its point is far away"


def test_a_step_loop_equals_the_library():
    env = IsaacLabEnv(_TASKS[0], num_envs=3, device="cpu", missing_obs_value=7.0)
    env.set_seed(9)
    root, steps = env.reset(), []
    for _ in range(80):
        step, root = env.step_and_maybe_reset(env.rand_action(root))
        steps.append(step)

    assert_equal_to_library(torch.stack(steps, 1), 9, _TASKS[0], final=7.0)


@pytest.mark.parametrize("kind", [SerialEnv, ParallelEnv])
def test_rows_of_a_batch_equal_the_library(kind):
    batch = kind(2, env_factory(f"isaaclab:{_TASKS[1]}", num_envs=2, device="cpu"))
    batch.set_seed(5)
    data = batch.rollout(60, break_when_any_done=False)
    batch.close()

    for rows, seed in zip(data, (5, next_seed(5)), strict=True):
        assert_equal_to_library(rows, seed, _TASKS[1], final=float("nan"))


def test_a_collector_equals_the_library():
    env = IsaacLabEnv(_TASKS[0], num_envs=4, device="cpu")
    env.set_seed(2)
    collector = SyncDataCollector(env, None, frames_per_batch=200, total_frames=400)
    data = torch.cat([batch.clone() for batch in collector], -1)
    collector.shutdown()

    assert_equal_to_library(data, 2, _TASKS[0], final=float("nan"))


@pytest.mark.parametrize("task", _TASKS)
def test_rows_are_reset_alone_in_an_episode(task):
    first, second = (IsaacLabEnv(task, num_envs=3, device="cpu", seed=6) for _ in range(2))
    one, two = first.reset(), second.reset()
    for t in range(4):
        action = first.rand_action()["action"] * 0
        if t == 2:
            before = one.clone()
            one = first.reset(one.set("_reset", torch.tensor([[True], [False], [False]])))
            assert not torch.equal(one["policy"][0], before["policy"][0])
            assert torch.equal(one["policy"][1:], before["policy"][1:])
            assert first._env.unwrapped.episode_length_buf.tolist() == [0, 2, 2]
        one, two = (env.step_mdp(env.step(td.set("action", action))) for env, td in ((first, one), (second, two)))
    assert torch.equal(one["policy"][1:], two["policy"][1:])


def test_a_limit_around_it_resets_rows():
    limited = TransformedEnv(IsaacLabEnv(_TASKS[1], num_envs=2, device="cpu", seed=1), StepCounter(max_steps=5))

    data = limited.rollout(20, lambda td: td.set("action", torch.zeros(2, 1)), break_when_any_done=False)

    assert data["next", "truncated"][:, 4::5].all()
    assert not data["policy"].isnan().any()


def test_images_of_a_tiled_camera_are_an_entry():
    env = IsaacLabEnv(_TASKS[0], num_envs=2, device="cpu", from_tiled_camera=True, pixels_key=("camera", "rgb"))

    data = env.rollout(3)

    assert data["next", "camera", "rgb"].shape == (2, 3, 8, 12, 3)
    assert data["camera", "rgb"].dtype == torch.uint8
    with pytest.raises(ArgumentError, match="no sensor 'front'"):
        IsaacLabEnv(_TASKS[0], num_envs=2, device="cpu", from_tiled_camera=True, tiled_camera_name="front")


def test_a_camera_is_added_to_a_configuration():
    cfg = IsaacLabWrapper.add_tiled_camera_config(
        parse_env_cfg(_TASKS[1], "cpu", 2), sensor_name="front", width=6, height=4, render_interval=3
    )
    env = IsaacLabEnv(_TASKS[1], cfg=cfg, device="cpu", from_tiled_camera=True, tiled_camera_name="front")

    assert env.rollout(2)["pixels"].shape == (2, 2, 4, 6, 3)
    assert cfg.sim.render_interval == 3
    assert cfg.scene.front.offset.pos == (-7.0, 0.0, 3.0)
    assert cfg.scene.front.prim_path == "{ENV_REGEX_NS}/Camera"


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"renderer_backend": "ovrtx", "renderer_cfg": 1}, ArgumentError, "exclude each other"),
        ({"renderer_backend": "newton"}, ArgumentError, "must be one of .* found 'newton'"),
        ({"renderer_backend": "newton_warp"}, LibraryMissing, "needs the package isaaclab_newton"),
    ],
)
def test_a_renderer_that_is_not_there_is_an_error(arguments, error, text):
    with pytest.raises(error, match=text):
        IsaacLabWrapper.add_tiled_camera_config(parse_env_cfg(_TASKS[0], "cpu", 2), **arguments)


def test_an_episode_continues_from_a_state_of_the_scene():
    env = IsaacLabEnv(_TASKS[0], num_envs=3, device="cpu", seed=3)
    first = env.rollout(4)[:, -1]["next"]
    state = env.get_state()
    env.rollout(9, break_when_any_done=False)

    again = env.reset_to_state(state)

    assert torch.equal(again["policy"][:, :2], first["policy"][:, :2])
    assert not again["done"].any()
    assert env._env.unwrapped.episode_length_buf.tolist() == [0, 0, 0]
    one, two = (env.reset_to_state(state, seed=5)["policy"] for _ in range(2))
    assert torch.equal(one, two)


def test_some_rows_continue_from_a_state_of_the_scene():
    env = TransformedEnv(IsaacLabEnv(_TASKS[0], num_envs=3, device="cpu", seed=3), StepCounter())
    state, start = env.get_state(), env.reset()
    later = env.step_mdp(env.rollout(5, tensordict=start, auto_reset=False)[:, -1])
    mask = torch.tensor([[False], [True], [False]])

    again = env.reset(later.clone().set("_reset", mask), set_state=True, scene_state=state)

    expected = state["articulation"]["robot"]["joint_position"][1]
    assert torch.equal(again["policy"][1, :1], expected)
    assert torch.equal(again["policy"][[0, 2]], later["policy"][[0, 2]])
    assert again["step_count"].flatten().tolist() == [5, 0, 5]


def test_rows_that_ended_keep_their_first_observations():
    env = IsaacLabEnv(_TASKS[0], num_envs=3, device="cpu", seed=3)
    state = env.get_state()
    root = env.rand_action(env.reset())
    env._env.unwrapped.episode_length_buf[:] = torch.tensor([24, 0, 0])
    ended = env.step(root)
    root = env.step_mdp(ended)
    fresh = env._env.unwrapped.obs_buf["policy"][0].clone()
    root = env.reset(root.set("_reset", torch.tensor([[False], [True], [False]])), set_state=True, scene_state=state)

    root = env.reset(root.set("_reset", ended["next", "done"]))

    assert ended["next", "done"].flatten().tolist() == [True, False, False]
    assert torch.equal(root["policy"][0], fresh)


def test_states_that_cannot_be_set_are_refused():
    managers = IsaacLabEnv(_TASKS[0], num_envs=2, device="cpu")
    direct = IsaacLabEnv(_TASKS[1], num_envs=2, device="cpu")

    with pytest.raises(NotSupported, match="cannot be put into a state"):
        direct.reset_to_state(direct.get_state())
    with pytest.raises(ArgumentError, match="needs scene_state="):
        managers.reset(managers.reset(), set_state=True)
    with pytest.raises(ArgumentError, match="needs set_state=True"):
        managers.reset(scene_state=managers.get_state())


def test_environments_of_several_agents_are_refused():
    with pytest.raises(NotSupported, match="multi_agent_to_single_agent"):
        IsaacLabWrapper(DirectMARLEnv())


def test_an_unknown_task_gets_a_close_one():
    with pytest.raises(EnvNotFound, match="Did you mean 'Isaac-Cartpole-v0'"):
        make_env("isaaclab:Isaac-Cartpole-v1", num_envs=2, device="cpu")


def test_an_environment_made_elsewhere_is_wrapped():
    env = IsaacLabWrapper(raw_env(_TASKS[0], 4), native_autoreset=True)

    assert env.rollout(2).shape == (4, 2)
    assert env.max_episode_length == 25


def test_a_wrong_argument_is_named():
    with pytest.raises(TypeError, match="does not take \\['num_env'\\]"):
        IsaacLabEnv(_TASKS[0], num_env=3, device="cpu")
