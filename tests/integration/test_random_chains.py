"""Random chains of transforms give one data set, whichever way their environment is stepped."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tensordict import TensorDictBase

from steppe import EnvBase, ParallelEnv, SerialEnv, TransformedEnv
from steppe.errors import SteppeError
from steppe.specs import Binary, Bounded, Spec, Unbounded
from steppe.transforms import (
    BinarizeReward,
    CatFrames,
    CatTensors,
    CenterCrop,
    ClipTransform,
    Compose,
    Crop,
    DoubleToFloat,
    DTypeCastTransform,
    ExcludeTransform,
    FlattenObservation,
    InitTracker,
    ObservationNorm,
    PermuteTransform,
    RenameTransform,
    Resize,
    RewardClipping,
    RewardScaling,
    RewardSum,
    SignTransform,
    SqueezeTransform,
    StepCounter,
    TargetReturn,
    TerminateTransform,
    TimeMaxPool,
    ToTensorImage,
    Transform,
    UnaryTransform,
    UnsqueezeTransform,
)
from steppe_testing import ArrayDataEnv, DataEnv
from steppe_testing.compare import assert_equal_data

N, STEPS, SEED = 2, 9, 5

Make = Callable[[], Transform]

LEAVES: list[Callable[[tuple[int, ...]], Spec]] = [
    lambda shape: Bounded(-2.0, 2.0, shape),
    lambda shape: Bounded(-2.0, 2.0, shape, dtype=torch.float64),
    lambda shape: Bounded(0, 255, shape, dtype=torch.uint8),
    lambda shape: Bounded(-5, 5, shape, dtype=torch.int64),
    lambda shape: Binary(shape=shape, dtype=torch.bool),
]
PIXELS = Bounded(0, 255, (6, 7, 3), dtype=torch.uint8)
REWARDS = [Unbounded((1,)), Unbounded((1,), dtype=torch.float64), Bounded(-2.0, 2.0, (1,))]
NEW: list[Any] = ["x", "y", ("group", "z")]

#: Those that need to know no key.
WHOLE: list[Make] = [
    DoubleToFloat,
    partial(DTypeCastTransform, torch.uint8, torch.float32),
    partial(RewardClipping, -1.0, 1.0),
    partial(RewardScaling, 1.0, 2.0),
    BinarizeReward,
    RewardSum,
    StepCounter,
    partial(StepCounter, 3),
    InitTracker,
    partial(TargetReturn, 3.0),
]
#: Those of one entry.
MAPS: list[Callable[..., Transform]] = [
    partial(ObservationNorm, 0.5, 2.0, standard_normal=True),
    partial(ObservationNorm, 0.5, 2.0),
    partial(ClipTransform, low=-1.0, high=1.0),
    SignTransform,
    partial(UnsqueezeTransform, -1),
    partial(SqueezeTransform, -1),
    partial(FlattenObservation, -2, -1),
    partial(PermuteTransform, (-1, -2)),
    partial(CatFrames, 3, -1),
    partial(CatFrames, 2, -1, padding="constant"),
    partial(TimeMaxPool, T=2),
    ToTensorImage,
    partial(Resize, 4, 5, interpolation="nearest"),
    partial(CenterCrop, 4, 3),
    partial(Crop, 3, 5, 1, 2),
    partial(UnaryTransform, fn=lambda value: value + value),
]


def ends(key: Any) -> Transform:
    """A transform that ends an episode if the numbers of an entry are large."""
    return TerminateTransform(lambda td: td[key].reshape(*td.batch_size, -1).double().sum(-1) > 2)


class Case:
    """An environment's specs, and the transforms behind it."""

    def __init__(self, specs: dict[Any, Spec], reward: Spec, device: str | None) -> None:
        self.specs, self.reward, self.device = specs, reward, device
        self.chain: list[Make] = []

    def base(self, kind: Any) -> EnvBase:
        leaves = {key: leaf.clone() for key, leaf in self.specs.items()}
        env: EnvBase = kind(leaves, reward=self.reward.clone(), max_steps=4, device=self.device)
        return env

    def single(self, kind: Any) -> EnvBase:
        return TransformedEnv(self.base(kind), self.transform())

    def transform(self) -> Transform:
        return Compose(*[make() for make in self.chain])

    def keys(self) -> list[Any]:
        found = self.single(DataEnv).full_observation_spec.keys(include_nested=True, leaves_only=True)
        return sorted((key for key in found if not str(key).startswith("_")), key=str)

    def add(self, make: Make) -> None:
        """Add a transform that fits the specs."""
        self.chain.append(make)
        try:
            self.single(DataEnv).rollout(2)  # entries that a later step reads may not be changed, for instance
        except (SteppeError, KeyError, RuntimeError):
            self.chain.pop()

    def __repr__(self) -> str:
        return f"{self.transform()} behind {self.specs}, {self.reward} on {self.device}"


@st.composite
def cases(draw: Any) -> Case:
    leaf = st.tuples(st.sampled_from(LEAVES), st.sampled_from([(3,), (2, 3), (1,), ()])).map(lambda one: one[0](one[1]))
    specs = {"a": draw(leaf), "b": draw(leaf), ("group", "c"): draw(leaf)}
    if draw(st.booleans()):
        specs["pixels"] = PIXELS
    case = Case(specs, draw(st.sampled_from(REWARDS)), draw(st.sampled_from([None, "cpu"])))
    for _ in range(draw(st.integers(3, 8))):  # those that do not fit are left out
        keys = case.keys()
        if not keys:
            break
        key, new = draw(st.sampled_from(keys)), draw(st.sampled_from(NEW))
        kind = draw(st.integers(0, 9))
        if kind < 5:
            function, renamed = draw(st.sampled_from(MAPS)), draw(st.booleans())
            case.add(partial(function, in_keys=[key], out_keys=[new] if renamed else [key]))
        elif kind < 6:
            case.add(partial(CatTensors, sorted({str(keys[0]), str(key)} & set(map(str, keys))), "vector"))
        elif kind < 7:
            case.add(draw(st.sampled_from([partial(RenameTransform, [key], [new]), partial(ExcludeTransform, key)])))
        elif kind < 8:
            case.add(partial(ends, key))
        else:
            case.add(draw(st.sampled_from(WHOLE)))
    return case


def actions(env: EnvBase) -> list[torch.Tensor]:
    drawn = env.full_action_spec.rand((STEPS,), generator=torch.Generator().manual_seed(0))
    return list(drawn["action"].unbind(0))


def by_rollout(env: EnvBase) -> TensorDictBase:
    with closing(env):
        env.set_seed(SEED)
        return env.rollout(STEPS, actions=actions(env), break_when_any_done=False)


def by_steps(env: EnvBase) -> TensorDictBase:
    with closing(env):
        env.set_seed(SEED)
        td, steps = env.reset(), []
        for action in actions(env):
            td["action"] = action
            step, td = env.step_and_maybe_reset(td)
            hidden = [key for key in step.keys(True, True) if names(key)[-1].startswith("_")]
            steps.append(step.exclude(*hidden))
        return torch.stack(steps, len(env.batch_size))


def names(key: Any) -> tuple[str, ...]:
    return (key,) if isinstance(key, str) else key


def inside(case: Case, batch: Any, kind: Any) -> EnvBase:
    env: EnvBase = batch(N, lambda: case.single(kind))
    return env


def outside(case: Case, batch: Any, kind: Any) -> EnvBase:
    return TransformedEnv(batch(N, lambda: case.base(kind)), case.transform())


@settings(
    max_examples=12,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(case=cases())
def test_rows_and_tensordicts_agree_alone_and_in_batches(case: Case) -> None:
    """A chain gives the same data on rows and TensorDicts, in and around a batch."""
    expected = by_rollout(case.single(DataEnv))
    assert_equal_data(by_rollout(case.single(ArrayDataEnv)), expected, "a rollout on rows")
    assert_equal_data(by_steps(case.single(ArrayDataEnv)), expected, "steps on rows")

    expected = by_rollout(inside(case, SerialEnv, DataEnv))
    for where in (inside, outside):
        assert_equal_data(by_rollout(where(case, SerialEnv, ArrayDataEnv)), expected, f"{where.__name__} a batch")
    assert_equal_data(by_steps(outside(case, SerialEnv, ArrayDataEnv)), expected, "steps of a batch")
    assert_equal_data(by_rollout(outside(case, SerialEnv, DataEnv)), expected, "outside, on TensorDicts")


IMAGES = [
    partial(ToTensorImage, out_keys=["x"]),
    partial(Resize, 4, 5, in_keys=["x"]),
    partial(CatFrames, 3, -3, in_keys=["x"]),
    RewardSum,
    partial(StepCounter, 3),
]
NUMBERS = [
    DoubleToFloat,
    partial(ObservationNorm, 0.5, 2.0, in_keys=["a"]),
    partial(ExcludeTransform, ("group", "c")),
    partial(ends, "b"),
    InitTracker,
]


@pytest.mark.parametrize(("chain", "where"), [(IMAGES, inside), (NUMBERS, outside)], ids=["images", "numbers"])
def test_over_workers(chain: list[Make], where: Any) -> None:
    specs = {"a": LEAVES[1]((2, 3)), "b": LEAVES[3]((3,)), ("group", "c"): LEAVES[4](()), "pixels": PIXELS}
    case = Case(specs, REWARDS[1], None)
    case.chain = chain

    found = by_rollout(where(case, partial(ParallelEnv, num_processes=1), ArrayDataEnv))

    assert_equal_data(found, by_rollout(inside(case, SerialEnv, DataEnv)))
