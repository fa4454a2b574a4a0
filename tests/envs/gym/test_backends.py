"""gym and gymnasium in one process: the choice, and that an environment keeps it."""

from __future__ import annotations

import threading

import pytest
import torch

gymnasium = pytest.importorskip("gymnasium", minversion="1.0")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def gym():
    return pytest.importorskip("gym")


from steppe_gym import GymEnv, GymWrapper, gym_backend, set_gym_backend  # noqa: E402
from tests.limits import CHILD  # noqa: E402


def root_of(value):
    return type(value).__module__.partition(".")[0]


def test_the_backend_decides_which_library_makes_it(gym):
    with set_gym_backend(gymnasium):
        assert gym_backend() is gymnasium
        env1 = GymEnv("Pendulum-v1")
    with set_gym_backend(gym):
        assert gym_backend() is gym
        env2 = GymEnv("Pendulum-v1")

    assert root_of(env1._env.env.env) == "gymnasium"
    assert root_of(env2._env.env.env) == "gym"


def test_a_decorator_chooses_for_a_function(gym):
    @set_gym_backend("gym")
    def make():
        return GymEnv("CartPole-v1")

    assert make().lib is gym
    assert GymEnv("CartPole-v1").lib is gymnasium


def test_an_environment_keeps_its_library(gym):
    with set_gym_backend("gym"):
        old = GymEnv("CartPole-v1")
    new = GymEnv("CartPole-v1")
    actions = torch.nn.functional.one_hot(torch.arange(30) % 2, 2)

    found = []
    for env, other in ((old, "gymnasium"), (new, "gym")):
        with set_gym_backend(other):
            env.set_seed(0)
            found.append(env.rollout(30, actions=actions, break_when_any_done=False))
    assert (found[0] == found[1]).all()


def test_a_wrapped_environment_brings_its_library(gym):
    assert GymWrapper(gym.make("CartPole-v1", disable_env_checker=True)).lib is gym
    with set_gym_backend("gym"):
        assert GymWrapper(gymnasium.make("CartPole-v1")).lib is gymnasium


def test_two_threads_have_two_backends_at_once(gym):
    barrier, found = threading.Barrier(2), {}

    def work(name):
        with set_gym_backend(name):
            barrier.wait(CHILD)
            env = GymEnv("CartPole-v1")
            barrier.wait(CHILD)
            env.rollout(3)
            found[name] = root_of(env.unwrapped)

    threads = [threading.Thread(target=work, args=(name,)) for name in ("gym", "gymnasium")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(CHILD)
    assert found == {"gym": "gym", "gymnasium": "gymnasium"}


def test_pickled_environments_keep_their_library(gym):
    import pickle

    with set_gym_backend("gym"):
        env = GymEnv("CartPole-v1")
    again = pickle.loads(pickle.dumps(env))

    assert again.lib is gym
    again.set_seed(0)
    assert again.rollout(3).batch_size == (3,)


def test_workers_have_the_caller_s_library(gym):
    from steppe import ParallelEnv

    with set_gym_backend("gym"):
        env = ParallelEnv(2, "gym:Taxi-v3", num_processes=2)  # gymnasium has it no more
        env.set_seed(0)
        first = env.rollout(3)
    assert gym_backend() is gymnasium
    try:
        env.set_seed(0)
        assert (env.rollout(3) == first).all()
    finally:
        env.close()
