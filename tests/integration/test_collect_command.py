"""``steppe collect`` as a separate process, with real environments and files."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tensordict import TensorDict, TensorDictBase

from tests.forked import python
from tests.limits import CHILD

pytestmark = pytest.mark.programs

POLICIES = """
import os
import signal

import torch

calls = 0


def push(observation):
    return torch.nn.functional.one_hot((observation[..., 2] > 0).long(), 2).to(torch.int64)


def wide(observation):
    return torch.ones(*observation.shape[:-1], 3, dtype=torch.int64)


def interrupting(observation):
    # As Ctrl-C does: to every process of the terminal's group.
    global calls
    calls += 1
    if calls == 100:
        os.killpg(0, signal.SIGINT)
    return push(observation)


def impatient(observation):
    global calls
    calls += 1
    if calls == 100:
        # A second one comes while the first is dealt with.
        from steppe_testing.commands.dataset import Dataset

        finish = Dataset.finish

        def interrupted(dataset):
            os.killpg(0, signal.SIGINT)
            return finish(dataset)

        Dataset.finish = interrupted
        os.killpg(0, signal.SIGINT)
    return push(observation)


def interrupting_at_once(observation):
    os.killpg(0, signal.SIGINT)
    return push(observation)


def failing(observation):
    global calls
    calls += 1
    if calls == 100:
        raise RuntimeError("out of ideas")
    return push(observation)
"""


class Done:
    """The output and files of a run of the command."""

    def __init__(self, status: int, out: str, err: str, folder: Path) -> None:
        self.status, self.out, self.err, self.folder = status, out, err, folder

    @property
    def data(self) -> TensorDictBase:
        return TensorDict.load_memmap(self.folder)

    def row(self, name: str) -> str:
        line = next(line for line in self.out.splitlines() if line.startswith(name))
        return re.split(r"\s{2,}", line.strip(), maxsplit=1)[1]


def collect(where: Path, *arguments: str, id: str = "gym:CartPole-v1", frames: str = "600", out: str = "out") -> Done:
    (where / "my_policies.py").write_text(POLICIES)
    command = [*python(), "-m", "steppe", "collect", id, "--frames", frames, "--out", out, *arguments]
    process = subprocess.run(
        command, cwd=where, capture_output=True, text=True, timeout=CHILD, start_new_session=True, check=False
    )
    return Done(process.returncode, process.stdout, process.stderr, where / out)


def others(where: Path) -> set[str]:
    return {path.name for path in where.iterdir()} - {"my_policies.py", "__pycache__"}


def test_frames_of_a_batch_are_written_and_counted(tmp_path: Path) -> None:
    done = collect(tmp_path, "--num-envs", "3", "--num-processes", "2", "--seed", "4")

    assert (done.status, done.err) == (0, "")
    data = done.data
    assert data.batch_size == (3, 200)
    assert data.names == [None, "time"]
    ended = data["next", "done"].squeeze(-1)
    returns = data["next", "episode_reward"].squeeze(-1)[ended]
    assert done.row("environment") == "gym:CartPole-v1"
    assert done.row("plugin").startswith("steppe-gym ")
    assert done.row("library").startswith("gymnasium ")
    assert done.row("frames") == "600"
    assert done.row("episodes") == str(len(returns))
    assert done.row("return") == f"{returns.mean():.2f}, {returns.min():.2f}, {returns.max():.2f}"
    assert done.row("length") == f"{returns.mean():.1f}, {returns.min():.0f}, {returns.max():.0f}"
    assert done.row("written to") == "out"
    assert others(tmp_path) == {"out"}


def test_wrong_input_is_a_one_line_error_without_output(tmp_path: Path) -> None:
    done = collect(tmp_path, "--policy", "my_policies:wide", "--num-envs", "2")
    assert (done.status, done.out, done.err.count("\n")) == (2, "", 1), done.err
    assert "The action 'action' must have shape (2, 2), found (2, 3)." in done.err
    assert others(tmp_path) == set()


@pytest.mark.parametrize("policy", ["interrupting", "impatient"])
def test_ctrl_c_keeps_what_was_collected(tmp_path: Path, policy: str) -> None:
    arguments = ("--num-envs", "8", "--num-processes", "2", "--policy", f"my_policies:{policy}")
    done = collect(tmp_path, *arguments, frames="100000")

    kept = done.data.numel()
    assert done.status == 130
    assert 0 < kept < 800
    assert done.err == f"steppe collect: interrupted; the {kept} frames collected until then are kept\n"
    assert done.row("frames") == str(kept)
    assert (done.data["observation"].abs().sum(-1) > 0).all()
    assert others(tmp_path) == {"out"}


def test_ctrl_c_before_anything_was_collected_leaves_nothing(tmp_path: Path) -> None:
    done = collect(tmp_path, "--policy", "my_policies:interrupting_at_once")
    assert (done.status, done.out, done.err) == (130, "", "steppe collect: interrupted\n")
    assert others(tmp_path) == set()


def test_a_failing_policy_is_reported_and_the_data_is_kept(tmp_path: Path) -> None:
    """If the policy fails, the command keeps the frames collected so far."""
    done = collect(tmp_path, "--num-envs", "8", "--policy", "my_policies:failing", frames="100000")
    assert done.status == 1
    assert "out of ideas" in done.err
    assert 0 < done.data.numel() < 800


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_a_terminal_shows_a_bar(tmp_path: Path) -> None:
    import pty

    leader, follower = pty.openpty()
    command = [*python(), "-m", "steppe", "collect", "gym:CartPole-v1", "--frames", "600", "--out", "out"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=follower, env=environment)
    os.close(follower)
    shown = b"".join(iter(lambda: read(leader), b"")).decode()
    os.close(leader)
    assert process.wait(CHILD) == 0
    assert "frames/s" in shown
    assert "/600" in shown


def read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # Linux says so when the last process has closed the other end
        return b""
