"""A third-party family of transforms is found by its metadata."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forked import python
from tests.limits import CHILD

pytestmark = pytest.mark.programs

MODULE = """
from steppe.transforms import ObservationTransform


class Doubled(ObservationTransform):
    def __init__(self, times=2):
        super().__init__(["observation"])
        self.times = times

    def _apply_transform(self, value):
        return value * self.times


WRONG = 3
"""
METADATA = "Metadata-Version: 2.1\nName: acme-transforms\nVersion: 1.0\n"
ENTRY_POINTS = "[steppe.transforms]\nDoubled = acme_transforms:Doubled\n"


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder of installed packages with acme-transforms in it."""
    info = tmp_path / "acme_transforms-1.0.dist-info"
    info.mkdir()
    (tmp_path / "acme_transforms.py").write_text(MODULE)
    (info / "METADATA").write_text(METADATA)
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    return tmp_path


def run(installed: Path, *arguments: str) -> str:
    path = os.pathsep.join([str(installed), *sys.path])
    done = subprocess.run(
        [*python(), *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=CHILD,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_transforms_of_a_plugin_are_found_by_name(installed):
    """A plugin's transforms are imported, made, completed, and suggested by name."""
    code = """
import sys, steppe.transforms
print("Doubled" in dir(steppe.transforms), "acme_transforms" in sys.modules)
from steppe.transforms import Doubled
print(Doubled.__module__, Doubled(times=3).times)
try:
    steppe.transforms.Duobled
except AttributeError as error:
    print(error)
"""
    assert run(installed, "-c", code).splitlines() == [
        "True False",
        "acme_transforms 3",
        "module 'steppe.transforms' has no attribute 'Duobled'. Did you mean 'Doubled'?",
    ]


def test_they_run_in_worker_processes(installed):
    code = """
from steppe import ParallelEnv, TransformedEnv
from steppe.transforms import Doubled
from steppe_testing import ArrayCountingEnv
with ParallelEnv(2, lambda: TransformedEnv(ArrayCountingEnv(), Doubled())) as env:
    print(env.rollout(3)["next", "observation"][0, :, 0].tolist())
"""
    assert run(installed, "-c", code) == "[2.0, 4.0, 6.0]\n"


def test_the_command_line_lists_them(installed):
    listed = run(installed, "-m", "steppe", "plugins", "--all")

    assert "Doubled" in listed
    assert "acme-transforms" in listed
