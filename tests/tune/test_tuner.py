"""tune: real environments are measured, and all of them are closed. Speeds are not compared."""

from __future__ import annotations

import threading
import time

import pytest
import torch

import steppe
from steppe.errors import ArgumentError, EnvNotFound, PluginNotFound
from steppe_testing import CountingEnv, FailingEnv
from steppe_tune import Setting, tune
from steppe_tune.race import measured_of
from tests.limits import CHILD
from tests.processes import workers

SECONDS = 0.3


@pytest.fixture(autouse=True)
def nothing_is_left():
    """Each test ends with the threads and processes with which it began."""
    before = workers(), threading.active_count()
    yield
    deadline = time.monotonic() + CHILD  # the system may take a moment to end them
    while (workers(), threading.active_count()) != before and time.monotonic() < deadline:
        time.sleep(0.02)
    assert (workers(), threading.active_count()) == before


def first_action(observation: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.one_hot(torch.zeros(observation.shape[:-1], dtype=torch.int64), 2).bool()


def considered(tuning) -> list[str]:
    """Return the labels of all settings that were measured, or that a warning says were not.

    The tuner leaves out settings whose environments take too long to make, which happens on a busy machine.
    """
    labels = [each.setting.label for each in tuning.measured]
    for text in tuning.warnings:
        if text.startswith("Not measured, because making"):
            labels += text.split(": ", 1)[1].rstrip(".").split("; ")
    return labels


def test_an_id_is_measured_with_other_batch_sizes_too():
    steps = []
    tuning = tune("gym:CartPole-v1", seconds=SECONDS, report=lambda done, text: steps.append((done, text)))

    kinds = {label.split("(")[0] for label in considered(tuning)}
    assert kinds == {"one environment", "SerialEnv", "ParallelEnv", "AsyncEnvPool"}
    assert "SerialEnv(8)" in considered(tuning)
    assert "one" in {each.setting.kind for each in tuning.measured}
    assert len({each.setting for each in tuning.measured}) == len(tuning.measured)
    assert all(each.low <= each.speed <= each.high and each.slices >= 3 for each in tuning.measured)
    assert tuning.best.setting in {each.setting for each in tuning.measured}
    assert tuning.limit == tuning.cores / tuning.cost.frame > 0
    assert tuning.cost.step > 0 < tuning.cost.reset
    assert tuning.cost.policy == 0
    assert '"gym:CartPole-v1"' in tuning.line
    assert tuning.reasons
    done = [part for part, _ in steps]
    assert done == sorted(done) or max(done) == 1
    assert steps[-1] == (1.0, "done")


def test_the_line_makes_the_environments():
    tuning = tune("gym:CartPole-v1", num_envs=2, seconds=SECONDS)
    names: dict = vars(steppe).copy()
    names.update({name: getattr(steppe, name) for name in ("make_env", "SerialEnv", "ParallelEnv", "AsyncEnvPool")})
    for each in tuning.measured:
        assert each.setting.num_envs in (1, 2)
        exec(each.setting.code(tuning.maker), names)
        env = names.pop("pool", None) or names.pop("env")
        assert env.rollout(2).shape[-1] == 2
        env.close()


class Slow(CountingEnv):
    """An environment that waits in each step."""

    def _step(self, tensordict):
        time.sleep(0.001)
        return super()._step(tensordict)


def second_action(observation: torch.Tensor) -> torch.Tensor:
    return torch.eye(3, dtype=torch.bool)[1].expand(*observation.shape[:-1], 3)


def test_a_served_policy_is_compared_with_one_in_each_worker():
    tuning = tune(Slow, num_envs=2, policy=second_action, seconds=SECONDS)
    collectors = [each.setting for each in tuning.measured if each.setting.kind == "collector"]

    assert not any("cannot be measured" in warning for warning in tuning.warnings), tuning.warnings
    assert {(setting.threads, setting.served) for setting in collectors} == {(a, b) for a in (0, 1) for b in (0, 1)}


def test_a_policy_is_measured():
    tuning = steppe.tune("gym:CartPole-v1", num_envs=2, policy=first_action, seconds=SECONDS)

    assert tuning.cost.policy > 0
    assert len(considered(tuning)) >= 5


def test_a_function_that_makes_environments_is_measured():
    tuning = tune(CountingEnv, num_envs=2, seconds=SECONDS)

    assert tuning.name == "CountingEnv"
    assert "CountingEnv" in tuning.line


def test_a_batch_of_a_library_is_not_put_into_a_pool():
    tuning = tune("vmas:balance", num_envs=2, seconds=SECONDS)

    assert tuning.cost.is_batch
    assert "pool" not in {each.setting.kind for each in tuning.measured}


def test_an_error_of_the_environment_closes_everything():
    with pytest.raises(Exception, match="FailingEnv failed in step 30"):
        tune(lambda: FailingEnv(at=30), num_envs=2, seconds=SECONDS)


def test_wrong_arguments_are_errors_at_once():
    with pytest.raises(ArgumentError, match="num_envs must be a whole number >= 1, or None, found 0"):
        tune("gym:CartPole-v1", num_envs=0)
    with pytest.raises(ArgumentError, match="seconds must be above 0, found -1"):
        tune("gym:CartPole-v1", seconds=-1)
    with pytest.raises(PluginNotFound):
        tune("nowhere:CartPole-v1")
    with pytest.raises(EnvNotFound):
        tune("gym:CartPole-v9")


def test_speeds_are_medians_with_quartiles():
    result = measured_of(Setting("one"), [10.0, 30.0, 20.0, 40.0, 50.0])

    assert (result.speed, result.low, result.high, result.slices) == (30, 20, 40, 5)
    assert result.noise == pytest.approx(1 / 3)
    assert measured_of(Setting("one"), [7.0]).noise == 0
