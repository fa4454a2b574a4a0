"""Arguments of batches in programs for TorchRL, with and without an effect."""

from __future__ import annotations

import os
import time
import warnings
from functools import partial
from typing import Any

import pytest
import torch

from steppe import EnvCreator, ParallelEnv, SerialEnv
from steppe.errors import ArgumentError, IgnoredArgumentWarning, StateError
from steppe_testing import ArrayCountingEnv, CountingEnv, assert_equal_data

BOTH = pytest.mark.parametrize("batch", [SerialEnv, partial(ParallelEnv, num_processes=2)], ids=["serial", "parallel"])

ONLY_HOW = {
    "shared_memory": False,
    "memmap": True,
    "share_individual_td": True,
    "use_buffers": False,
    "metadata_from_workers": False,
    "consolidate": False,
    "pin_memory": True,
    "non_blocking": True,
    "policy_proof": None,
    "auto_wrap_envs": False,
    "daemon": True,
    "allow_step_when_done": True,
}


def warned(found: list[warnings.WarningMessage]) -> list[str]:
    assert {each.category for each in found} <= {IgnoredArgumentWarning}
    return [str(each.message).partition(" argument ")[2].partition(" ")[0] for each in found]


@BOTH
def test_arguments_without_effect_warn_once_and_change_no_data(batch: Any) -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        env, again = (batch(2, "gym:CartPole-v1", **ONLY_HOW) for _ in range(2))
    with env, batch(2, "gym:CartPole-v1") as plain:
        env.set_seed(0)
        plain.set_seed(0)
        assert_equal_data(env.rollout(5), plain.rollout(5))

    assert warned(found) == list(ONLY_HOW)
    assert {name: getattr(again, name) for name in ONLY_HOW} == ONLY_HOW
    assert (plain.shared_memory, plain.share_individual_td, plain.serial_for_single) == (True, None, False)


def test_a_serial_env_accepts_arguments_of_workers() -> None:
    of_workers = {"num_threads": 3, "num_sub_threads": 2, "mp_start_method": "spawn", "shutdown_timeout": 1.0}
    before = torch.get_num_threads()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        env = SerialEnv(2, ArrayCountingEnv, **of_workers)
        env.configure_parallel(use_buffers=True)
    with env:
        assert env.rollout(3).shape == (2, 3)

    assert warned(found) == [*of_workers, "use_buffers"]
    assert (env.mp_start_method, env.use_buffers) == ("spawn", True)
    assert torch.get_num_threads() == before


def test_one_environment_in_a_worker_warns_about_speed() -> None:
    with pytest.warns(IgnoredArgumentWarning, match=r"SerialEnv\(1, make\) steps one environment without a worker"):
        env = ParallelEnv(1, ArrayCountingEnv, serial_for_single=True)

    with env:
        assert type(env) is ParallelEnv
        assert env.rollout(3).shape == (1, 3)


def test_unknown_arguments_are_refused_with_a_suggestion() -> None:
    with pytest.raises(TypeError, match="did you mean 'num_processes'"):
        ParallelEnv(2, ArrayCountingEnv, num_proceses=2)
    with pytest.raises(TypeError, match="did you mean 'shared_memory'"):
        SerialEnv(2, ArrayCountingEnv, share_memory=True)
    with pytest.raises(TypeError, match="'caller_share': it is an argument of ParallelEnv"):
        SerialEnv(2, ArrayCountingEnv, caller_share=True)


def test_configure_parallel_takes_constructor_arguments() -> None:
    """Before the start, configure_parallel accepts the arguments of the constructor."""
    env = ParallelEnv(3, ArrayCountingEnv)
    with pytest.warns(IgnoredArgumentWarning, match="memmap has no effect"):
        assert env.configure_parallel(num_processes=1, mp_start_method=None, memmap=True, step_timeout=5.0) is env
    with env:
        assert (env.memmap, env.step_timeout) == (True, 5.0)
        env.start()
        assert len(env.worker_pids) == 1
        with pytest.raises(StateError, match="configure_parallel comes before the first use"):
            env.configure_parallel(num_processes=2)


class Threads(CountingEnv):
    """An environment that returns the number of torch threads of its process."""

    @property
    def torch_threads(self) -> int:
        return torch.get_num_threads()


def test_num_sub_threads_is_what_torch_uses_in_workers() -> None:
    with ParallelEnv(2, Threads, num_processes=2) as one, ParallelEnv(2, Threads, num_sub_threads=2) as two:
        assert (one.torch_threads, two.torch_threads) == ([1, 1], [2, 2])
    with pytest.raises(ArgumentError, match="num_sub_threads=2 is not supported with mp_start_method='fork'"):
        ParallelEnv(2, Threads, num_sub_threads=2, mp_start_method="fork")


class SlowToClose(ArrayCountingEnv):
    """Never comes back from its end."""

    def close(self, **kwargs: Any) -> None:
        time.sleep(600)


def test_shutdown_timeout_limits_how_long_close_waits() -> None:
    env = ParallelEnv(1, SlowToClose, shutdown_timeout=0.1)
    env.reset()
    pids = env.worker_pids
    started = time.monotonic()
    env.close()

    assert time.monotonic() - started < 4.5  # it would be 5 by default
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}/exe")]


def test_a_creator_takes_share_memory_with_a_warning() -> None:
    """EnvCreator does not pass share_memory to the factory."""
    with pytest.warns(IgnoredArgumentWarning, match="each worker has its own environment"):
        creator = EnvCreator(ArrayCountingEnv, {"max_steps": 3}, share_memory=False)

    assert creator.create_env_kwargs == {"max_steps": 3}
    assert creator().max_steps == 3


def test_the_state_of_a_creator_equals_a_new_environments() -> None:
    class Stored(ArrayCountingEnv):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))

    assert EnvCreator(Stored).state_dict() == {"seen": torch.zeros(())}


@pytest.mark.parametrize("seconds", [0, -1.0])
def test_an_invalid_step_timeout_is_refused_before_the_start(seconds: float) -> None:
    """A step_timeout that is not above 0 is refused before any worker starts."""
    with pytest.raises(ArgumentError, match="step_timeout is a number of seconds above 0"):
        ParallelEnv(2, "gym:CartPole-v1", step_timeout=seconds)


def test_a_second_function_is_no_argument_of_the_first():
    with pytest.raises(ArgumentError, match="EnvCreator takes one function; create_env_kwargs is a dict"):
        EnvCreator(ArrayCountingEnv, ArrayCountingEnv)


@BOTH
def test_num_envs_is_another_name_of_num_workers(batch: Any) -> None:
    with batch(create_env_fn=CountingEnv, num_envs=3) as env:
        assert env.num_workers == 3
        assert env.reset().batch_size == (3,)
    with pytest.raises(TypeError, match="num_workers and num_envs are names of one argument"):
        batch(2, CountingEnv, num_envs=2)
    with pytest.raises(ArgumentError, match="num_workers is a whole number >= 1, found 0"):
        batch(num_envs=0, create_env_fn=CountingEnv)
    with pytest.raises(TypeError, match=r"needs the number of environments and what makes one"):
        batch(2)


@BOTH
def test_arguments_of_environments_have_a_place_of_their_own(batch: Any) -> None:
    with pytest.raises(TypeError, match=r"go into create_env_kwargs=\{'max_length': 5\}"):
        batch(2, CountingEnv, max_length=5)
