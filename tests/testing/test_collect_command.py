from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from steppe.cli import main

torch = pytest.importorskip("torch")
pytest.importorskip("gymnasium")

from tensordict import TensorDict  # noqa: E402

from tests.limits import CHILD  # noqa: E402


@pytest.fixture
def steppe(steppe_with_commands):
    return steppe_with_commands


POLICIES = """
import torch

CALLS = [0]


def proportional(observation):
    return -observation[..., :1]


def too_wide(observation):
    return observation


def failing(observation):
    raise ValueError("no idea")


def wide_later(observation):
    CALLS[0] += 1
    return observation if CALLS[0] > 5 else observation[..., :1]
"""


@pytest.fixture
def policies(fake_dist):
    fake_dist("mine", files={"my_policies.py": POLICIES})


@pytest.fixture
def collect(capsys, tmp_path):
    def run(*arguments, id="gym:Pendulum-v1", frames=40, out="out"):
        status = main(["collect", id, "--frames", str(frames), "--out", str(tmp_path / out), *arguments])
        return status, *capsys.readouterr()

    return run


def table(text: str) -> dict[str, str]:
    cells = [re.split(r"\s{2,}", line.strip(), maxsplit=1) for line in text.splitlines()]
    return {each[0]: each[1] for each in cells if len(each) == 2}


def test_a_data_set_and_a_table_come_out(collect, tmp_path, saved_time):
    status, out, err = collect("--num-envs", "2", "--num-processes", "2", "--max-steps", "5")
    data = TensorDict.load_memmap(tmp_path / "out")
    told = table(out)

    assert (status, err) == (0, "")
    assert data.batch_size == (2, 20)
    assert data.names[-1] == saved_time
    assert (told["environment"], told["frames"], told["episodes"]) == ("gym:Pendulum-v1", "40", "8")
    assert told["plugin"].startswith("steppe-gym ")
    assert told["library"].startswith("gymnasium ")
    returns = data["next", "episode_reward"][data["next", "done"]]
    assert told["return (mean, min, max)"] == f"{returns.mean():.2f}, {returns.min():.2f}, {returns.max():.2f}"
    assert told["length (mean, min, max)"] == "5.0, 5, 5"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_without_steppe_reward_the_table_names_the_package(collect, tmp_path, monkeypatch):
    monkeypatch.setenv("STEPPE_DISABLE_PLUGINS", "steppe-reward")
    status, out, err = collect("--max-steps", "5")

    assert (status, err) == (0, "")
    assert table(out)["return (mean, min, max)"] == "pip install 'steppe[reward]' to see them"
    assert "episode_reward" not in TensorDict.load_memmap(tmp_path / "out")["next"]


def test_frames_are_rounded_up_to_whole_steps_with_a_message(collect, tmp_path):
    status, out, _ = collect("--num-envs", "3", frames=40)
    assert status == 0
    assert out.splitlines()[0] == "40 frames are rounded up to 42: 14 steps of 3 environments."
    assert TensorDict.load_memmap(tmp_path / "out").batch_size == (3, 14)


def test_one_environment_gives_exactly_the_frames(collect, tmp_path):
    assert collect(frames=601)[0] == 0
    assert TensorDict.load_memmap(tmp_path / "out").batch_size == (1, 601)


def test_a_seed_gives_the_same_data_with_any_process_count(collect, tmp_path):
    for out, processes in (("one", "1"), ("two", "2")):
        collect("--num-envs", "2", "--num-processes", processes, "--seed", "7", id="gym:CartPole-v1", out=out)
    collect("--num-envs", "2", "--seed", "8", id="gym:CartPole-v1", out="other")
    one, two, other = (TensorDict.load_memmap(tmp_path / out) for out in ("one", "two", "other"))
    assert (one == two).all()
    assert not torch.equal(one["observation"], other["observation"])


def test_a_policy_chooses_the_actions(collect, policies, tmp_path):
    assert collect("--policy", "my_policies:proportional")[0] == 0
    data = TensorDict.load_memmap(tmp_path / "out")
    torch.testing.assert_close(data["action"], -data["observation"][..., :1])


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ("too_wide", "The action 'action' must have shape (1, 1), found (1, 3)."),
        (
            "failing",
            "Collector: the policy failing does not act on what the environment gives it: ValueError: no idea.",
        ),
        ("wide_later", ""),
    ],
)
def test_a_wrong_policy_is_a_one_line_error_without_output(collect, policies, tmp_path, policy, text):
    status, out, err = collect("--policy", f"my_policies:{policy}")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"steppe collect: {text}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("batch", [[], ["--num-envs", "2"]], ids=["in process", "in workers"])
def test_an_unknown_environment_is_one_line_and_writes_nothing(collect, tmp_path, batch):
    status, out, err = collect(*batch, id="gym:Pendulam-v1")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "has no environment 'Pendulam-v1'. Did you mean 'Pendulum-v1'?" in err
    assert list(tmp_path.iterdir()) == []


def test_overwrite_replaces_what_was_there(collect, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old.txt").write_text("old")
    assert collect()[0] == 2
    assert collect("--overwrite")[0] == 0
    assert not (tmp_path / "out" / "old.txt").exists()
    assert TensorDict.load_memmap(tmp_path / "out").numel() == 40


FRAGILE = """
from steppe import hookimpl


@hookimpl
def steppe_make_env(name):
    import gymnasium
    from steppe_gym import GymWrapper

    class Fragile(gymnasium.Wrapper):
        steps = 0

        def step(self, action):
            self.steps += 1
            if self.steps > 600:
                raise OSError("the disk is full")
            return super().step(action)

    return GymWrapper(Fragile(gymnasium.make(name)))
"""


def test_frames_before_a_failure_are_written(steppe, fake_dist, tmp_path):
    fake_dist("fragile", envs={"fragile": "fragile"}, files={"fragile.py": FRAGILE})
    out = tmp_path / "out"
    status, _, err = steppe("collect", "fragile:CartPole-v1", "--frames", "1000", "--out", str(out))
    assert status == 1
    assert "the disk is full" in err
    assert err.endswith("The 500 frames collected until then are kept.\n")
    assert TensorDict.load_memmap(out).batch_size == (1, 500)


MARKING = """
from pathlib import Path

import torch

CALLS = [0]


def left(observation):
    CALLS[0] += 1
    if CALLS[0] == 300:
        Path("two batches are there").touch()
    return torch.tensor([1, 0]).expand(*observation.shape[:-1], 2)
"""


@pytest.mark.programs
def test_an_interrupt_keeps_what_was_collected(tmp_path):
    # Many more frames than are collected before the interrupt, but less than 1 GiB, which the command wants free.
    frames = "10000000"
    (tmp_path / "my_marking_policy.py").write_text(MARKING)
    command = [sys.executable, "-m", "steppe", "collect", "gym:CartPole-v1", "--frames", frames, "--out", "out"]
    command += ["--num-envs", "2", "--num-processes", "2", "--policy", "my_marking_policy:left"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, cwd=tmp_path, start_new_session=True, **pipes)
    try:
        deadline = time.monotonic() + CHILD
        while not (tmp_path / "two batches are there").exists() and time.monotonic() < deadline:
            assert process.poll() is None, process.communicate(timeout=CHILD)
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)  # what a terminal sends: to the workers too
        out, err = process.communicate(timeout=CHILD)
    finally:
        process.kill()
    assert process.returncode == 130, err
    kept = TensorDict.load_memmap(tmp_path / "out")
    assert kept.numel() >= 512
    assert kept["action"][..., 0].bool().all()
    assert err == f"steppe collect: interrupted; the {kept.numel()} frames collected until then are kept\n"
    assert table(out)["frames"] == str(kept.numel())
    assert not list(tmp_path.glob(".out-*"))
