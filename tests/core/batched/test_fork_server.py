"""A batch of workers inside a worker has a separate fork server."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from steppe import ParallelEnv, SerialEnv
from steppe.errors import WorkerError
from steppe_testing import ArrayCountingEnv, FailingEnv, assert_equal_data

pytestmark = [pytest.mark.programs, pytest.mark.timeout(240), pytest.mark.usefixtures("nothing_left")]


def inner(make: Any = ArrayCountingEnv) -> Any:
    return ParallelEnv(2, make, num_processes=2)


def test_nested_workers_give_the_same_data() -> None:
    """A worker may start workers; the data is that of serial batches."""
    with ParallelEnv(2, inner, num_processes=1) as env, SerialEnv(2, partial(SerialEnv, 2, ArrayCountingEnv)) as serial:
        env.set_seed(0)
        serial.set_seed(0)
        assert_equal_data(env.rollout(4), serial.rollout(4))
        assert len(env.worker_pids) == 1


def test_an_inner_workers_error_reaches_the_caller() -> None:
    env = ParallelEnv(1, partial(inner, FailingEnv), num_processes=1)

    with pytest.raises(WorkerError, match="FailingEnv failed in step 3") as caught:
        env.rollout(9)

    assert (caught.value.worker, caught.value.env) == (0, 0)
    env.close()
