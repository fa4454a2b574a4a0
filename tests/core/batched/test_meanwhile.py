"""What the caller does while others step the environments of a batch."""

from __future__ import annotations

import pytest
import torch

from steppe import Bounded, ParallelEnv, SerialEnv, TransformedEnv
from steppe.transforms import StepCounter
from steppe_testing import ArrayDataEnv


def images():
    return ArrayDataEnv({"pixels": Bounded(0.0, 1.0, (6, 100, 80))})


def calls_in_two_steps(env):
    calls = []
    td = env.rand_action(env.reset())
    _, td = env.step_and_maybe_reset(td)
    env.meanwhile(lambda: calls.append(1))
    for _ in range(2):
        _, td = env.step_and_maybe_reset(env.rand_action(td))
    env.meanwhile(None)
    env.step_and_maybe_reset(env.rand_action(td))
    env.close()
    return len(calls)


@pytest.mark.parametrize("caller_share", [False, True])
def test_work_is_done_once_in_each_step_of_workers(caller_share):
    assert calls_in_two_steps(ParallelEnv(2, images, num_processes=2, caller_share=caller_share)) == 2


def test_a_transform_around_the_batch_passes_it_on():
    assert calls_in_two_steps(TransformedEnv(ParallelEnv(2, images, num_processes=1), StepCounter())) == 2


def test_environments_that_the_caller_steps_leave_no_time():
    assert calls_in_two_steps(SerialEnv(2, images)) == 0


def test_a_rollout_over_workers_has_the_data_of_one_without():
    found = []
    for env in (SerialEnv(2, images), ParallelEnv(2, images, num_processes=2)):
        env.set_seed(0)
        torch.manual_seed(0)
        found.append(env.rollout(30, break_when_any_done=False))
        env.close()

    assert found[0]["next", "done"].any()
    assert (found[0] == found[1]).all()
