"""Which settings are measured and which is the best, for given costs."""

from __future__ import annotations

import pytest

from steppe_tune import EnvCost, Measured, Setting
from steppe_tune.choosing import batch_sizes, candidates, choose

SHORT = EnvCost(frame=8e-6, step=20e-6, slow_step=30e-6, reset=15e-6, making=0.001)
LONG = EnvCost(frame=5e-3, step=5e-3, slow_step=6e-3, reset=1e-3, making=0.1)
UNEVEN = EnvCost(frame=5e-3, step=2e-3, slow_step=30e-3, reset=1e-3)

ONE, SERIAL = Setting("one"), Setting("serial", 8)
PARALLEL, SHARED = Setting("processes", 8, 2), Setting("processes", 8, 2, caller_share=True)
MANY, POOL, THREADS = Setting("processes", 8, 8), Setting("pool", 8), Setting("pool", 8, threads=True)
SERVED = Setting("collector", 8, served=True)


def measured(setting: Setting, speed: float, noise: float = 0.01) -> Measured:
    return Measured(setting, speed, speed * (1 - noise), speed * (1 + noise), slices=9)


def test_settings_are_those_that_the_machine_can_use():
    settings, left_out = candidates(SHORT, 8, 2, pools=True, seconds=10)

    assert settings == [ONE, SERIAL, PARALLEL, Setting("processes", 8, 4), SHARED, POOL, THREADS]
    assert left_out == ""


def test_long_steps_are_tried_with_a_process_each():
    assert MANY in candidates(LONG, 8, 2, pools=False, seconds=60)[0]
    assert MANY not in candidates(SHORT, 8, 2, pools=False, seconds=60)[0]


@pytest.mark.parametrize(("num_envs", "expected"), [(1, 1), (2, 4)])
def test_few_environments_have_few_settings(num_envs, expected):
    settings, _ = candidates(SHORT, num_envs, 16, pools=False, seconds=10)

    assert len(settings) == expected
    assert all(setting.num_processes <= num_envs for setting in settings)


def test_environments_that_take_long_to_make_are_left_out():
    slow = EnvCost(frame=1e-3, step=1e-3, slow_step=1e-3, reset=1e-3, making=2.0)
    settings, left_out = candidates(slow, 8, 2, pools=True, seconds=20)

    assert settings == [ONE, SERIAL]
    assert left_out.startswith("Not measured, because making an environment takes 2.0 s: ParallelEnv(8), 2 processes;")


def test_libraries_that_step_batches_have_no_pools():
    batch = EnvCost(frame=1e-6, step=1e-5, slow_step=1e-5, reset=1e-5, rows=32, is_batch=True)
    settings, _ = candidates(batch, 4, 2, pools=True, seconds=10)

    assert {setting.kind for setting in settings} == {"one", "serial", "processes"}


def test_the_fastest_setting_is_chosen():
    results = [measured(ONE, 50e3), measured(SERIAL, 60e3), measured(PARALLEL, 150e3), measured(SHARED, 220e3)]
    best, reasons = choose(results, SHORT, 2)

    assert best.setting == SHARED
    assert reasons[0].startswith("Steps are short (8 us): the caller steps a share")
    assert reasons[1] == "It reaches 88% of the limit, 2 cores that only step environments."


def test_the_simplest_of_equally_fast_settings_is_chosen():
    results = [measured(SERIAL, 100e3), measured(PARALLEL, 102e3), measured(SHARED, 101e3)]
    best, reasons = choose(results, SHORT, 2)

    assert best.setting == SERIAL
    assert "waking other processes takes longer" in reasons[0]
    assert reasons[1].startswith("ParallelEnv(8), 2 processes was 2% faster, which is within the noise")


def test_noise_decides_what_is_equally_fast():
    def winner(noise: float) -> Setting:
        results = [measured(PARALLEL, 100e3, noise), measured(SHARED, 112e3, noise)]
        return choose(results, SHORT, 2)[0].setting

    assert winner(0.01) == SHARED
    assert winner(0.10) == PARALLEL


def test_a_pool_is_chosen_for_uneven_steps():
    results = [measured(PARALLEL, 300), measured(SHARED, 310), measured(POOL, 390)]
    best, reasons = choose(results, UNEVEN, 2)

    assert best.setting == POOL
    assert reasons[0].startswith("Steps are uneven: one in twenty takes 15.0 times as long")


@pytest.mark.parametrize(
    ("setting", "cost", "cores", "text"),
    [
        (ONE, SHORT, 2, "No batch is faster"),
        (ONE, EnvCost(1e-6, 1e-5, 1e-5, 1e-5, rows=32, is_batch=True), 2, "The library steps 32 environments at once"),
        (SERIAL, SHORT, 1, "There is one core"),
        (PARALLEL, LONG, 2, "5.0 ms, long enough to divide the environments among 2 processes"),
        (MANY, LONG, 2, "waits for a part of it"),
        (THREADS, LONG, 2, "mostly waits"),
        (SHARED, LONG, 2, "Steps are even"),
        (SERVED, LONG, 2, "the policy, served in one place, acts for those that wait"),
        (Setting("collector", 8, threads=True), LONG, 2, "small enough to act in each worker"),
    ],
)
def test_the_reason_follows_from_the_setting_and_the_cost(setting, cost, cores, text):
    _, reasons = choose([measured(setting, 1000)], cost, cores)

    assert text in reasons[0]


def test_a_policy_that_takes_most_of_the_time_is_named():
    slow_policy = EnvCost(frame=8e-6, step=2e-5, slow_step=3e-5, reset=1e-5, policy=1e-3)
    _, reasons = choose([measured(SERIAL, 7e3)], slow_policy, 2)

    assert reasons[-1].startswith("The policy takes 1.00 ms for each batch, longer than the steps")


def test_other_batch_sizes_keep_the_kind_of_the_best():
    assert batch_sizes(SHARED, 8) == [Setting("processes", n, 2, caller_share=True) for n in (4, 16, 32)]
    assert batch_sizes(SERIAL, 2) == [Setting("serial", n) for n in (4, 8)]
    assert batch_sizes(Setting("processes", 8, 8), 8) == [Setting("processes", n, 8) for n in (16, 32)]
    assert batch_sizes(ONE, 8) == batch_sizes(POOL, 8) == batch_sizes(SERVED, 8) == []


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        (ONE, 'env = make_env("gym:CartPole-v1")'),
        (SERIAL, 'env = SerialEnv(8, "gym:CartPole-v1")'),
        (PARALLEL, 'env = ParallelEnv(8, "gym:CartPole-v1", num_processes=2)'),
        (SHARED, 'env = ParallelEnv(8, "gym:CartPole-v1", num_processes=2, caller_share=True)'),
        (POOL, 'pool = AsyncEnvPool(["gym:CartPole-v1"] * 8, backend="multiprocessing")'),
        (THREADS, 'pool = AsyncEnvPool(["gym:CartPole-v1"] * 8, backend="threading")'),
        (
            SERVED,
            'collector = AsyncBatchedCollector(["gym:CartPole-v1"] * 8, policy, frames_per_batch=..., '
            'inference="server", backend="multiprocessing")',
        ),
    ],
)
def test_each_setting_has_a_line_of_python(setting, line):
    assert setting.code('"gym:CartPole-v1"') == line
    assert Setting("one").code("make") == "env = make()"


def test_the_place_of_a_policy_matters_for_long_steps_only():
    def places(cost: EnvCost, policy: bool) -> list[Setting]:
        kept, _ = candidates(cost, 8, 2, pools=True, seconds=100.0, policy=policy)
        return [setting for setting in kept if setting.kind == "collector"]

    assert len(places(LONG, policy=True)) == 4
    assert SERVED in places(LONG, policy=True)
    assert places(LONG, policy=False) == places(SHORT, policy=True) == []
