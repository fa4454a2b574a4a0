"""Every transform of tensors works in the situations of the kit."""

from __future__ import annotations

import torch

from steppe.specs import Bounded, Categorical, Unbounded
from steppe.transforms import Transform
from steppe_tensor import (
    CatTensors,
    ClipTransform,
    DeviceCastTransform,
    DoubleToFloat,
    ExcludeTransform,
    ExpandAs,
    FiniteTensorDictCheck,
    FlattenObservation,
    Hash,
    PermuteTransform,
    PinMemoryTransform,
    RemoveEmptySpecs,
    RenameTransform,
    SelectTransform,
    SignTransform,
    SqueezeTransform,
    Stack,
    Timer,
    UnaryTransform,
    UnsqueezeTransform,
)
from steppe_testing import TransformConformance

VECTOR = {"observation": Unbounded((3,))}
IMAGE = {"pixels": Bounded(0, 255, (4, 5, 3), dtype=torch.uint8)}
PAIR = {"a": Bounded(-1.0, 1.0, (2, 3)), "b": Unbounded((2, 3))}


class TestCatTensors(TransformConformance):
    input_spec = {"a": Bounded(-1.0, 1.0, (2,)), "b": Categorical(4, shape=(1,)), "c": Unbounded((3,))}
    expected = {"observation_vector": (6,)}

    def make_transform(self) -> Transform:
        return CatTensors(["c", "a", "b"])


class TestCatTensorsInPlace(TransformConformance):
    input_spec = {"observation": Unbounded((2,), dtype=torch.float64), "other": Unbounded((3,))}
    expected = {"observation": (5,), "other": (3,)}

    def make_transform(self) -> Transform:
        return CatTensors(["observation", "other"], out_key="observation", del_keys=False)


class TestStack(TransformConformance):
    input_spec = PAIR
    expected = {"both": (2, 2, 3)}

    def make_transform(self) -> Transform:
        return Stack(["a", "b"], "both", dim=-3)


class TestStackWithInverse(TransformConformance):
    input_spec = PAIR
    expected = {"both": (2, 3, 2)}
    invertible = True
    on_rows = False

    def make_transform(self) -> Transform:
        return Stack(["a", "b"], "both", "both", ["a", "b"])


class TestUnsqueezeTransform(TransformConformance):
    input_spec = VECTOR
    expected = {"observation": (3, 1)}
    invertible = True

    def make_transform(self) -> Transform:
        return UnsqueezeTransform(-1, in_keys=["observation"], in_keys_inv=["observation"])


class TestPositiveDimension(TransformConformance):
    input_spec = VECTOR
    expected = {"observation": (1, 3)}
    works_alone = False

    def make_transform(self) -> Transform:
        return UnsqueezeTransform(0, allow_positive_dim=True, in_keys=["observation"])


class TestSqueezeTransform(TransformConformance):
    input_spec = {"observation": Unbounded((3, 1))}
    expected = {"observation": (3,)}
    invertible = True

    def make_transform(self) -> Transform:
        return SqueezeTransform(-1, in_keys=["observation"], in_keys_inv=["observation"])


class TestPermuteTransform(TransformConformance):
    input_spec = IMAGE
    expected = {"pixels": (3, 4, 5)}
    invertible = True

    def make_transform(self) -> Transform:
        return PermuteTransform((-1, -3, -2), in_keys=["pixels"], in_keys_inv=["pixels"])


class TestFlattenObservation(TransformConformance):
    input_spec = IMAGE
    expected = {"pixels": (4, 15)}

    def make_transform(self) -> Transform:
        return FlattenObservation(-2, -1)


class TestExpandAs(TransformConformance):
    input_spec = {"a": Unbounded((2,)), "b": Unbounded((2, 3))}
    expected = {"wide": (2, 3)}

    def make_transform(self) -> Transform:
        return ExpandAs("a", "b", "wide")


class OfAVector(TransformConformance):
    """A vector that stays one."""

    input_spec = VECTOR
    expected = {"observation": (3,)}


class TestClipTransform(OfAVector):
    def make_transform(self) -> Transform:
        return ClipTransform(["observation"], in_keys_inv=["action"], low=-0.25, high=0.5)


class TestSignTransform(OfAVector):
    def make_transform(self) -> Transform:
        return SignTransform(["observation", "reward"], in_keys_inv=["action"])


class TestFiniteTensorDictCheck(OfAVector):
    def make_transform(self) -> Transform:
        return FiniteTensorDictCheck()


class TestPinMemoryTransform(OfAVector):
    on_rows = not torch.cuda.is_available()

    def make_transform(self) -> Transform:
        return PinMemoryTransform()


class Ticks:
    """A clock that advances by a second at each reading."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        self.seconds += 1.0
        return self.seconds


class Ticking(Timer):
    """A Timer for which all calls take one second."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Ticks()


class TestTimer(TransformConformance):
    input_spec = VECTOR
    expected = {"time_step": (), "time_policy": (), "time_reset": ()}
    works_alone = False

    def make_transform(self) -> Transform:
        return Ticking()


class TestHash(TransformConformance):
    input_spec = VECTOR
    expected = {"hash": (32,)}

    def make_transform(self) -> Transform:
        return Hash(["observation"], ["hash"], seed="salt")


def parity(value: torch.Tensor) -> torch.Tensor:
    return (value.sum(-1, keepdim=True) > 0).to(torch.int64)


class TestHashByFunction(TransformConformance):
    input_spec = VECTOR
    expected = {"hash": (1,)}

    def make_transform(self) -> Transform:
        return Hash(["observation"], ["hash"], hash_fn=parity)


def squares(value: torch.Tensor) -> torch.Tensor:
    return value**2


class TestUnaryTransform(TransformConformance):
    input_spec = {"observation": Unbounded((3,))}
    expected = {"square": (3,)}

    def make_transform(self) -> Transform:
        return UnaryTransform(["observation"], ["square"], fn=squares)


class TestDoubleToFloat(TransformConformance):
    input_spec = {"observation": Unbounded((3,), dtype=torch.float64), ("a", "b"): Unbounded((2,), dtype=torch.float64)}
    expected = {"observation": (3,), ("a", "b"): (2,)}
    action_spec = Bounded(-1.0, 1.0, shape=(2,), dtype=torch.float64)

    def make_transform(self) -> Transform:
        return DoubleToFloat()


class TestRenameTransform(TransformConformance):
    input_spec = {"observation": Unbounded((3,))}
    expected = {("seen", "by_me"): (3,)}

    def make_transform(self) -> Transform:
        return RenameTransform(["observation"], [("seen", "by_me")])


class TestSelectTransform(TransformConformance):
    input_spec = {"observation": Unbounded((3,)), "noise": Unbounded((2,))}
    expected = {"observation": (3,)}

    def make_transform(self) -> Transform:
        return SelectTransform("observation")


class TestExcludeTransform(TransformConformance):
    input_spec = {"observation": Unbounded((3,)), ("group", "noise"): Unbounded((2,))}
    expected = {"observation": (3,)}

    def make_transform(self) -> Transform:
        return ExcludeTransform(("group", "noise"))


class TestRemoveEmptySpecs(OfAVector):
    def make_transform(self) -> Transform:
        return RemoveEmptySpecs()


class TestDeviceCastTransform(OfAVector):
    on_rows = False

    def make_transform(self) -> Transform:
        return DeviceCastTransform("cpu")
