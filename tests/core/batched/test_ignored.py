"""Arguments of batches in programs for TorchRL, with and without an effect."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import pytest

from steppe import ParallelEnv, SerialEnv
from steppe.errors import ArgumentError, IgnoredArgumentWarning
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
