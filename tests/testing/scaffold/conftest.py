"""``steppe new-plugin`` runs in this process, beside fake packages. These tests need no torch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.workspace import package

# A simulator as people write them: a seed for reset, a size that depends on the name, four values from step.
SIMULATOR = """
import random

print("a library that prints when it is imported")


class Warehouse:
    n_actions = 5

    def __init__(self, layout="small"):
        self.size = {"small": 4, "large": 8}[layout]

    def reset(self, seed=None):
        self.random = random.Random(seed)
        return self.seen()

    def seen(self):
        return {"battery": self.random.random(), "carrying": False, "floor": self.random.randrange(3)}

    def step(self, action):
        assert 0 <= action < 5
        return self.seen(), 1.0, self.random.random() < 0.1, {}
"""

# A fleet of boats that drift. Its methods have other names, one entry is a list of texts, one is shared by all worlds,
# the size depends on the name, and a reset without a mask resets all worlds.
FLEET = """
import numpy as np


class Fleet:
    n_actions = 4

    def __init__(self, harbour, num_envs=2):
        self.size = {"bay": 5, "ocean": 9}[harbour]
        self.random = [np.random.default_rng() for _ in range(num_envs)]
        self.at = np.zeros((num_envs, 2), np.float32)
        self.hours = np.zeros(num_envs, int)

    def launch(self, seed=None, mask=None):
        if seed is not None:
            self.random = [np.random.default_rng(each) for each in np.random.SeedSequence(seed).spawn(len(self.at))]
        for i in np.flatnonzero(np.ones(len(self.at), bool) if mask is None else mask):
            self.at[i], self.hours[i] = self.random[i].normal(size=2), 0
        return self.seen(), {}

    def seen(self):
        chart = np.zeros((len(self.at), self.size, self.size), np.uint8)
        return {"at": self.at, "hours": self.hours, "chart": chart, "flags": ["red"] * len(self.at), "tide": 3}

    def sail(self, moves):
        self.at += moves[:, None] / 10
        self.hours += 1
        return self.seen(), -abs(self.at).sum(1), abs(self.at).max(1) > 3, self.hours >= 30, [{}] * len(moves)
"""


@pytest.fixture
def installed(fake_dist):
    """The entry point of the command, in the registry of the test."""
    entry = package("steppe-testing").entry_points("steppe.commands")
    fake_dist("steppe-testing", "0.1.0", entry_points={"steppe.commands": entry})


@pytest.fixture
def new_plugin(steppe, installed, tmp_path):
    """Runs ``steppe new-plugin ARGUMENTS`` into a folder; returns its result."""

    def run(*arguments: str):
        return steppe("new-plugin", *arguments, "--dir", str(tmp_path))

    return run


@pytest.fixture
def warehouse(fake_dist):
    fake_dist("warehouse", "1.2", files={"warehouse.py": SIMULATOR})


def sources(folder: Path) -> dict[str, str]:
    """Every file of a package, by its path."""
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in folder.rglob("*")
        if path.is_file()
    }
