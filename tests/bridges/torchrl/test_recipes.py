"""The recipes of docs/train-with-torchrl.md run, with few frames."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from tools.documents import program
from tools.workspace import ROOT

pytest.importorskip("torchrl")
PAGE = ROOT / "docs" / "train-with-torchrl.md"


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("ppo.py", {"total_frames": 2048}),
        ("sac.py", {"total_frames": 1600, "random_frames": 320}),
        ("dqn.py", {"total_frames": 2048, "random_frames": 320}),
        ("mappo.py", {"num_envs": 4, "batches": 2}),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_a_recipe_trains_for_a_few_batches(name, arguments):
    names: dict[str, Any] = {"__name__": "recipe"}
    exec(compile(program(PAGE, name), name, "exec"), names)
    result = names["main"](**arguments)

    assert all(map(math.isfinite, result if isinstance(result, tuple) else [result]))
