from __future__ import annotations

import pickle
import subprocess
import sys
import threading

import pytest

from steppe import env_factory, errors, make_env, register_env
from steppe.registry import Registry, apply_worker_state, use, worker_state
from tests.limits import CHILD


@pytest.fixture
def worker(fake_dist):
    """A second registry on the same packages, as a worker process has."""

    def apply(*, index=None):
        state = pickle.loads(pickle.dumps(worker_state()))
        registry = Registry(path=[str(fake_dist.path)], steppe_version="0.1.0", checks_envs=False)
        with use(registry):
            apply_worker_state(state, worker=index)
        return registry

    return apply


def test_a_factory_travels_without_its_plugin(gym):
    factory = env_factory("gym:Pendulum-v1", g=1.0)
    assert "fake_steppe_gym" not in sys.modules
    assert pickle.loads(pickle.dumps(factory))() == ["Pendulum-v1", {"g": 1.0}]
    assert repr(factory) == "env_factory('gym:Pendulum-v1', g=1.0)"


def test_a_bad_id_is_refused_when_the_factory_is_made(gym):
    for id, error in (("Pendulum", errors.EnvIdError), ("vmas:a", errors.PluginNotFound)):
        with pytest.raises(error):
            env_factory(id)


def test_a_registered_id_travels_as_its_function(registry):
    offset = 3
    register_env("toy", lambda name, n: (name, n + offset))
    payload = pickle.dumps(env_factory("toy:a", n=1))
    with use(Registry(path=[])):
        assert pickle.loads(payload)() == ("a", 4)


def test_a_factory_works_in_another_process(registry):
    register_env("toy", lambda name: name.upper())
    payload = pickle.dumps(env_factory("toy:line"))
    source = "import pickle, sys; print(pickle.loads(sys.stdin.buffer.read())())"
    done = subprocess.run([sys.executable, "-c", source], input=payload, capture_output=True, timeout=CHILD, check=True)
    assert done.stdout.strip() == b"LINE"


def test_a_worker_knows_what_was_registered(registry, worker):
    register_env("toy", lambda name: name, names=["a"])
    assert worker().make("toy:a", {}) == "a"


def test_a_function_that_cannot_travel_fails_for_its_name_only(registry, worker):
    lock = threading.Lock()
    register_env("stuck", lambda name: lock)
    register_env("toy", lambda name: name)
    child = worker()
    assert child.make("toy:a", {}) == "a"
    with pytest.raises(errors.StateError, match="'stuck' was registered in the parent process with a function that"):
        child.make("stuck:a", {})


def test_worker_setup_runs_once_before_the_first_environment(gym, worker):
    child = worker(index=5)
    child.make("gym:Pendulum-v1", {})
    child.make("gym:Pendulum-v1", {})
    calls = sys.modules["fake_steppe_gym.plugin"].CALLS
    assert calls == [5, ("Pendulum-v1", {}), ("Pendulum-v1", {})]


def test_worker_setup_reaches_plugins_that_were_loaded_before(gym):
    make_env("gym:Pendulum-v1")
    apply_worker_state(worker_state(), worker=2)
    make_env("gym:Pendulum-v1")
    assert sys.modules["fake_steppe_gym.plugin"].CALLS == [("Pendulum-v1", {}), 2, ("Pendulum-v1", {})]


def test_worker_setup_runs_in_workers_only(gym):
    make_env("gym:Pendulum-v1")
    assert sys.modules["fake_steppe_gym.plugin"].CALLS == [("Pendulum-v1", {})]
