"""Transforms accept the spec of one entry, and return one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict.nn import TensorDictModule

import steppe
from steppe import TransformedEnv
from steppe.errors import SpecError
from steppe.registry import list_classes
from steppe.specs import Binary, Bounded, Composite, OneHot, Spec, Unbounded
from steppe.transforms import (
    Compose,
    DoubleToFloat,
    ObservationTransform,
    RenameTransform,
    RewardSum,
    StepCounter,
    Transform,
    apply_to_composite,
    apply_to_composite_inv,
    takes_leaf,
)
from steppe_testing import ArrayCountingEnv, CountingEnv

frame = Bounded(0, 255, (24, 32, 3), dtype=torch.uint8)
planes = Bounded(0, 1, (3, 24, 32))
vector = Unbounded((5,))
gym_plugin = "EndOfLifeTransform"  # asks its environment

#: Arguments of each transform, and a leaf that it may be given as an observation.
SHIPPED: dict[str, tuple[tuple[Any, ...], dict[str, Any], Spec]] = {
    "ActionDiscretizer": ((7,), {}, vector),
    "ActionMask": ((), {}, vector),
    "ActionScaling": ((), {}, vector),
    "AutoResetTransform": ((), {}, vector),
    "BatchSizeTransform": (([4],), {}, vector),
    "BinarizeReward": ((), {}, vector),
    "BurnInTransform": (([TensorDictModule(torch.nn.Identity(), ["a"], ["b"])], 2), {}, vector),
    "CallableTransform": ((lambda td: td,), {}, vector),
    "CatFrames": ((3,), {"dim": -1}, vector),
    "CatTensors": ((["a", "b"], "both"), {}, vector),
    "CenterCrop": ((20, 16), {}, planes),
    "ClipTransform": ((["observation"],), {"low": -1, "high": 1}, vector),
    "Compose": ((StepCounter(9), RewardSum()), {}, vector),
    "ConditionalPolicySwitch": ((lambda td: td, lambda td: td["done"]), {}, vector),
    "ConditionalSkip": ((lambda td: td["done"],), {}, vector),
    "Crop": ((20, 16), {"top": 1}, planes),
    "DTypeCastTransform": ((torch.float32, torch.float16), {}, vector),
    "DeviceCastTransform": (("cpu",), {}, vector),
    "DiscreteActionProjection": ((3, 5), {}, vector),
    "DoubleToFloat": ((), {}, vector),
    "ExcludeTransform": (("observation",), {}, vector),
    "ExpandAs": (("observation", "other"), {}, Unbounded((1,))),
    "FiniteTensorDictCheck": ((), {}, vector),
    "FlattenAction": ((), {}, vector),
    "FlattenObservation": ((-2, -1), {"in_keys": ["observation"]}, Unbounded((2, 3))),
    "FrameSkipTransform": ((2,), {}, vector),
    "GrayScale": ((), {}, planes),
    "Hash": ((["observation"], ["code"]), {}, vector),
    "InitTracker": ((), {}, vector),
    "LineariseRewards": ((), {"weights": [1.0]}, vector),
    "MultiAction": ((), {}, vector),
    "NoopResetEnv": ((3,), {}, vector),
    "ObservationNorm": ((0.5, 2.0), {}, vector),
    "PermuteTransform": (((-1, -2),), {"in_keys": ["observation"]}, Unbounded((2, 3))),
    "PinMemoryTransform": ((), {}, vector),
    "PixelRenderTransform": ((), {}, vector),
    "RandomTruncationTransform": ((2, 9), {}, vector),
    "RemoveEmptySpecs": ((), {}, vector),
    "RenameTransform": ((["observation"], ["seen"]), {}, vector),
    "Resize": ((20, 16), {}, planes),
    "Reward2GoTransform": ((), {"gamma": 0.9}, vector),
    "RewardClipping": ((-1, 1), {}, vector),
    "RewardScaling": ((1.0, 2.0), {}, vector),
    "RewardSum": ((), {}, vector),
    "SelectTransform": (("other",), {}, vector),
    "SignTransform": ((["observation"],), {}, vector),
    "SqueezeTransform": ((-1,), {"in_keys": ["observation"]}, Unbounded((5, 1))),
    "Stack": ((["a", "b"], "both"), {}, vector),
    "StepCounter": ((6,), {}, vector),
    "SuccessReward": ((), {}, vector),
    "TargetReturn": ((10.0,), {}, vector),
    "TensorDictPrimer": (({"h": Unbounded((2,))},), {}, vector),
    "TensorDictRecorder": (("data",), {}, vector),
    "TerminateTransform": ((lambda td: td["done"],), {}, vector),
    "TimeMaxPool": ((["observation"],), {"T": 2}, vector),
    "Timer": ((), {}, vector),
    "ToTensorImage": ((), {}, frame),
    "TrajCounter": ((), {}, vector),
    "UnaryTransform": ((["observation"], ["seen"]), {"fn": lambda x: x * 2}, vector),
    "UnsqueezeTransform": ((-1,), {"in_keys": ["observation"]}, vector),
    "VecNorm": ((), {}, vector),
    "VecNormV2": ((["observation"],), {}, vector),
    "VideoRecorder": ((None, "seen"), {}, frame),
    "gSDENoise": ((2, 3), {}, vector),
}
#: Names of the core that are bases, or no transforms.
CORE = [name for name in steppe.transforms.__all__ if isinstance(getattr(steppe.transforms, name), type)]
BASES = {"EntryTransform", "ObservationTransform", "PlannedTransform", "SteppingTransform", "Transform"}


def made(name: str) -> Any:
    args, kwargs, _ = SHIPPED[name]
    return getattr(steppe.transforms, name)(*args, **kwargs)


def test_the_table_names_every_transform_there_is():
    core = {name for name in CORE if issubclass(getattr(steppe.transforms, name), Transform)} - BASES

    assert set(SHIPPED) == (core | set(list_classes("transform"))) - {gym_plugin}


@pytest.mark.parametrize("name", SHIPPED)
def test_a_leaf_is_taken_and_returned_without_an_environment(name):
    observation = SHIPPED[name][2]
    flag = Binary(shape=(1,), dtype=torch.bool)
    action = OneHot(3) if name in ("ActionMask", "DiscreteActionProjection") else Bounded(-2, 2, (2, 3))
    leaves = {"observation": observation, "reward": Unbounded((1,)), "done": flag, "action": action, "state": vector}

    for kind, leaf in leaves.items():
        before = leaf.clone()
        found = getattr(made(name), f"transform_{kind}_spec")(leaf)
        assert isinstance(found, Spec), kind
        assert not isinstance(found, Composite), kind
        assert leaf == before, kind


def leaf_of(transform: Any, kind: str, leaf: Spec) -> Spec:
    found: Spec = getattr(transform, f"transform_{kind}_spec")(leaf)
    return found


@pytest.mark.parametrize(
    ("name", "kind", "leaf", "expected"),
    [
        ("ToTensorImage", "observation", frame, Bounded(0, 1, (3, 24, 32))),
        ("Resize", "observation", planes, Bounded(0, 1, (3, 20, 16))),
        ("CenterCrop", "observation", planes, Bounded(0, 1, (3, 20, 16))),
        ("GrayScale", "observation", Unbounded((3, 24, 32)), Unbounded((1, 24, 32))),
        ("CatFrames", "observation", vector, Unbounded((15,))),
        ("CatTensors", "observation", vector, Unbounded((10,))),
        ("Stack", "observation", vector, Unbounded((5, 2))),
        ("FlattenObservation", "observation", Unbounded((2, 3)), Unbounded((6,))),
        ("ObservationNorm", "observation", Bounded(-2, 4, (5,)), Bounded(-3.5, 8.5, (5,))),
        ("VecNorm", "observation", Bounded(-2, 4, (5,)), vector),
        ("VecNorm", "reward", Bounded(-2, 4, (1,)), Unbounded((1,))),
        ("RenameTransform", "observation", vector, vector),
        ("RewardClipping", "reward", Unbounded((1,)), Bounded(-1, 1, (1,))),
        ("RewardScaling", "reward", Bounded(0, 3, (1,)), Bounded(1, 7, (1,))),
        ("ActionScaling", "action", Bounded(-2, 6, (2,)), Bounded(-1, 1, (2,))),
        ("ActionScaling", "observation", Bounded(-2, 6, (2,)), Bounded(-2, 6, (2,))),
        ("FlattenAction", "action", Bounded(-2, 2, (2, 3)), Bounded(-2, 2, (6,))),
        ("DTypeCastTransform", "state", vector, Unbounded((5,), dtype=torch.float16)),
        ("BatchSizeTransform", "reward", Unbounded((1,)), Unbounded((4, 1))),
    ],
)
def test_the_leaf_behind_a_transform_is_what_it_makes_of_it(name, kind, leaf, expected):
    found = leaf_of(made(name), kind, leaf)

    assert type(found) is type(expected)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    if isinstance(expected, Bounded):
        assert torch.allclose(found.space.low, expected.space.low, atol=1e-5)
        assert torch.allclose(found.space.high, expected.space.high, atol=1e-5)


def test_a_chain_gives_the_leaf_from_one_to_the_next():
    chain = Compose(
        RenameTransform(["observation"], ["seen"]), StepCounter(), DoubleToFloat(in_keys=["seen"]), RewardSum()
    )

    assert leaf_of(chain, "observation", Unbounded((4,), dtype=torch.float64)) == Unbounded((4,))
    assert leaf_of(chain, "reward", Unbounded((2,))) == Unbounded((2,))


def test_in_an_environment_a_leaf_is_an_entry_beside_the_others():
    env = TransformedEnv(ArrayCountingEnv(5, dtype=torch.float64), Compose(DoubleToFloat(), StepCounter(3)))
    cast = env.transform[0]

    assert leaf_of(cast, "observation", Unbounded((9,), dtype=torch.float64)).dtype is torch.float32
    assert leaf_of(env.transform, "done", env.base_env.full_done_spec["done"]) == env.full_done_spec["done"]
    assert sorted(env.observation_spec.keys()) == ["observation", "step_count"]


# -- transforms of somebody else -----------------------------------------------------------------------------------


class Doubled(ObservationTransform):
    """Twice the observation; subclasses say its spec in different ways."""

    def _apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        return torch.cat([value, value], -1)

    def _reset(self, tensordict: Any, tensordict_reset: Any) -> Any:
        return self._call(tensordict_reset)


class OfALeaf(Doubled):
    @apply_to_composite
    def transform_observation_spec(self, spec):
        return Unbounded((*spec.shape[:-1], 2 * spec.shape[-1]), dtype=spec.dtype)


class OfAComposite(Doubled):
    @takes_leaf
    def transform_observation_spec(self, spec):
        spec["observation"] = Unbounded((2 * spec["observation"].shape[-1],), dtype=spec["observation"].dtype)
        return spec


class Either(Doubled):
    def transform_observation_spec(self, spec):
        if isinstance(spec, Composite):
            spec["observation"] = self.transform_observation_spec(spec["observation"])
            return spec
        return super().transform_observation_spec(Unbounded((2 * spec.shape[-1],), dtype=spec.dtype))


@pytest.mark.parametrize("kind", [OfALeaf, OfAComposite, Either])
@pytest.mark.parametrize("base", [CountingEnv, ArrayCountingEnv])
def test_a_subclass_may_say_its_spec_of_a_leaf(kind, base):
    assert kind().transform_observation_spec(vector) == Unbounded((10,))
    assert Compose(kind(), StepCounter(), kind()).transform_observation_spec(vector) == Unbounded((20,))

    env = TransformedEnv(base(6), Compose(kind(), StepCounter()))
    assert env.observation_spec["observation"].shape == (2,)
    env.check_env_specs()
    assert env.rollout(3)["next", "observation"].tolist() == [[1, 1], [2, 2], [3, 3]]


def test_the_inverse_decorator_takes_a_leaf():
    class Wide(Transform):
        @apply_to_composite_inv
        def transform_action_spec(self, spec):
            return Bounded(-9, 9, spec.shape)

    wide = Wide(in_keys_inv=["action"])
    assert wide.transform_action_spec(Bounded(-1, 1, (2,))) == Bounded(-9, 9, (2,))
    assert wide.transform_action_spec(Composite(action=Bounded(-1, 1, (3,))))["action"] == Bounded(-9, 9, (3,))


@pytest.mark.parametrize("kind", ["observation", "reward", "done", "action"])
def test_a_leaf_for_a_composite_is_refused(kind):
    """The error names the decorator for the entries that the transform reads or inverts."""

    class Unclear(Transform):
        pass

    setattr(Unclear, f"transform_{kind}_spec", lambda self, spec: Unbounded((1,)))
    env = TransformedEnv(CountingEnv(6), Unclear())
    decorator = "apply_to_composite_inv" if kind == "action" else "apply_to_composite"

    with pytest.raises(SpecError, match=rf"Unclear.transform_{kind}_spec received a Composite.* with {decorator} "):
        _ = env.observation_spec
