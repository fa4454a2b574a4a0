"""Arguments and inputs of the benchmark of transforms, for both libraries."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["ACTIONS", "CASES", "value_of"]

_STILL = {"observation": ((8,), torch.float32)}
_OBSERVATION = ["observation"]


def _pixels(*shape: int, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    return {"pixels": (shape, dtype)}


def value_of(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return the constant value of an entry."""
    if dtype is torch.bool:
        return torch.ones(shape, dtype=dtype)
    generator = torch.Generator().manual_seed(0)
    if dtype is torch.uint8:
        return torch.randint(0, 256, shape, dtype=dtype, generator=generator)
    return torch.rand(shape, dtype=dtype, generator=generator)


def never(td: Any) -> torch.Tensor:
    """Return False: a condition that never holds."""
    return td["observation"][..., 0] > 2


def unchanged(td: Any) -> Any:
    """Return the data: a policy that keeps the action."""
    return td


#: For each transform, the arguments of its constructor, and the shapes and dtypes of the observations.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "ToTensorImage": ({}, _pixels(210, 160, 3, dtype=torch.uint8)),
    "GrayScale": ({}, _pixels(3, 210, 160)),
    "Resize": ({"w": 84}, _pixels(1, 210, 160)),
    "Crop": ({"w": 84}, _pixels(1, 210, 160)),
    "CenterCrop": ({"w": 84}, _pixels(1, 210, 160)),
    "ObservationNorm": (
        {"loc": torch.zeros(8), "scale": torch.ones(8), "in_keys": _OBSERVATION, "standard_normal": True},
        _STILL,
    ),
    "RewardScaling": ({"loc": 1.0, "scale": 2.0}, _STILL),
    "VecNorm": ({"in_keys": _OBSERVATION}, _STILL),
    "RewardClipping": ({"clamp_min": -1.0, "clamp_max": 1.0}, _STILL),
    "BinarizeReward": ({}, _STILL),
    "CatTensors": (
        {"in_keys": ["a", "b"], "out_key": "vector"},
        {"a": ((4,), torch.float32), "b": ((4,), torch.float32)},
    ),
    "UnsqueezeTransform": ({"dim": -1, "in_keys": _OBSERVATION}, _STILL),
    "SqueezeTransform": ({"dim": -1, "in_keys": ["x"]}, {"x": ((8, 1), torch.float32)}),
    "PermuteTransform": ({"dims": (-1, -2), "in_keys": ["x"]}, {"x": ((4, 2), torch.float32)}),
    "FlattenObservation": ({"first_dim": -2, "last_dim": -1, "in_keys": ["x"]}, {"x": ((4, 2), torch.float32)}),
    "ClipTransform": ({"in_keys": _OBSERVATION, "low": -1.0, "high": 1.0}, _STILL),
    "SignTransform": ({"in_keys": _OBSERVATION}, _STILL),
    "CatFrames": ({"N": 4, "dim": -1, "in_keys": _OBSERVATION}, _STILL),
    "TimeMaxPool": ({"in_keys": _OBSERVATION, "T": 2}, _STILL),
    "DoubleToFloat": ({}, {"observation": ((8,), torch.float64)}),
    "RewardSum": ({}, _STILL),
    "StepCounter": ({}, _STILL),
    "Timer": ({}, _STILL),
    "TerminateTransform": ({"stop": never}, _STILL),
    "gSDENoise": ({"state_dim": 3, "action_dim": 2}, _STILL),
    "FrameSkipTransform": ({"frame_skip": 4}, _STILL),
    "ActionMask": ({}, {**_STILL, "action_mask": ((4,), torch.bool)}),
    "ConditionalPolicySwitch": ({"policy": unchanged, "condition": never}, _STILL),
    "ActionScaling": ({}, _STILL),
    "ActionDiscretizer": ({"num_intervals": 5}, _STILL),
    "FlattenAction": ({"first_dim": -2, "last_dim": -1}, _STILL),
    "DiscreteActionProjection": ({"num_actions_effective": 4, "max_actions": 6}, _STILL),
}

#: Actions of the environment for transforms of actions: a kind, and the arguments of its spec.
ACTIONS: dict[str, tuple[Any, ...]] = {
    "ActionMask": ("one-hot", 4),
    "ActionScaling": ("bounded", -2.0, 2.0, (2,)),
    "ActionDiscretizer": ("bounded", -1.0, 1.0, (2,)),
    "FlattenAction": ("bounded", -1.0, 1.0, (2, 3)),
    "DiscreteActionProjection": ("one-hot", 4),
}
