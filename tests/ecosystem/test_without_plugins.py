"""The core alone: as after ``pip uninstall steppe-gym``."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.ecosystem.installed import link_libraries
from tests.limits import CHILD
from tools.workspace import package

pytestmark = pytest.mark.programs


@pytest.fixture(scope="module")
def uninstalled(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The PYTHONPATH of an interpreter that sees everything installed here but steppe's plugins."""
    site = link_libraries(tmp_path_factory.mktemp("site"), ("steppe_", "_steppe_"))
    return os.pathsep.join([str(package("steppe").path / "src"), str(site)])


def run(path: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-S", *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=CHILD,
    )


def test_the_core_works(uninstalled):
    code = "from steppe import EnvBase, ParallelEnv, SerialEnv, StepCounter, list_plugins; print(list_plugins())"

    done = run(uninstalled, "-c", code)

    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_an_environment_of_a_known_plugin_says_what_to_install(uninstalled):
    code = """
import steppe
try:
    steppe.make_env("gym:Pendulum-v1")
except steppe.errors.PluginNotFound as error:
    print(error)
"""
    done = run(uninstalled, "-c", code)

    assert "It is in the package steppe-gym: pip install 'steppe[gym]'." in done.stdout, done.stderr


@pytest.mark.parametrize("module", ["steppe", "steppe.batched"])
def test_a_class_of_a_known_package_says_what_to_install(uninstalled, module):
    code = f"""
from steppe.errors import ClassNotFound
try:
    from {module} import AsyncEnvPool
except ClassNotFound as error:
    print(error)
"""
    done = run(uninstalled, "-c", code)

    assert "It is in steppe-pools: pip install 'steppe[pools]'." in done.stdout, done.stderr


def test_the_command_line_says_it_in_one_line(uninstalled):
    done = run(uninstalled, "-m", "steppe", "envs", "gym")

    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "pip install 'steppe[gym]'" in done.stderr


def test_plugins_are_listed_as_not_installed(uninstalled):
    done = run(uninstalled, "-m", "steppe", "plugins")

    assert done.returncode == 0, done.stderr
    assert "steppe-gym" not in done.stdout
