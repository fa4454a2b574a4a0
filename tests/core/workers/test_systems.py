"""Batches on systems without Linux's means: pipes and files take the place of eventfds, epoll and memfds."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from steppe import AsyncEnvPool, ParallelEnv, SerialEnv
from steppe.errors import NotSupported
from steppe_testing import ArrayCountingEnv
from tests.forked import python
from tools.workspace import ROOT

pytestmark = [pytest.mark.programs, pytest.mark.timeout(300)]

SCRIPT = """
import os, runpy, select
# Workers find it by themselves.
runpy.run_path(os.environ["PYTHONPATH"].split(os.pathsep)[0] + "/sitecustomize.py")
from steppe import AsyncEnvPool, ParallelEnv, SerialEnv
from steppe_testing import ArrayCountingEnv, TextCountingEnv

class Here(ArrayCountingEnv):
    @property
    def means(self):
        return [hasattr(os, "memfd_create"), hasattr(os, "eventfd"), hasattr(select, "epoll")]

for make in (Here, TextCountingEnv):
    with SerialEnv(3, make) as env:
        expected = env.rollout(12, break_when_any_done=False)["next", "observation"].tolist()
    for method in ("forkserver", "fork"):
        with ParallelEnv(3, make, num_processes=2, mp_start_method=method) as env:
            assert env.rollout(12, break_when_any_done=False)["next", "observation"].tolist() == expected
            if make is Here and method == "forkserver":
                print(env.means[0], flush=True)
with AsyncEnvPool([Here] * 2, backend="multiprocessing") as pool:
    pool.async_step_send(pool.rand_action(pool.reset()))
    print(pool.async_step_recv(min_get=2)["next", "observation"].flatten().tolist())
"""


@pytest.mark.parametrize(
    ("without", "means"),
    [
        ("memfd", [False, True, True]),
        ("eventfd", [True, False, True]),
        ("epoll", [True, True, False]),
        ("memfd,eventfd,epoll", [False, False, False]),
    ],
)
def test_batches_work_without(without: str, means: list[bool]) -> None:
    path = os.pathsep.join([str(ROOT / "tests" / "without_linux"), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": path, "STEPPE_TEST_WITHOUT": without}

    done = subprocess.run([*python(), "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=280)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str(means), "[1.0, 1.0]"]


@pytest.mark.parametrize("make", [ParallelEnv, lambda n, make: AsyncEnvPool([make] * n, backend="multiprocessing")])
def test_a_system_without_processes_names_the_alternatives(make, monkeypatch: pytest.MonkeyPatch) -> None:
    """SerialEnv and pools of threads work without worker processes."""
    monkeypatch.setattr("steppe.workers.start.process.HAS_WORKERS", False)

    with pytest.raises(NotSupported, match=r"Use SerialEnv\(n, make\), or AsyncEnvPool\(.*threading"):
        make(2, ArrayCountingEnv)

    with SerialEnv(2, ArrayCountingEnv) as env, AsyncEnvPool([ArrayCountingEnv] * 2, backend="threading") as pool:
        assert env.rollout(3).shape == pool.rollout(3).shape == (2, 3)


def test_steppe_imports_without_modules_of_unix() -> None:
    hide = (
        "import os, select, signal, socket\n"
        "for module, names in {os: ('fork', 'memfd_create', 'eventfd', 'sched_yield', 'sched_getaffinity'),"
        " select: ('epoll', 'poll'), socket: ('AF_UNIX', 'send_fds', 'recv_fds'), signal: ('SIGKILL',)}.items():\n"
        "    for name in names:\n"
        "        vars(module).pop(name, None)\n"
    )
    use = "from steppe import SerialEnv\nimport steppe.workers\nfrom steppe_testing import ArrayCountingEnv\n"
    run = "print(tuple(SerialEnv(2, ArrayCountingEnv).rollout(3).shape))\n"
    lean = "from steppe.imports import import_tensordict; import_tensordict()\n"

    # What is loaded before may need what is hidden then.
    code = f"import subprocess, torch, selectors, multiprocessing.connection\n{lean}{hide}{use}{run}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=280)

    assert (done.stdout.strip(), done.returncode) == ("(2, 3)", 0), done.stderr
