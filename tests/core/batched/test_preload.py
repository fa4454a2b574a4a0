"""The fork server preloads plugins for the next batch, except those not fork-safe."""

from __future__ import annotations

import os
from pathlib import Path
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


# -- modules of the caller

BEGIN = """
import os, sys, time
from pathlib import Path
from steppe import MultiSyncDataCollector, ParallelEnv
from steppe.workers import fork_server
from steppe.workers.start import fork_server as servers
servers.IMPORT_TIMEOUT = 240  # however busy the machine is
HERE = Path(__file__).parent

def write(name, code):
    (HERE / f"{name}.py").write_text(code)

def begun(make):
    with ParallelEnv(2, make, num_processes=2) as env:
        return env.reset()["observation"].flatten().tolist()
"""

#: Environments begin at 1 in a process that has imported this itself, and at ``SHIFT`` more.
OWN = """
import os
from steppe_testing import ArrayCountingEnv
{more}
LOADED_IN = os.getpid()
SHIFT = {shift}
with open(__file__ + ".log", "a") as log:
    log.write("imported\\n")
def make():
    return ArrayCountingEnv(start=SHIFT + (LOADED_IN == os.getpid()))
"""


def run_own(run_script: Any, code: str, tmp_path: Path, **modules: str) -> list[str]:
    for name, text in modules.items():
        (tmp_path / f"{name}.py").write_text(text)
    out, err = run_script(BEGIN + code).communicate(timeout=CHILD)
    assert err == ""
    return out.splitlines()


def test_a_module_of_the_caller_is_imported_once_for_all_workers(run_script: Any, tmp_path: Path) -> None:
    code = """
import own
print(begun(own.make))
print(begun(own.make))
print(begun(lambda: own.make()))
with MultiSyncDataCollector([own.make] * 2, frames_per_batch=2) as collector:
    print(next(collector)["observation"].flatten().tolist())
print(len(Path(own.__file__ + ".log").read_text().splitlines()))
"""
    said = run_own(run_script, code, tmp_path, own=OWN.format(more="", shift=0))

    assert said[:4] == ["[0.0, 0.0]"] * 4
    assert said[4] == "2"  # by the caller, and for all workers


EDITED = """
import own
print(begun(own.make), begun(own.make))
text = Path(own.__file__).read_text()
write("own", text.replace("SHIFT = 10", "SHIFT = 300"))
print(begun(own.make), begun(own.make))
write("helper", "LIMIT = 55555")  # which it imports
print(begun(own.make), begun(own.make))
"""
VARIABLES = """
os.environ["SHIFT"] = "20"
import own
print(begun(own.make), begun(own.make))
os.environ["UNRELATED"] = "1"
print(begun(own.make))
os.environ["SHIFT"] = "70"
print(begun(own.make), begun(own.make))
"""
KILLED = """
import own, signal
print(begun(own.make), begun(own.make))
(children,) = Path(f"/proc/{fork_server().process.pid}/task").glob("*/children")
(module_server,) = children.read_text().split()
os.kill(int(module_server), signal.SIGKILL)
while Path(f"/proc/{module_server}").exists():
    time.sleep(0.01)
print(begun(own.make), begun(own.make))
"""


@pytest.mark.parametrize(
    ("code", "more", "shift", "expected"),
    [
        pytest.param(EDITED, "import helper", 10, [[10.0] * 2, [300.0] * 2, [300.0] * 2], id="edited"),
        pytest.param(VARIABLES, "", 'int(os.environ["SHIFT"])', [[20.0] * 2, [20.0], [70.0] * 2], id="variables"),
        pytest.param(KILLED, "", 0, [[0.0] * 2] * 2, id="its holder killed"),
    ],
)
def test_workers_import_the_callers_current_module(
    code: str, more: str, shift: Any, expected: list[list[float]], run_script: Any, tmp_path: Path
) -> None:
    """Workers import a module again after an edit or a changed variable."""
    said = run_own(run_script, code, tmp_path, own=OWN.format(more=more, shift=shift), helper="LIMIT = 5")

    assert said == [" ".join(f"[{first}, {first}]" for first in line) for line in expected]


#: What keeps a module out of the fork server.
UNSAFE = {
    "thread": "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()",
    "descriptor": "FILE = open(os.devnull)",
    "generator": "import numpy as np; RNG = np.random.default_rng()",
    "seeds": "import torch; torch.manual_seed(3)",
    "flag": "fork_safe = False",
    "handler": "os.register_at_fork(before=lambda: None)",
    "failing": "if os.environ.get('STEPPE_TRIAL') is None and 'steppe-server' in open('/proc/self/comm').read(): 1 / 0",
}


def test_each_worker_imports_modules_that_are_unsafe_to_share(run_script: Any, tmp_path: Path) -> None:
    code = f"""
import importlib
for name in {list(UNSAFE)}:
    make = importlib.import_module("own_" + name).make
    print(name, begun(make), begun(make), begun(make))
"""
    modules = {f"own_{name}": OWN.format(more=more, shift=0) for name, more in UNSAFE.items()}
    said = run_own(run_script, code, tmp_path, **modules)

    assert said == [f"{name} [1.0, 1.0] [1.0, 1.0] [1.0, 1.0]" for name in UNSAFE]
