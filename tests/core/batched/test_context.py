"""Settings of the caller's process that workers receive at their start."""

from __future__ import annotations

import importlib
import os
import random
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from steppe import ParallelEnv, make_env, register_env
from steppe.errors import PluginBlocked, WorkerError
from steppe.registry import Registry, use
from steppe.versions import gym_backend, set_gym_backend
from steppe_testing import ArrayCountingEnv
from tests.limits import CHILD

pytestmark = pytest.mark.usefixtures("nothing_left")


def seen(probe: Callable[[], Any], n: int = 1) -> Any:
    """Return the values that ``probe`` reads in each of ``n`` workers."""

    def make() -> Any:
        env = ArrayCountingEnv()
        env.found = probe()
        return env

    with ParallelEnv(n, make, num_processes=n) as env:
        values = list(env.found)
    return values if n > 1 else values[0]


def test_workers_get_the_current_environment_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seen(lambda: os.environ.get("OF_THE_CALLER")) is None

    monkeypatch.setenv("OF_THE_CALLER", "set")
    assert seen(lambda: os.environ.get("OF_THE_CALLER")) == "set"

    monkeypatch.delenv("OF_THE_CALLER")
    assert seen(lambda: dict(os.environ)) == dict(os.environ)


def test_workers_get_the_current_sys_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "only_on_the_callers_path.py").write_text("VALUE = 41 + 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    assert seen(lambda: __import__("only_on_the_callers_path").VALUE) == 42
    assert seen(lambda: sys.path) == sys.path


def test_workers_run_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert seen(os.getcwd) == str(tmp_path)


def test_workers_start_if_the_current_folder_was_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()

    assert seen(lambda: 1) == 1


def test_workers_get_the_warning_filters() -> None:
    def raised() -> str:
        try:
            warnings.warn("heard", UserWarning, stacklevel=1)
        except UserWarning:
            return "an error"
        return "a warning"

    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert seen(raised) == "an error"
        warnings.simplefilter("ignore", UserWarning)
        assert seen(raised) == "a warning"


def test_filters_of_a_library_apply_when_it_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_library.py").write_text("class ItsWarning(Warning):\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("steppe.workers.start.fork_server.IMPORT_TIMEOUT", CHILD)  # however busy the machine is
    library = importlib.import_module("a_library")

    def raised() -> str:
        was_loaded = "a_library" in sys.modules
        from a_library import ItsWarning

        try:
            warnings.warn("heard", ItsWarning, stacklevel=1)
        except ItsWarning:
            return f"{was_loaded}, an error"
        return f"{was_loaded}, a warning"

    with warnings.catch_warnings():
        warnings.simplefilter("error", library.ItsWarning)
        assert seen(raised) == "False, an error"
        warnings.simplefilter("ignore", Warning)  # in front
        # Another process has imported the library meanwhile, from which later workers are forked.
        assert seen(raised) == "True, a warning"


def test_workers_get_the_default_dtype() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        assert seen(lambda: torch.ones(()).dtype) is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert seen(lambda: torch.ones(()).dtype) is torch.float32


def test_workers_get_the_backend_of_a_with_block() -> None:
    pytest.importorskip("gym")
    with set_gym_backend("gym"):
        assert seen(lambda: gym_backend().__name__) == "gym"
        assert seen(lambda: type(make_env("gym:CartPole-v1")._env.unwrapped).__module__.partition(".")[0]) == "gym"
    with set_gym_backend("gymnasium"):
        assert seen(lambda: gym_backend().__name__) == "gymnasium"


def test_workers_block_the_same_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    def problem() -> str | None:
        try:
            make_env("gym:CartPole-v1")
        except PluginBlocked as error:
            return str(error)
        return None

    assert seen(problem) is None

    monkeypatch.setenv("STEPPE_DISABLE_PLUGINS", "gym")
    assert "STEPPE_DISABLE_PLUGINS" in seen(problem)


def test_workers_know_names_registered_in_process() -> None:
    offset = 30
    with use(Registry()):
        register_env("toy", lambda name, **kwargs: ArrayCountingEnv(start=offset + int(name), **kwargs))

        assert seen(lambda: make_env("toy:5").start) == 35
        with ParallelEnv(2, ["toy:1", "toy:2"], num_processes=1) as env:
            assert env.reset()["observation"].flatten().tolist() == [31.0, 32.0]


@pytest.fixture
def gym_registry() -> Any:
    """gymnasium's registry, restored after the test."""
    registry = pytest.importorskip("gymnasium").registry
    before = dict(registry)
    yield registry
    registry.clear()
    registry.update(before)


def test_workers_know_environments_registered_with_gymnasium(gym_registry: Any) -> None:
    import gymnasium
    from gymnasium.envs.classic_control import CartPoleEnv

    class Heavy(CartPoleEnv):
        def __init__(self, mass: float = 2.0) -> None:
            super().__init__()
            self.masscart = mass

    gymnasium.register("Heavy-v0", entry_point=Heavy, max_episode_steps=7, kwargs={"mass": 5.0})
    gymnasium.register("ByName-v0", entry_point="gymnasium_like:Heavy")

    with ParallelEnv(2, "gym:Heavy-v0") as env:
        assert env.rollout(20, break_when_any_done=False)["next", "truncated"][:, 6].all()
        assert env.masscart == [5.0, 5.0]
    assert seen(lambda: make_env("gym:Heavy-v0", mass=6.0).masscart) == 6.0
    assert seen(lambda: __import__("gymnasium").registry["ByName-v0"].entry_point) == "gymnasium_like:Heavy"


def test_an_environment_that_cannot_be_sent_leaves_the_others(gym_registry: Any) -> None:
    import gymnasium
    from gymnasium.envs.classic_control import CartPoleEnv

    lock = threading.Lock()
    gymnasium.register("Locked-v0", entry_point=lambda: (lock, CartPoleEnv())[1])
    gymnasium.register("Open-v0", entry_point=lambda: CartPoleEnv())

    assert seen(lambda: make_env("gym:Open-v0").rollout(2).batch_size) == (2,)
    with pytest.raises(WorkerError, match="Locked-v0"), ParallelEnv(1, "gym:Locked-v0") as env:
        env.reset()


PLUGIN = """
from steppe import hookimpl
from steppe_testing import ArrayCountingEnv
WORKERS = []

@hookimpl
def steppe_worker_setup(worker):
    WORKERS.append(worker)

@hookimpl
def steppe_make_env(name, kwargs):
    return ArrayCountingEnv(start=100 * len(WORKERS) + sum(WORKERS))

@hookimpl
def steppe_env_names():
    return ["any"]
"""


def test_workers_run_the_setup_of_the_plugin(fake_dist: Any) -> None:
    fake_dist("acme-sim", envs={"acme": "acme_sim"}, files={"acme_sim/__init__.py": PLUGIN})
    with use(Registry(path=[str(fake_dist.path)])), ParallelEnv(4, "acme:any", num_processes=2) as env:
        # Each of two workers was set up once, with its index, before both of its environments.
        assert env.reset()["observation"].flatten().tolist() == [100.0, 100.0, 101.0, 101.0]


def test_torch_uses_one_thread_in_workers() -> None:
    assert seen(torch.get_num_threads) == 1
    assert seen(lambda: float(torch.ones(512, 512).mm(torch.ones(512, 512)).sum())) == 512.0**3


def test_each_worker_draws_different_random_numbers() -> None:
    def draw() -> tuple[float, float, float]:
        return random.random(), float(np.random.random()), float(torch.rand(()))

    first, second = seen(draw, 2)

    assert all(one != other for one, other in zip(first, second, strict=True))
    assert {*first, *second}.isdisjoint(draw())


SCRIPT = """
print("script runs", flush=True)
import sys
from mine import Mine
from steppe import ParallelEnv

class Here(Mine):
    pass

def make():
    print("read", repr(sys.stdin.read()), flush=True)  # before the caller prints
    print("said", file=sys.stderr)
    return Here(max_steps=3)

for factory in (Mine, make):
    with ParallelEnv(1, factory) as env:
        print(tuple(env.rollout(4).shape), flush=True)
"""
MINE = "from steppe_testing import ArrayCountingEnv\nclass Mine(ArrayCountingEnv):\n    pass\n"


def test_a_script_without_a_main_guard_beside_its_modules(run_script: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    # Where it is run there are files that are named like libraries, which the script itself does not see either.
    (tmp_path / "folder").mkdir()
    for name in ("torch", "numpy", "queue"):
        (tmp_path / "folder" / f"{name}.py").write_text("raise SystemExit('not the library')\n")

    out, err = run_script(SCRIPT, cwd=tmp_path / "folder", stdin=subprocess.DEVNULL).communicate(timeout=CHILD)

    assert err == "said\n"
    assert out.splitlines() == ["script runs", "(1, 4)", "read ''", "(1, 3)"]


def test_a_missing_module_in_a_worker_is_named() -> None:
    with pytest.raises(WorkerError, match="No module named 'nowhere_at_all'"):
        seen(lambda: __import__("nowhere_at_all"))
