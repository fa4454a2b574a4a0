"""Wheels that a clone builds install every plugin into a new environment."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.limits import CHILD
from tools.build_packages import build

pytestmark = pytest.mark.programs

#: Names the folders with torch and the libraries, which the new environments see: tools/base_env.py.
BASE = Path(sysconfig.get_path("purelib"), "steppe_base.pth")

SETS = ["gym,vmas", "record,gym", "agents,pools", "testing", "dm-control,pettingzoo"]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    before = Path.cwd()
    build(folder, [], editable=False)
    os.chdir(before)
    return folder


def run(*command: str | Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PIP_CONSTRAINT")}
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=CHILD, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Environment:
    """A new virtual environment, in which pip finds packages of this repository in a folder of wheels only."""

    def __init__(self, folder: Path, wheels: Path) -> None:
        if not BASE.is_file():
            pytest.skip("the libraries are not in a shared environment; run the session programs of nox")
        run(sys.executable, "-m", "venv", "--without-pip", folder)
        self.python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        place = run(self.python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
        Path(place, "steppe_base.pth").write_text(BASE.read_text(encoding="utf-8"), encoding="utf-8")
        self.wheels = wheels

    def install(self, *requirements: str) -> None:
        pip = (sys.executable, "-m", "pip", "--python", self.python, "install", "--quiet", "--no-index")
        run(*pip, "--find-links", self.wheels, *requirements)

    def plugins(self) -> dict[str, str]:
        """The state of each plugin, by the name of its package."""
        found = json.loads(run(self.python, "-m", "steppe", "plugins", "--load", "--json"))
        return {plugin["dist"]: plugin["state"] for plugin in found}


@pytest.mark.parametrize("extras", SETS)
def test_a_set_of_extras_installs_from_wheels(extras, wheels, tmp_path):
    environment = Environment(tmp_path / "new", wheels)

    environment.install(f"steppe[{extras}]")

    states = environment.plugins()
    assert {f"steppe-{extra}" for extra in extras.split(",")} <= set(states)
    assert set(states.values()) == {"loaded"}


def test_the_command_of_an_error_installs_what_it_names(wheels, tmp_path):
    """`from steppe.transforms import VideoRecorder` names an extra, which the same wheels have."""
    environment = Environment(tmp_path / "new", wheels)
    environment.install("steppe[gym]")
    program = "from steppe.transforms import VideoRecorder"
    failed = subprocess.run([environment.python, "-c", program], capture_output=True, text=True, timeout=CHILD)
    (requirement,) = re.findall(r"pip install '([^']+)'", failed.stderr.splitlines()[-1])

    environment.install(requirement)

    assert requirement == "steppe[record]"
    run(environment.python, "-c", program)
