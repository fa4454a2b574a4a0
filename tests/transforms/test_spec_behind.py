"""The spec of an entry behind a transform, from the spec of the entry before it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import steppe.transforms
from steppe.specs import Bounded, Composite, Spec, Unbounded

frame = Bounded(0, 255, (24, 32, 3), dtype=torch.uint8)
planes = Bounded(0, 1, (3, 24, 32))
vector = Unbounded((5,))
halves = Unbounded((5,), dtype=torch.float16)
seen = {"in_keys": ["observation"]}


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "kind", "leaf", "expected"),
    [
        ("ToTensorImage", (), {}, "observation", frame, Bounded(0, 1, (3, 24, 32))),
        ("Resize", (20, 16), {}, "observation", planes, Bounded(0, 1, (3, 20, 16))),
        ("CenterCrop", (20, 16), {}, "observation", planes, Bounded(0, 1, (3, 20, 16))),
        ("GrayScale", (), {}, "observation", Unbounded((3, 24, 32)), Unbounded((1, 24, 32))),
        ("CatFrames", (3,), {"dim": -1}, "observation", vector, Unbounded((15,))),
        ("CatTensors", (["a", "b"], "both"), {}, "observation", vector, Unbounded((10,))),
        ("Stack", (["a", "b"], "both"), {}, "observation", vector, Unbounded((5, 2))),
        ("FlattenObservation", (-2, -1), seen, "observation", Unbounded((2, 3)), Unbounded((6,))),
        ("ObservationNorm", (0.5, 2.0), {}, "observation", Bounded(-2, 4, (5,)), Bounded(-3.5, 8.5, (5,))),
        ("VecNorm", (), {}, "observation", Bounded(-2, 4, (5,)), vector),
        ("VecNorm", (), {}, "reward", Bounded(-2, 4, (1,)), Unbounded((1,))),
        ("RenameTransform", (["observation"], ["seen"]), {}, "observation", vector, vector),
        ("RewardClipping", (-1, 1), {}, "reward", Unbounded((1,)), Bounded(-1, 1, (1,))),
        ("RewardScaling", (1.0, 2.0), {}, "reward", Bounded(0, 3, (1,)), Bounded(1, 7, (1,))),
        ("ActionScaling", (), {}, "action", Bounded(-2, 6, (2,)), Bounded(-1, 1, (2,))),
        ("ActionScaling", (), {}, "observation", Bounded(-2, 6, (2,)), Bounded(-2, 6, (2,))),
        ("FlattenAction", (), {}, "action", Bounded(-2, 2, (2, 3)), Bounded(-2, 2, (6,))),
        (
            "DTypeCastTransform",
            (torch.float32, torch.float16),
            {},
            "state",
            vector,
            Unbounded((5,), dtype=torch.float16),
        ),
        ("BatchSizeTransform", ([4],), {}, "reward", Unbounded((1,)), Unbounded((4, 1))),
    ],
)
def test_the_spec_behind_a_transform(name, args, kwargs, kind, leaf, expected):
    transform = getattr(steppe.transforms, name)(*args, **kwargs)

    found = spec_behind(transform, kind, leaf)

    assert type(found) is type(expected)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    if isinstance(expected, Bounded):
        assert torch.allclose(found.space.low, expected.space.low, atol=1e-5)
        assert torch.allclose(found.space.high, expected.space.high, atol=1e-5)


def spec_behind(transform: Any, kind: str, leaf: Spec) -> Spec:
    """Return the spec that a transform makes of that of each entry of a kind that it reads."""
    read, written = transform.in_keys, transform.out_keys
    if kind in ("action", "state"):
        read, written = transform.in_keys_inv, transform.out_keys_inv
    read = [key for key in read if not isinstance(key, str) or key not in ("reward", "observation") or key == kind]
    written = [key for key in written if key not in ("reward", "observation") or key == kind]
    before = Composite({key: leaf.clone() for key in read or [kind]})
    after: Composite = getattr(transform, f"transform_{kind}_spec")(before)
    found: Spec = after[(written or read or [kind])[0]]
    return found
