"""Ids are listed without building anything; a wrong one gets an answer that can be acted on."""

from __future__ import annotations

import subprocess
import sys

import pytest

gymnasium = pytest.importorskip("gymnasium", minversion="1.4")

from steppe import make_env  # noqa: E402
from steppe.errors import EnvNotFound, LibraryMissing, NotSupported  # noqa: E402
from steppe_gym import GymEnv, GymWrapper  # noqa: E402
from tests.forked import python  # noqa: E402
from tests.limits import CHILD  # noqa: E402


def test_names_come_from_the_registry_and_its_extensions():
    names = GymEnv.available_envs

    assert {"CartPole-v1", "Pendulum-v1", "phys2d/CartPole-v1"} <= set(names)
    assert names == sorted(names)
    assert GymWrapper.available_envs == names


def test_packages_that_extend_it_are_listed():
    pytest.importorskip("ale_py")
    pytest.importorskip("minigrid")

    assert {"ALE/Pong-v5", "MiniGrid-Empty-5x5-v0"} <= set(GymEnv.available_envs)


@pytest.mark.programs
def test_listing_names_takes_little_longer_than_its_libraries():
    """`steppe envs gym` does not load torch."""
    pytest.importorskip("ale_py")
    pytest.importorskip("minigrid")
    listing = (
        "import sys, time; from steppe.cli import main; main(['envs', 'gym']);"
        "assert 'torch' not in sys.modules; print(time.process_time())"
    )
    libraries = "import time, gymnasium, ale_py, minigrid; print('CartPole-v1 Pendulum-v1', time.process_time())"
    times: dict[str, list[float]] = {listing: [], libraries: []}
    for _ in range(2):
        for code, found in times.items():
            done = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, timeout=CHILD, check=True
            )
            *names, seconds = done.stdout.split()
            assert {"CartPole-v1", "Pendulum-v1"} <= set(names)
            # The time of the processor, from the start of Python on: other work on the machine does not count.
            found.append(float(seconds))

    assert min(times[listing]) < 2 * min(times[libraries])


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (
            "gym:Pendulam-v1",
            r"Plugin 'gym' \(steppe-gym 0.1.0, gymnasium [\d.]+\) has no environment 'Pendulam-v1'. "
            r"Did you mean 'Pendulum-v1'\? 'steppe envs gym' lists all \d+.",
        ),
        (
            "gym:Taxi-v3",
            r"gymnasium [\d.]+ has no environment 'Taxi-v3'; it has 'Taxi-v4': make_env\('gym:Taxi-v4'\).",
        ),
        ("gym:LunarLander-v2", r"it has 'LunarLander-v3'"),
        ("gym:Ant-v2", r"it has 'Ant-v5'"),
        ("gym:CartPole-v99", r"it has 'CartPole-v1'"),
        ("gym:nowhere/Foo-v0", r"has no environment 'nowhere/Foo-v0'"),
        ("gym:os:Foo-v0", r"has no environment 'os:Foo-v0'"),  # the module is there, and registers none
        ("gym:Cart Pole", r"has no environment 'Cart Pole'. Did you mean"),
    ],
)
def test_a_wrong_id(asked, text):
    with pytest.raises(EnvNotFound, match=text) as caught:
        make_env(asked)

    assert caught.value.__suppress_context__  # no traceback from inside the library


@pytest.mark.parametrize(
    ("name", "module", "install"),
    [
        ("LunarLander-v3", "Box2D", r"pip install 'gymnasium\[box2d\]'"),
        ("HalfCheetah-v5", "mujoco", r"pip install 'gymnasium\[mujoco\]'"),
        ("ALE/Pong-v5", "ale_py", "pip install ale-py"),
        ("Pong-v4", "ale_py", "pip install ale-py"),
        ("GymV26Environment-v0", "shimmy", r'pip install "shimmy\[gym-v26\]"'),
    ],
)
def test_a_missing_extra_says_how_to_install_it(name, module, install):
    # In a process of its own: the package must never have been imported.
    code = f"""
import sys, warnings
warnings.simplefilter("ignore")
sys.modules[{module!r}] = None
from steppe import make_env
from steppe.errors import LibraryMissing
try:
    make_env("gym:{name}")
except LibraryMissing as error:
    assert error.__context__ is None or error.__suppress_context__  # no traceback from inside the library
    print(error)
"""
    done = subprocess.run([*python(), "-c", code], capture_output=True, text=True, timeout=CHILD, check=True)

    import re

    assert re.search(install, done.stdout), done.stdout + done.stderr


def test_a_name_with_a_module_is_imported_by_the_library(tmp_path, monkeypatch):
    (tmp_path / "its_own_envs.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('Own-v0', entry_point='gymnasium.envs.classic_control.cartpole:CartPoleEnv')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))

    assert make_env("gym:its_own_envs:Own-v0").rollout(2)["observation"].shape[-1] == 4


def test_without_a_library_the_error_says_what_to_install():
    code = """
import sys
sys.modules["gym"] = sys.modules["gymnasium"] = None
from steppe.errors import BackendError
from steppe_gym import GymEnv
assert GymEnv.available_envs == []
try:
    GymEnv("CartPole-v1")
except BackendError as error:
    print(error)
"""
    done = subprocess.run([*python(), "-c", code], capture_output=True, text=True, timeout=CHILD, check=True)

    assert "pip install gymnasium" in done.stdout


def test_a_name_whose_module_is_missing():
    with pytest.raises(
        LibraryMissing, match="'no_such_module:Own-v0' is registered by the module 'no_such_module', wh"
    ):
        make_env("gym:no_such_module:Own-v0")


@pytest.mark.parametrize("name", ["Pong-v4", "ALE/Pong-v5", "MiniGrid-Empty-5x5-v0"])
def test_names_of_extension_packages_need_no_import(name):
    pytest.importorskip("ale_py")
    pytest.importorskip("minigrid")
    code = f"from steppe import make_env; print(make_env('gym:{name}').observation_keys)"
    done = subprocess.run([*python(), "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=CHILD)

    assert "pixels" in done.stdout or "image" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        ("CartPol-v1", EnvNotFound, "Did you mean 'CartPole-v1'"),
        ("Pendulum-v1", NotSupported, "no vector entry point. Use vectorization_mode='sync'"),
    ],
)
def test_a_wrong_id_of_a_vector_environment(name, error, text):
    with pytest.raises(error, match=text):
        GymEnv(name, 2, vectorization_mode="vector_entry_point")


def test_an_object_is_wrapped_and_not_made():
    with pytest.raises(TypeError, match=r"found TimeLimit. To wrap an environment, call GymWrapper\(env\)"):
        GymEnv(gymnasium.make("CartPole-v1"))


def test_errors_of_the_environment_itself_pass_unchanged():
    with pytest.raises(TypeError, match="nonsense"):
        make_env("gym:CartPole-v1", nonsense=1)


def test_library_missing_is_an_import_error():
    assert issubclass(LibraryMissing, ImportError)
