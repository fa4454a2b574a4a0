"""A batch as an object: state, pickles, arguments, devices, warnings."""

from __future__ import annotations

import pickle
import warnings
from functools import partial
from typing import Any

import pytest
import torch

from steppe import Composite, ParallelEnv, SerialEnv, StepCounter, TransformedEnv, Unbounded
from steppe.batched import env_creator
from steppe.errors import SpecError, StateError, WorkerError
from steppe.storage import LARGE
from steppe_testing import ArrayCountingEnv, CountingEnv
from tests.limits import CHILD

BOTH = pytest.mark.parametrize("batch", [SerialEnv, partial(ParallelEnv, num_processes=2)], ids=["serial", "parallel"])


class Inferring(ArrayCountingEnv):
    """An environment that takes the values of its first request."""

    def infer_env_info(self, values: Any) -> Composite:
        if self.env_info_spec.is_empty():
            self.env_info_spec = Composite({name: Unbounded((1,), dtype=value.dtype) for name, value in values.items()})
        return self.env_info_spec


class Remembering(CountingEnv):
    """An environment that keeps its count and its start in its state."""

    def __init__(self, start: int = 0) -> None:
        super().__init__(100, start=start)

    def get_extra_state(self) -> dict[str, torch.Tensor]:
        return {"count": self.count.clone(), "begin": self.begin.clone()}

    def set_extra_state(self, state: dict[str, torch.Tensor]) -> None:
        self.count, self.begin = state["count"].clone(), state["begin"].clone()


@BOTH
@pytest.mark.parametrize("array_path", [True, False])
def test_a_running_batch_infers_the_infos_of_its_resets(batch: Any, array_path: bool) -> None:
    with batch(3, partial(Inferring, 3, array_path=array_path)) as base:
        env = TransformedEnv(base, StepCounter())
        env.rollout(2)
        spec = env.infer_env_info({"start": torch.tensor([4])})
        assert spec == base.env_info_spec
        assert spec["start"].shape == (3, 1)
        td = env.reset(env_info={"start": torch.tensor([[20], [40], [60]])})
        assert td["observation"].flatten().tolist() == [20, 40, 60]
        for _ in range(3):
            td = env.step_and_maybe_reset(env.rand_action(td))[1]
        assert td["observation"].flatten().tolist() == [20, 40, 60], "an automatic reset repeats the values"
        assert env.reset_at(None, [2], env_info={"start": torch.tensor([[7]])})["observation"].item() == 7
        assert env.rollout(4, auto_reset=False, tensordict=td)["next", "step_count"].flatten().tolist() == [1, 2, 3] * 3


@BOTH
def test_environments_that_infer_nothing_keep_their_storage(batch: Any) -> None:
    with batch(2, ArrayCountingEnv) as env:
        env.reset()
        storage = env.storage
        assert env.infer_env_info({"start": torch.tensor([4])}).is_empty()
        assert env.storage is storage


@BOTH
def test_a_step_after_loading_a_state_continues_from_it(batch: Any) -> None:
    with batch(2, CountingEnv) as env:
        assert env.state_dict() == {"worker0": {}, "worker1": {}}
    with batch(2, [Remembering, partial(Remembering, start=10)]) as env:
        root = env.reset()
        for _ in range(3):
            root = env.step_and_maybe_reset(env.rand_action(root))[1]
        state = env.state_dict()
        for _ in range(4):
            root = env.step_and_maybe_reset(env.rand_action(root))[1]
        env.load_state_dict(state)
        stepped = env.step(env.rand_action(root.clone()))
        env.load_state_dict(state["worker0"])
        again = env.step(env.rand_action(root))

        with pytest.raises(SpecError, match="A state of 2 environments is needed"):
            env.load_state_dict({"worker0": {}})
    assert sorted(state) == ["worker0", "worker1"]
    assert stepped["next", "observation"].flatten().tolist() == [4, 14]
    assert again["next", "observation"].flatten().tolist() == [4, 4]


@BOTH
def test_a_pickled_batch_is_rebuilt_on_arrival(batch: Any) -> None:
    step = 3
    with batch(2, lambda: ArrayCountingEnv(start=step)) as env:
        env.reset()
        copy = pickle.loads(pickle.dumps(env))
        assert "not started" in repr(copy)
        with copy:
            assert copy.reset()["observation"].flatten().tolist() == [3, 3]


@BOTH
def test_arguments_can_be_changed_until_the_start(batch: Any) -> None:
    make = partial(ArrayCountingEnv)
    with batch(2, make, create_env_kwargs={"max_steps": 9, "start": 1}) as env:
        env.update_kwargs([{}, {"start": 5}])
        assert env.create_env_fn == [make, make]
        assert env.create_env_kwargs == [{"max_steps": 9, "start": 1}, {"max_steps": 9, "start": 5}]
        assert env.reset()["observation"].flatten().tolist() == [1, 5]
        assert env.max_steps == [9, 9]
        with pytest.raises(StateError, match="before the first use"):
            env.update_kwargs({"start": 1})


def test_workers_are_silent_about_warnings_unless_asked(run_script: Any) -> None:
    script = """
import sys, warnings
import steppe
from steppe import ParallelEnv
from steppe_testing import ArrayCountingEnv

def make():
    warnings.warn("the library says")
    return ArrayCountingEnv()

for silent in (True, False):
    steppe.filter_warnings_subprocess = silent
    print(silent, file=sys.stderr, flush=True)
    with ParallelEnv(1, make) as env:
        env.reset()
"""
    _, err = run_script(script).communicate(timeout=CHILD)

    when_silent, when_asked = err.removeprefix("True\n").split("False\n")
    assert "the library says" in when_asked
    assert when_silent == ""


def test_a_filter_of_the_callers_holds_in_workers() -> None:
    def make() -> Any:
        warnings.warn("the library says", stacklevel=1)
        return ArrayCountingEnv()

    with warnings.catch_warnings():
        warnings.filterwarnings("error", "the library says")
        env = ParallelEnv(1, make)
        with pytest.raises(WorkerError, match="UserWarning: the library says"):
            env.reset()
        env.close()


def test_ids_take_arguments_late() -> None:
    env = SerialEnv(1, "gym:Pendulum-v1")
    env.update_kwargs({"g": 3.0})
    with env:
        assert env.unwrapped.g == [3.0]


@env_creator
def few_steps(most: int = 3) -> ArrayCountingEnv:
    return ArrayCountingEnv(max_steps=most)


def test_a_decorated_factory_has_variants() -> None:
    assert isinstance(few_steps(), ArrayCountingEnv)
    with ParallelEnv(2, [few_steps, few_steps.make_variant(most=5)], num_processes=1) as env:
        assert env.rollout(9, break_when_any_done=False)["next", "done"].sum(1).flatten().tolist() == [3, 1]
    assert few_steps.create_env_kwargs == {}


def test_rollouts_of_images_keep_their_data_beside_later_ones():
    """Large entries are stacked into memory that is used again, once nobody holds it."""
    make = partial(ArrayCountingEnv, 5, pixels=(256, 256))
    with SerialEnv(4, make) as env:
        steps = 32
        held = env.rollout(steps, break_when_any_done=False)
        expected = held.clone()
        for _ in range(3):
            env.rollout(steps, break_when_any_done=False)
        later = env.rollout(steps, break_when_any_done=False)

    assert held["pixels"].nbytes > LARGE
    assert (held == expected).all()
    ended = held["next", "done"].squeeze(-1)
    assert torch.equal(held["pixels"][:, 1:][~ended[:, :-1]], held["next", "pixels"][:, :-1][~ended[:, :-1]])
    assert held["pixels"].data_ptr() != later["pixels"].data_ptr()
