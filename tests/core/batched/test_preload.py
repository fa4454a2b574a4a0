"""The fork server preloads plugins for the next batch, except those not fork-safe."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.limits import CHILD

pytestmark = [pytest.mark.programs, pytest.mark.usefixtures("nothing_left")]

PLUGIN = """
import os
from steppe import hookimpl
from steppe_testing import ArrayCountingEnv
{flag}
LOADED_IN = os.getpid()

@hookimpl
def steppe_make_env(name, kwargs):
    return ArrayCountingEnv(start=LOADED_IN == os.getpid())

@hookimpl
def steppe_env_names():
    return ["any"]
"""

SCRIPT = """
from steppe import ParallelEnv
for name in ("usual:any", "usual:any", "alone:any", "alone:any"):
    with ParallelEnv(2, name, num_processes=2) as env:
        print(env.reset()["observation"].flatten().tolist(), flush=True)
"""


def test_a_plugin_is_loaded_ahead_unless_it_cannot_be_forked(fake_dist: Any, run_script: Any) -> None:
    for name, flag in (("usual", ""), ("alone", "fork_safe = False")):
        files = {f"{name}_sim/__init__.py": PLUGIN.format(flag=flag)}
        fake_dist(f"{name}-sim", envs={name: f"{name}_sim"}, files=files)
    path = os.pathsep.join([str(fake_dist.path), os.environ.get("PYTHONPATH", "")])

    out, err = run_script(SCRIPT, env={**os.environ, "PYTHONPATH": path}).communicate(timeout=CHILD)

    # 1 where the worker itself imported the plugin, 0 where the server had done so.
    assert out.split("\n")[:2] == ["[1.0, 1.0]", "[0.0, 0.0]"], err
    assert (out.split("\n")[2:4], err) == (["[1.0, 1.0]", "[1.0, 1.0]"], "")


OTHER_WAY = """
import os
from steppe import ParallelEnv
from usual_sim.envs import make
for _ in range(2):
    with ParallelEnv(2, lambda: make(), num_processes=2) as env:
        print(env.reset()["observation"].flatten().tolist(), flush=True)
"""


def test_a_plugin_is_preloaded_for_any_of_its_modules(fake_dist: Any, run_script: Any) -> None:
    """Workers preload a plugin whichever of its modules makes the environments."""
    envs = """
import os
from steppe_testing import ArrayCountingEnv
LOADED_IN = os.getpid()
def make():
    return ArrayCountingEnv(start=LOADED_IN == os.getpid())
"""
    files = {"usual_sim/__init__.py": "", "usual_sim/plugin.py": PLUGIN.format(flag=""), "usual_sim/envs.py": envs}
    fake_dist("usual-sim", envs={"usual": "usual_sim.plugin"}, files=files)
    path = os.pathsep.join([str(fake_dist.path), os.environ.get("PYTHONPATH", "")])

    out, err = run_script(OTHER_WAY, env={**os.environ, "PYTHONPATH": path}).communicate(timeout=CHILD)

    assert out.split("\n")[:2] == ["[1.0, 1.0]", "[0.0, 0.0]"], err
