"""The kit for transforms catches each wrong one with one test."""

from __future__ import annotations

import dataclasses
import inspect
import os

import pytest
import torch

from steppe.batched import ParallelEnv
from steppe.specs import Bounded, Unbounded
from steppe.transforms import Compose, DoubleToFloat, Hooks, InitTracker, ObservationTransform, RowHooks, StepCounter
from steppe_testing import TransformConformance, WorkerPools

pytestmark = pytest.mark.programs

MAIN = os.getpid()


class Doubled(ObservationTransform):
    """Twice the observation."""

    def __init__(self):
        super().__init__(in_keys=["observation"], out_keys=["observation"], in_keys_inv=["observation"])

    def _apply_transform(self, value):
        return 2 * value

    def _inv_apply_transform(self, value):
        return value / 2


class WrongSpec(Doubled):
    def transform_observation_spec(self, spec):
        spec["observation"] = Unbounded((4,))
        return spec


class WrongInverse(Doubled):
    def _inv_apply_transform(self, value):
        return value / 3


class NoPickle(Doubled):
    def __init__(self):
        super().__init__()
        self.__dict__["function"] = lambda value: value


class MixesRows(Doubled):
    """Takes the mean of all rows off each."""

    def _apply_transform(self, value):
        return 2 * value - value.reshape(-1, value.shape[-1]).mean(0)


class OnlyBatches(Doubled):
    def forward(self, tensordict):
        if tensordict.batch_dims != 1:
            raise RuntimeError("two dimensions, please")
        return super().forward(tensordict)


class Lonely(Doubled):
    def _apply_transform(self, value):
        if isinstance(self.container, Compose):
            raise RuntimeError("no chains, please")
        return super()._apply_transform(value)


class NoKeys(Doubled):
    """Names no keys, which modules are put together by."""

    in_keys = property(lambda self: None, lambda self, keys: None)

    def _call(self, tensordict):
        return tensordict.set("observation", 2 * tensordict["observation"])

    forward = _call

    def _reset(self, tensordict, tensordict_reset):
        return self._call(tensordict_reset)


class ShortLived(Doubled):
    """Gives up at some call."""

    calls = 5

    def __init__(self):
        super().__init__()
        self.__dict__["seen"] = 0

    def _step(self, tensordict, next_tensordict):
        self.__dict__["seen"] += 1
        if self.seen > self.calls:
            raise RuntimeError("enough")
        return super()._step(tensordict, next_tensordict)


class ShortLivedInCollectors(ShortLived):
    calls = 16


class InThisProcess(Doubled):
    def _apply_transform(self, value):
        if os.getpid() != MAIN:
            raise RuntimeError("only in the main process, please")
        return super()._apply_transform(value)


class NoBatchOfProcesses(Doubled):
    def _apply_transform(self, value):
        if isinstance(getattr(self.container, "base_env", None), ParallelEnv):
            raise RuntimeError("no processes, please")
        return super()._apply_transform(value)


class LateBuffer(Doubled):
    """Makes its buffer when it is first used, so that a new one does not know it."""

    def _apply_transform(self, value):
        if "factor" not in self._buffers:
            self.register_buffer("factor", torch.tensor(2.0))
        return self.factor * value


class KeepsRows(Doubled):
    """A transform that keeps its inputs, but declares keeps_nothing."""

    keeps_nothing = True

    def _apply_transform(self, value):
        before = self.__dict__.get("before")
        self.__dict__["before"] = value
        return value if before is None else value + before

    def _reset(self, tensordict, tensordict_reset):
        self.__dict__["before"] = None
        return super()._reset(tensordict, tensordict_reset)


class CountsItself(Doubled):
    """Counts steps in the transform, and calls the count a state of the data."""

    def _step(self, tensordict, next_tensordict):
        self.__dict__["n"] += 1
        return next_tensordict.set("n", torch.full((*next_tensordict.batch_size, 1), self.n))

    def _reset(self, tensordict, tensordict_reset):
        self.__dict__["n"] = 0.0
        return tensordict_reset.set("n", torch.zeros(*tensordict_reset.batch_size, 1))

    def transform_specs(self, specs):
        specs = specs.copy()
        for spec in (specs.observation, specs.state):
            spec["n"] = Unbounded((*specs.batch_size, 1))
        return specs


class MixesRowsInItsKernel(StepCounter):
    """Gives all rows the largest count of them."""

    def hooks(self, specs):
        hooks = super().hooks(specs)
        if hooks.rows is not None:
            bind = hooks.rows.bind

            def bound(root, following):
                step, reset = bind(root, following)

                def mixed():
                    ended = step()
                    following["step_count"][...] = following["step_count"].max()
                    return ended

                return mixed, reset

            hooks.rows = dataclasses.replace(hooks.rows, bind=bound)
        return hooks


class ReadsAnotherFlag(InitTracker):
    """Marks ends; on rows those alone that the environment has found."""

    def hooks(self, specs):
        def bind(root, following):
            def step():
                following["is_init"][...] = following["terminated"]
                return False

            return step, lambda at: root["is_init"].__setitem__(at, False)

        return Hooks(
            step=lambda _, following: following.set("is_init", following["done"].clone()),
            reset=lambda _, fresh: fresh.set("is_init", torch.zeros_like(fresh["done"])),
            rows=RowHooks(bind),
        )


def run(transform, pools, tmp_path, **flags):
    """The names of the conformance tests that fail, for a class made of a transform."""

    def make_transform(self):
        return transform()

    body = {
        "input_spec": {"observation": Unbounded((3,))},
        "expected": {"observation": (3,)},
        "make_transform": make_transform,
        **flags,
    }
    case = type("TestCase", (TransformConformance,), body)()
    failed = set()
    for name, test in inspect.getmembers(case, inspect.ismethod):
        if name.startswith("test_"):
            arguments = {"steppe_pools": pools} if "steppe_pools" in inspect.signature(test).parameters else {}
            try:
                test(**arguments)
            except pytest.skip.Exception:
                continue
            except Exception as error:
                failed.add(f"{name}")
                print(name, error)
    return failed


@pytest.fixture(scope="module")
def pools():
    pools = WorkerPools(1)
    yield pools
    pools.close()


WRONG = [
    (WrongSpec, "test_specs_are_those_of_the_data"),
    (WrongInverse, "test_the_inverse_undoes_it"),
    (NoPickle, "test_it_can_be_pickled"),
    (MixesRows, "test_in_serial_batches"),
    (OnlyBatches, "test_alone_on_data"),
    (Lonely, "test_in_a_compose"),
    (NoKeys, "test_in_a_module"),
    (ShortLived, "test_in_an_environment"),
    (InThisProcess, "test_in_a_parallel_batch"),
    (NoBatchOfProcesses, "test_on_a_parallel_batch"),
    (ShortLivedInCollectors, "test_in_a_collector"),
    (LateBuffer, "test_state_can_be_loaded"),
    (KeepsRows, "test_on_rows"),
    (MixesRowsInItsKernel, "test_on_rows_of_a_batch"),
    (CountsItself, "test_an_edited_root_counts"),
    (ReadsAnotherFlag, "test_in_any_order_with_others"),
]
#: What is said of a wrong transform, so that nothing else is looked at.
FLAGS = {
    MixesRows: {"invertible": False},
    KeepsRows: {"invertible": False, "works_alone": False},
    CountsItself: {"invertible": False, "works_alone": False},
    MixesRowsInItsKernel: {"invertible": False, "works_alone": False, "expected": {"step_count": (1,)}},
    ReadsAnotherFlag: {"invertible": False, "works_alone": False, "expected": {"is_init": (1,)}},
}


@pytest.mark.parametrize(("transform", "caught_by"), [(Doubled, None), *WRONG])
def test_each_wrong_transform_fails_exactly_one_test(transform, caught_by, pools, tmp_path):
    """Each mistake is caught by the one test that is meant for it."""
    failed = run(transform, pools, tmp_path, **{"invertible": True, **FLAGS.get(transform, {})})

    assert failed == ({caught_by} if caught_by else set())


def test_each_test_of_the_kit_catches_a_wrong_transform():
    tests = {name for name in vars(TransformConformance) if name.startswith("test_")}

    # Without the package of replay buffers, that one test does not run.
    assert tests - {caught_by for _, caught_by in WRONG} == {"test_in_a_replay_buffer"}


def test_a_state_that_is_not_saved_is_caught(pools, tmp_path):
    class Counts(Doubled):
        def _apply_transform(self, value):
            self.__dict__["calls"] = self.__dict__.get("calls", 0) + 1
            return value * self.calls

    assert "test_state_can_be_loaded" in run(Counts, pools, tmp_path)


def test_a_wrong_shape_is_caught_wherever_the_data_is_looked_at(pools, tmp_path):
    assert "test_alone_on_data" in run(Doubled, pools, tmp_path, expected={"observation": (2,)}, invertible=False)


def test_a_shape_that_needs_an_action_spec(pools, tmp_path):
    flags = {
        "input_spec": {"observation": Unbounded((3,), dtype=torch.float64)},
        "action_spec": Bounded(-1.0, 1.0, shape=(2,), dtype=torch.float64),
    }

    assert run(DoubleToFloat, pools, tmp_path, **flags) == set()
