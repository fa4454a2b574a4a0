"""Batches: what they promise, and what goes wrong in a worker reaches the caller, named, and leaves nothing behind."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
import warnings
from functools import partial
from typing import Any

import pytest
import torch

from steppe import ParallelEnv, SerialEnv, TransformedEnv
from steppe.errors import ClosedError, SteppeError, WorkerError, WorkerTimeout
from steppe.specs import Unbounded
from steppe.transforms import TensorDictPrimer
from steppe_testing import (
    ArrayCountingEnv,
    DyingEnv,
    DynamicSpecEnv,
    FailingEnv,
    HangingEnv,
    HeterogeneousCountingEnv,
    TextCountingEnv,
)
from tests.limits import ANSWER, AT_ONCE
from tests.processes import workers


def failing_at(row: int, n: int, **kwargs: Any) -> list[Any]:
    return [partial(FailingEnv, **kwargs) if i == row else ArrayCountingEnv for i in range(n)]


def gone(pids: set[int]) -> bool:
    deadline = time.monotonic() + AT_ONCE
    while pids & workers().keys():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@pytest.fixture
def before() -> set[int]:
    return set(workers())


@pytest.mark.parametrize("where", ["init", "reset", "step"])
def test_an_exception_arrives_with_its_traceback_worker_and_environment(where: str, before: set[int]) -> None:
    at = 3 if where == "step" else 1
    env = ParallelEnv(4, failing_at(2, 4, in_=where, at=at if where != "init" else 3), num_processes=2)

    with pytest.raises(WorkerError, match=f"FailingEnv failed in {where}") as caught:
        env.rollout(10)

    assert caught.value.worker == 1
    assert caught.value.env == 2
    assert "mock_faults.py" in caught.value.remote_traceback
    env.close()
    assert gone(workers().keys() - before)


def test_a_killed_worker_is_named_at_once(before: set[int]) -> None:
    env = ParallelEnv(4, ArrayCountingEnv, num_processes=2)
    td = env.rand_action(env.reset())
    pid = env.worker_pids[1]
    started = time.monotonic()
    os.kill(pid, signal.SIGKILL)

    with pytest.raises(WorkerError, match=rf"Worker 1 \(process {pid}\)") as caught:
        env.step(td)

    assert time.monotonic() - started < AT_ONCE
    assert caught.value.worker == 1
    env.close()
    assert gone(workers().keys() - before)


def test_a_worker_that_dies_in_a_step_names_its_environment(before: set[int]) -> None:
    env = ParallelEnv(4, [ArrayCountingEnv, ArrayCountingEnv, ArrayCountingEnv, DyingEnv], num_processes=2)

    with pytest.raises(WorkerError, match="at work on environment 3") as caught:
        env.rollout(10)

    assert (caught.value.worker, caught.value.env) == (1, 3)
    env.close()
    assert gone(workers().keys() - before)


def test_a_batch_whose_worker_failed_says_that_it_is_over() -> None:
    env = ParallelEnv(2, FailingEnv, num_processes=1)
    with pytest.raises(WorkerError):
        env.rollout(10)

    with pytest.raises(ClosedError, match="stopped after an error"):
        env.reset()

    env.close()


def test_an_environment_that_hangs_is_given_up_after_step_timeout(before: set[int]) -> None:
    env = ParallelEnv(2, HangingEnv, num_processes=2, step_timeout=ANSWER)

    with pytest.raises(WorkerTimeout, match=rf"did not answer within {ANSWER} s") as caught:
        env.rollout(50)

    assert caught.value.env in (0, 1)

    env.close()
    assert gone(workers().keys() - before)


def test_in_one_process_the_exception_keeps_its_type() -> None:
    env = SerialEnv(3, failing_at(1, 3, error=ZeroDivisionError))

    with pytest.raises(ZeroDivisionError, match="FailingEnv failed in step 3"):
        env.rollout(10)

    env.close()


def test_closing_twice_and_rounds_of_batches_leave_nothing(before: set[int]) -> None:
    gc.collect()  # what earlier tests have left in cycles is not to go in between
    descriptors = None
    for _ in range(8):
        env = ParallelEnv(3, ArrayCountingEnv, num_processes=2)
        env.rollout(3)
        assert len(workers().keys() - before) == 2
        env.close()
        env.close(raise_if_closed=False)
        open_now = len(os.listdir("/proc/self/fd"))
        descriptors = descriptors or open_now

    assert open_now == descriptors
    assert gone(workers().keys() - before)


def test_a_batch_that_is_forgotten_ends_its_workers(before: set[int]) -> None:
    env = ParallelEnv(2, ArrayCountingEnv)
    env.reset()

    del env

    assert gone(workers().keys() - before)


def test_what_a_caller_holds_does_not_change() -> None:
    with ParallelEnv(2, ArrayCountingEnv) as env:
        td = env.rand_step(env.reset())
        held = td.clone()
        root = env.step_mdp(td)
        for _ in range(20):
            root = env.step_and_maybe_reset(env.rand_action(root))[1]

        assert (td == held).all()
        assert isinstance(td["next", "reward"], torch.Tensor)


def test_text_travels_with_the_rows() -> None:
    with ParallelEnv(2, "gym:MiniGrid-Empty-5x5-v0", num_processes=2) as env:
        data = env.rollout(12, break_when_any_done=False)

    assert data.batch_size == (2, 12)
    assert data.get("mission").tolist()[1][3] == "get to the green goal square"


def test_an_exception_among_rows_of_text_is_named_too() -> None:
    env = ParallelEnv(2, "gym:MiniGrid-Empty-5x5-v0", num_processes=2)
    td = env.rand_action(env.reset())
    os.kill(env.worker_pids[0], signal.SIGKILL)

    with pytest.raises(WorkerError, match="Worker 0"):
        env.step(td)

    env.close()


def test_arguments_reach_an_id_and_a_callable() -> None:
    with SerialEnv(2, "gym:Pendulum-v1", create_env_kwargs=[{"g": 1.0}, {"g": 2.0}]) as env:
        env.reset()
        assert env.unwrapped.g == [1.0, 2.0]


def test_a_state_that_the_policy_hands_on_passes_through_a_batch() -> None:
    def make() -> Any:
        return TransformedEnv(ArrayCountingEnv(), TensorDictPrimer({"hidden": Unbounded(shape=(1,))}))

    with SerialEnv(2, make) as env:
        td = env.rand_action(env.reset())
        td["next", "hidden"] = torch.full((2, 1), 5.0)

        _, root = env.step_and_maybe_reset(td)

        assert root["hidden"].flatten().tolist() == [5.0, 5.0]


class Here(ArrayCountingEnv):
    """A class of a module that no other process can import."""


def test_classes_and_functions_of_modules_that_cannot_be_imported_travel_by_value() -> None:
    scale = 3
    with ParallelEnv(2, lambda: Here(max_steps=scale), num_processes=1) as env:
        data = env.rollout(10)

    assert data.shape == (2, 3)


def test_what_cannot_be_pickled_is_named_and_nothing_else_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    lock = threading.Lock()
    env = ParallelEnv(2, lambda: (lock, ArrayCountingEnv())[1])

    with pytest.raises(WorkerError, match="cannot be sent to a worker process: TypeError"):
        env.reset()

    env.close()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("kind", [SerialEnv, partial(ParallelEnv, num_processes=2)])
def test_a_seed_that_is_none_is_refused_and_the_batch_goes_on(kind: Any) -> None:
    with kind(2, ArrayCountingEnv) as env:
        for seed in ("a", -1, 1.5):
            with pytest.raises(SteppeError, match="A seed is a whole number >= 0"):
                env.set_seed(seed)
        assert env.rollout(3).batch_size == (2, 3)


def test_a_warning_filter_of_a_class_in_main_does_not_stop_a_worker() -> None:
    category = type("Local", (UserWarning,), {"__module__": "__main__"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", category)
        with ParallelEnv(2, ArrayCountingEnv, num_processes=1) as env:
            assert env.rollout(2).shape == (2, 2)


class TestRowsThatDiffer:
    """Rows whose shapes, or entries, are not those of the others."""

    def test_each_row_of_a_growing_observation_is_reset_by_its_own_mask(self):
        env = SerialEnv(2, [lambda: DynamicSpecEnv(5)] * 2)
        td = env.reset()
        for _ in range(3):
            td = env.step_mdp(env.rand_step(td))

        td["_reset"] = torch.tensor([[True], [False]])
        td = env.reset(td)

        assert [row["observation"].shape for row in td.unbind(0)] == [(3, 1, 2), (3, 4, 2)]

    def test_entries_of_single_agents_are_there_after_a_reset(self):
        env = SerialEnv(2, [HeterogeneousCountingEnv] * 2)

        agents = env.reset().unbind(0)[1]["agents"].unbind(0)

        assert [name for agent in agents for name in sorted(agent.keys())] == [
            *("observation", "own_0"),
            *("observation", "own_1"),
            *("observation", "own_2"),
        ]

    def test_the_root_after_a_step_has_the_same_entries_with_resets_as_without(self):
        env = SerialEnv(2, [lambda: TextCountingEnv(2)] * 2)
        td = env.reset()

        roots = []
        for _ in range(3):
            _, td = env.step_and_maybe_reset(env.rand_action(td))
            roots.append(set(td.keys()))

        assert roots[0] == roots[1] == roots[2]
        assert "action" in roots[0]
