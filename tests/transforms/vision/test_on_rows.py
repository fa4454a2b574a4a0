"""Kernels of images on rows return the same as the functions."""

from __future__ import annotations

import pytest
import torch

from steppe import Binary, Bounded, SerialEnv, TransformedEnv
from steppe.transforms import CenterCrop, Compose, Crop, GrayScale, Resize, ToTensorImage
from steppe_testing import ArrayDataEnv

SPEC = {"pixels": Bounded(0, 255, (3, 6, 7), dtype=torch.uint8)}
#: Inside of the image, across each of its edges, around it, and beside it.
PARTS = [(4, 3, 1, 2), (4, 4, -2, -1), (5, 6, 3, 4), (10, 11, -2, -2), (3, 3, 8, 0), (3, 3, 0, -5), (6, 7, 0, 0)]


@pytest.mark.parametrize("transform", [lambda p=part: Crop(*p, out_keys=["part"]) for part in PARTS])
def test_a_crop_outside_of_the_image_is_zero(transform):
    """The part that lies outside is zero in rollouts and in steps."""
    env = TransformedEnv(ArrayDataEnv(SPEC), transform())
    assert env.no_row_writer_reason is None
    data = env.rollout(3, break_when_any_done=False)
    stepped = env.step(env.rand_action(env.reset()))

    for found in (data, data["next"], stepped, stepped["next"]):
        assert torch.equal(found["part"], transform()(pixels=found["pixels"]))


IMAGES = [
    Bounded(0, 255, (6, 7, 3), dtype=torch.uint8),
    Bounded(-1000, 2**31 - 1000, (6, 7, 3), dtype=torch.int64),
    Binary(shape=(6, 7, 3), dtype=torch.bool),
    Bounded(0.0, 255.0, (6, 7, 3), dtype=torch.float32),
    Bounded(0.0, 255.0, (6, 7, 3), dtype=torch.float64),
]


@pytest.mark.parametrize("spec", IMAGES, ids=lambda spec: str(spec.dtype))
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"unsqueeze": True},
        {"dtype": torch.float64},
        {"from_int": False},
        {"from_int": True},
        {"shape_tolerant": True},
    ],
    ids=str,
)
def test_images_of_any_dtype_are_scaled_the_same_to_the_bit(spec, settings):
    def chain():
        return Compose(
            ToTensorImage(**settings, out_keys=["image"]), Resize(4, 5, in_keys=["image"], out_keys=["small"])
        )

    env = TransformedEnv(ArrayDataEnv({"pixels": spec}), chain())
    assert env.no_row_writer_reason is None
    data = env.rollout(3, break_when_any_done=False)

    for found in (data, data["next"]):
        expected = chain()(found.select("pixels").clone())
        assert torch.equal(found["image"], expected["image"])
        torch.testing.assert_close(found["small"], expected["small"], rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.float32, torch.float64])
@pytest.mark.parametrize("channels", [1, 3])
def test_grey_is_the_same_to_the_bit(dtype, channels):
    spec = {"pixels": Bounded(0, 255, (channels, 6, 7), dtype=dtype)}
    env = SerialEnv(2, lambda: TransformedEnv(ArrayDataEnv(spec), GrayScale(out_keys=["grey"])))
    data = env.rollout(3, break_when_any_done=False)
    env.close()

    for found in (data, data["next"]):
        assert torch.equal(found["grey"], GrayScale()(pixels=found["pixels"]))


@pytest.mark.parametrize("size", [(4, 4), (5, 3), (9, 9), (6, 2)])
def test_the_middle_is_the_same_on_rows(size):
    env = SerialEnv(2, lambda: TransformedEnv(ArrayDataEnv(SPEC), CenterCrop(*size, out_keys=["part"])))
    data = env.rollout(3, break_when_any_done=False)
    env.close()

    assert torch.equal(data["next", "part"], CenterCrop(*size)(pixels=data["next", "pixels"]))


@pytest.mark.parametrize("inside", [True, False])
def test_large_images_are_transformed_row_by_row_equally(inside):
    """The result for large images of a batch is that of a transform of all together."""
    spec = {"pixels": Bounded(0, 255, (160, 140, 3), dtype=torch.uint8)}  # more than are transformed together

    def chain():
        return Compose(ToTensorImage(out_keys=["small"]), GrayScale(["small"]), Resize(9, 8, in_keys=["small"]))

    if inside:
        env = SerialEnv(2, lambda: TransformedEnv(ArrayDataEnv(spec), chain()))
    else:
        env = TransformedEnv(SerialEnv(2, lambda: ArrayDataEnv(spec)), chain())
    data = env.rollout(2, break_when_any_done=False)
    env.close()

    for found in (data, data["next"]):
        expected = chain()(found.select("pixels").clone())["small"]
        torch.testing.assert_close(found["small"], expected, rtol=0, atol=1e-6)
