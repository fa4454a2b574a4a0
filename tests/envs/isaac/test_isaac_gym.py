"""Tasks of Isaac Gym in steppe, compared with the double of the library."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

pytest.importorskip("steppe_isaac")

from steppe import ParallelEnv, SerialEnv, StepCounter, SyncDataCollector, TransformedEnv, make_env
from steppe.envs import next_seed
from steppe.errors import ArgumentError, EnvNotFound, LibraryMissing, LibraryVersionError, NotSupported, SpecError
from steppe.registry import env_factory
from steppe_isaac import IsaacGymEnv, IsaacGymWrapper
from steppe_isaac.libraries import isaac_gym, isaac_lab
from steppe_testing.doubles import write
from steppe_testing.doubles.isaacgym_double import Cartpole, make
from steppe_testing.fake_dists import FakeDists

pytestmark = [pytest.mark.library, pytest.mark.matrix, pytest.mark.filterwarnings("ignore")]


def assert_equal_to_library(data, seed, task="Cartpole", limit=500):
    """Take the actions of data ``[n, T]`` with the library, and compare all entries.

    The library begins with a step of zeros, in which it resets all rows.
    """
    torch.manual_seed(seed)
    cfg = {"env": {"maxEpisodeLength": limit}}
    raw = make(None, task, data.shape[0], "cpu", "cpu", cfg=cfg)
    raw.reset_buf.fill_(1)
    seen = raw.step(raw.zero_actions())[0]["obs"].clone()
    over = raw.reset_buf.clone().bool()
    for t in range(data.shape[1]):
        row = data[:, t]
        assert torch.equal(row["obs"], seen)
        observation, reward, ends, extras = raw.step(row["action"])
        valid = ~over
        assert torch.equal(row["next", "obs"], observation["obs"])
        assert torch.equal(row["next", "valid"][:, 0], valid)
        assert torch.equal(row["next", "reward"][:, 0], torch.where(valid, reward, 0))
        assert torch.equal(row["next", "done"][:, 0], ends.bool() & valid)
        assert torch.equal(row["next", "truncated"][:, 0], ends.bool() & valid & extras["time_outs"].bool())
        if "states" in row.keys():
            assert torch.equal(row["next", "states"], observation["states"])
        seen, over = observation["obs"].clone(), ends.clone().bool()


@pytest.mark.parametrize("task", ["Cartpole", "Ant"])
def test_a_rollout_equals_the_library(task):
    env = make_env(f"isaacgym:{task}", num_envs=5, device="cpu", cfg={"env": {"maxEpisodeLength": 60}})
    env.set_seed(4)

    data = env.rollout(200, break_when_any_done=False)

    done = data["next", "done"][..., 0]
    assert done.sum() > 5, "episodes end, and rows are reset alone"
    assert (~data["next", "valid"]).sum() >= done[:, :-1].sum()
    assert_equal_to_library(data, 4, task, limit=60)


def test_a_step_loop_equals_the_library():
    env = IsaacGymEnv("Cartpole", num_envs=3, device="cpu")
    env.set_seed(9)
    root, steps = env.reset(), []
    for _ in range(150):
        step, root = env.step_and_maybe_reset(env.rand_action(root))
        steps.append(step)

    assert_equal_to_library(torch.stack(steps, 1), 9)


@pytest.mark.parametrize("kind", [SerialEnv, ParallelEnv])
def test_rows_of_a_batch_equal_the_library(kind):
    batch = kind(2, env_factory("isaacgym:Cartpole", num_envs=2, device="cpu"))
    batch.set_seed(5)
    data = batch.rollout(120, break_when_any_done=False)
    batch.close()

    for rows, seed in zip(data, (5, next_seed(5)), strict=True):
        assert_equal_to_library(rows, seed)


def test_a_collector_equals_the_library():
    env = IsaacGymEnv("Cartpole", num_envs=4, device="cpu")
    env.set_seed(2)
    collector = SyncDataCollector(env, None, frames_per_batch=400, total_frames=800)
    data = torch.cat([batch.clone() for batch in collector], -1)
    collector.shutdown()

    assert_equal_to_library(data, 2)


def test_a_truncated_row_is_reset_in_the_next_step():
    limited = TransformedEnv(IsaacGymEnv("Cartpole", num_envs=2, device="cpu", seed=1), StepCounter(max_steps=10))

    data = limited.rollout(30, break_when_any_done=False)

    valid = data["next", "valid"][..., 0]
    assert (~valid[:, 10]).all()
    assert (data["next", "obs"][:, 10] - data["obs"][:, 10]).abs().max() > 0


def test_other_rows_go_on_at_a_partial_reset():
    first, second = (IsaacGymEnv("Cartpole", num_envs=3, device="cpu", seed=6) for _ in range(2))
    one, two = first.reset(), second.reset()
    for t in range(12):
        action = first.rand_action()["action"]
        if t == 5:
            one = first.reset(one.set("_reset", torch.tensor([[True], [False], [False]])))
        one, two = (env.step_mdp(env.step(td.set("action", action))) for env, td in ((first, one), (second, two)))
    assert torch.equal(one["obs"][1:], two["obs"][1:])
    assert not torch.equal(one["obs"][0], two["obs"][0])


def test_a_reset_returns_first_observations():
    env = IsaacGymEnv("Cartpole", num_envs=4, device="cpu", seed=0)

    raw = env._env.reset()["obs"].clone()
    assert env.reset()["obs"].abs().sum() > 0
    assert not torch.equal(env.reset()["obs"], raw)


def test_later_steps_keep_earlier_data():
    env = IsaacGymEnv("Cartpole", num_envs=2, device="cpu", seed=0)
    step = env.step(env.rand_action(env.reset()))
    kept = step.clone()

    env.step(env.rand_action(env.step_mdp(step)))

    assert (step == kept).all()


def test_draws_of_others_change_no_data():
    first, second = (IsaacGymEnv("Cartpole", num_envs=2, device="cpu") for _ in range(2))
    for env in (first, second):
        env.set_seed(3)
    one = first.rollout(80, break_when_any_done=False)
    two = second.rollout(
        80, lambda td: (torch.rand(100), td.set("action", torch.zeros(2, 1)))[1], break_when_any_done=False
    )
    assert torch.equal(one["obs"][:, 0], two["obs"][:, 0])
    state = torch.get_rng_state()
    first.rollout(5)
    assert torch.equal(state, torch.get_rng_state())


def test_environments_without_a_seed_differ():
    torch.manual_seed(0)
    first = IsaacGymEnv("Cartpole", num_envs=2, device="cpu").reset()
    torch.manual_seed(0)
    second = IsaacGymEnv("Cartpole", num_envs=2, device="cpu")
    assert not torch.equal(first["obs"], second.reset()["obs"])
    state = torch.get_rng_state()
    second.set_seed(None)
    assert torch.equal(state, torch.get_rng_state())


def test_a_policy_in_inference_mode_does_not_freeze_buffers():
    env = IsaacGymEnv("Cartpole", num_envs=2, device="cpu")
    with torch.inference_mode():
        env.rollout(3)
    env.rollout(100, break_when_any_done=False)


def test_images_of_the_viewer_are_an_entry():
    env = IsaacGymEnv(
        "Cartpole", num_envs=2, device="cpu", from_pixels=True, headless=False, virtual_screen_capture=True
    )

    assert env.rollout(3)["next", "pixels"].shape == (2, 3, 24, 32, 3)
    with pytest.raises(SpecError, match="virtual_screen_capture=True"):
        IsaacGymEnv("Cartpole", num_envs=2, device="cpu", from_pixels=True)


def test_a_task_made_elsewhere_is_wrapped():
    settings = {"rl_device": "cpu", "sim_device": "cpu", "graphics_device_id": -1, "headless": True}
    env = IsaacGymWrapper(Cartpole({"env": {"numEnvs": 3}}, **settings))

    assert env.batch_size == (3,)
    assert env.task == "Cartpole"
    assert env.num_actions == 1
    with pytest.raises(ArgumentError, match="batch size of 3 environments"):
        IsaacGymWrapper(Cartpole({"env": {"numEnvs": 3}}, **settings), batch_size=[4])


def test_an_unknown_task_gets_a_close_one():
    with pytest.raises(EnvNotFound, match="Did you mean 'Cartpole'"):
        make_env("isaacgym:Cartpol", num_envs=2, device="cpu")
    assert IsaacGymEnv.available_envs == ["Ant", "Cartpole"]


def test_an_old_library_is_named(tmp_path, monkeypatch):
    dists = FakeDists(tmp_path)
    dists("isaacgymenvs", "1.5.1")
    dists("isaacgym", "1.0rc3")
    monkeypatch.syspath_prepend(str(tmp_path))

    with pytest.raises(LibraryVersionError, match=r"isaacgym>=1\.0rc4, but isaacgym 1\.0rc3"):
        isaac_gym()


def test_a_missing_library_says_where_it_is(tmp_path, monkeypatch):
    others = [path for path in sys.path if "double-isaac" not in path]
    monkeypatch.setattr(sys, "path", [str(tmp_path), *others])
    with pytest.raises(LibraryMissing, match="IsaacGymEnvs"):
        isaac_gym()
    FakeDists(tmp_path)("isaacgymenvs", "1.5.1")
    with pytest.raises(LibraryMissing, match="Download Isaac Gym Preview 4"):
        make_env("isaacgym:Cartpole", num_envs=2, device="cpu")
    with pytest.raises(LibraryMissing, match=r"isaaclab>=0\.30"):
        isaac_lab()


_ORDERED = """
import {first}
import {second}
from steppe import ParallelEnv, make_env
from steppe.registry import env_factory

if __name__ == "__main__":
    batch = ParallelEnv(2, env_factory("isaacgym:Cartpole", num_envs=2, device="cpu"), num_processes=2, {method})
    print(batch.rollout(3)["obs"].shape)
    batch.close()
    make_env("isaacgym:Cartpole", num_envs=2, device="cpu")
    try:
        make_env("isaacgym:Cartpole", num_envs=2, device="cpu")
    except RuntimeError as error:
        print(error)
"""


def run(tmp_path, **names):
    program = tmp_path / "program.py"
    program.write_text(_ORDERED.format(**names))
    (library := tmp_path / "library").mkdir()
    write("isaacgym", library)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(library), *sys.path])}
    env.pop("STEPPE_LENIENT_DOUBLES", None)
    return subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=120, env=env)


def test_workers_have_isaac_gym_if_they_are_forked(tmp_path):
    done = run(tmp_path, first="isaacgym", second="torch", method='mp_start_method="fork"')

    assert "torch.Size([2, 2, 3, 4])" in done.stdout, done.stderr
    assert "second simulation" not in done.stdout, "the environment that was made first has been collected"


def test_torch_before_isaac_gym_is_explained(tmp_path):
    done = run(tmp_path, first="torch", second="steppe", method="")

    assert "Write `import isaacgym` in the first line" in done.stderr, done.stderr


def test_a_batch_of_the_library_has_no_partial_step():
    env = IsaacGymEnv("Cartpole", num_envs=2, device="cpu")
    root = env.rand_action(env.reset()).set("_step", torch.tensor([[True], [False]]))
    with pytest.raises(NotSupported, match="no partial step"):
        env.step(root)
