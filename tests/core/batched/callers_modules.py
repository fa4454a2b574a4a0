"""Scripts whose environments are made by modules beside them, which workers import too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.limits import CHILD

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
