"""Making environments of gymnasium: arguments of the library, and errors about arguments."""

from __future__ import annotations

import importlib.util
import sys

import pytest

gymnasium = pytest.importorskip("gymnasium", minversion="1.0")

from steppe import ParallelEnv, make_env  # noqa: E402
from steppe.errors import LibraryMissing, NotSupported, SpecError  # noqa: E402
from steppe_gym import GymEnv  # noqa: E402


class Shop(gymnasium.Env):
    """An environment whose arguments have the names that steppe uses for its own."""

    observation_space = gymnasium.spaces.Box(-9, 9, (3,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, env_name, name="", num_envs=0, render_mode=None):
        self.values = [float(len(env_name)), float(len(name)), float(num_envs)]

    def reset(self, *, seed=None, options=None):
        return self.observation_space.low * 0 + self.values, {}

    def step(self, action):
        return self.observation_space.low * 0 + self.values, 0.0, False, False, {}


@pytest.fixture
def register():
    """Register environments of gymnasium for one test."""

    def add(name, **spec):
        gymnasium.register(name, **spec)
        names.append(name)

    names = []
    yield add
    for name in names:
        gymnasium.registry.pop(name)


@pytest.mark.parametrize(
    ("wrong", "right"), [("categorical_actions", "categorical_action_encoding"), ("frameskip_", "frame_skip")]
)
def test_a_misspelt_argument_suggests_one_of_the_wrapper(wrong, right):
    with pytest.raises(TypeError, match=f"{wrong}.*Did you mean '{right}', an argument of GymEnv"):
        make_env("gym:MountainCar-v0", **{wrong: 2})


def test_the_library_gets_arguments_named_as_ours(register):
    register("Shop-v3", entry_point=Shop)

    made = make_env("gym:Shop-v3", env_name="corner", name="tom", library_kwargs={"num_envs": 5})
    direct = GymEnv("Shop-v3", library_kwargs={"env_name": "corner", "name": "tom", "num_envs": 5})

    assert made.reset()["observation"].tolist() == direct.reset()["observation"].tolist() == [6, 3, 5]
    batch = make_env("gym:Shop-v3", num_envs=2, env_name="east", name="x")
    assert batch.reset()["observation"].tolist() == [[4, 1, 0]] * 2
    made.rebuild_with_kwargs(name="maria")
    assert made.reset()["observation"].tolist() == [6, 5, 5]


def test_workers_pass_an_env_name_to_the_library(register):
    register("Shop-v4", entry_point=Shop)

    batch = ParallelEnv(2, "gym:Shop-v4", create_env_kwargs={"env_name": "west end"}, mp_start_method="fork")
    try:
        assert batch.reset()["observation"].tolist() == [[8, 0, 0]] * 2
    finally:
        batch.close()


def test_an_id_of_vector_environments_names_the_arguments(register):
    register("Shops-v0", vector_entry_point=lambda num_envs, **kwargs: None)

    with pytest.raises(
        NotSupported, match=r"'Shops-v0' only as a vector environment: make_env\('gym:Shops-v0', num_envs="
    ):
        make_env("gym:Shops-v0")


def test_an_id_for_mujoco_py_names_the_newer_version(register):
    def old(**kwargs):
        raise ModuleNotFoundError("No module named 'mujoco_py'", name="mujoco_py")

    register("Grasp-v1", entry_point=old)
    register("Grasp-v6", entry_point=Shop)
    register("Lift-v1", entry_point=old)

    with pytest.raises(LibraryMissing, match=r"needs mujoco_py.* 'Grasp-v6' needs mujoco instead"):
        make_env("gym:Grasp-v1")
    with pytest.raises(LibraryMissing, match=r"'Lift-v1' needs mujoco_py, which is not installed: pip install"):
        make_env("gym:Lift-v1")


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ({}, "is not installed: pip install miniworld"),
        ({"miniworld": "1 / 0"}, "cannot be imported: ZeroDivisionError"),
    ],
)
def test_a_package_of_environments_that_fails_is_named(files, text, tmp_path, monkeypatch):
    if not files and importlib.util.find_spec("miniworld"):
        pytest.skip("miniworld is installed")
    monkeypatch.delitem(sys.modules, "miniworld", raising=False)
    for module, source in files.items():
        (tmp_path / f"{module}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(LibraryMissing, match=f"'MiniWorld-Nowhere-v0' is in the package miniworld, which {text}"):
        make_env("gym:MiniWorld-Nowhere-v0")


def test_an_environment_of_the_older_api_says_how_to_make_it():
    gym = pytest.importorskip("gym", minversion="0.26")

    class Older(gym.Env):
        observation_space = gym.spaces.Box(0, 3, (1,))
        action_space = gym.spaces.Discrete(4)

        def reset(self):
            return self.observation_space.low

        def step(self, action):
            return self.observation_space.low, 2.0, True, {}

        def render(self, mode="human"):
            return None

    gym.register("Older-v0", entry_point=lambda: Older())
    try:
        with pytest.raises(SpecError, match="apply_api_compatibility=True"):
            make_env("gym:Older-v0", backend="gym").reset()
        env = make_env("gym:Older-v0", backend="gym", apply_api_compatibility=True)
        assert env.rollout(1)["next", "reward"].item() == 2.0
    finally:
        gym.envs.registration.registry.pop("Older-v0")
