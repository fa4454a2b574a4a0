"""Transformed images, compared with OpenCV and with values computed by hand."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
import torch

from steppe.errors import SpecError
from steppe.specs import Bounded, Composite
from steppe.transforms import CenterCrop, Crop, GrayScale, Resize, ToTensorImage


def image(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def triangle(size: int, out: int) -> np.ndarray:
    """Weights of a triangular filter as wide as what falls into a pixel: ``[out, size]``."""
    scale = size / out
    width = max(scale, 1.0)
    centers = (np.arange(out)[:, None] + 0.5) * scale - 0.5
    weights = np.clip(1 - np.abs(np.arange(size)[None] - centers) / width, 0, None)
    return weights / weights.sum(1, keepdims=True)


def test_an_image_has_its_channels_first_and_values_from_0_to_1():
    frames = image(2, 4, 5, 3)

    result = ToTensorImage()(pixels=frames)

    assert result.dtype is torch.float32
    for frame, tensor in zip(frames.numpy(), result.numpy(), strict=True):
        np.testing.assert_allclose(tensor, np.stack(cv2.split(frame.astype(np.float32) / 255)), atol=1e-7)


@pytest.mark.parametrize(
    ("arguments", "given", "expected"),
    [
        ({}, torch.uint8, 51 / 255),
        ({"from_int": False}, torch.uint8, 51.0),
        ({}, torch.float32, 51.0),
        ({"from_int": True}, torch.float32, 51 / 255),
    ],
)
def test_to_tensor_image_divides_integers_by_default(arguments, given, expected):
    pixels = torch.full((1, 1, 3), 51, dtype=given)

    assert ToTensorImage(**arguments)(pixels=pixels).flatten().tolist() == pytest.approx([expected] * 3)


def test_an_image_may_have_another_dtype_and_one_more_dimension():
    result = ToTensorImage(unsqueeze=True, dtype=torch.float64)(pixels=image(6, 4, 5, 3))

    assert (result.shape, result.dtype) == ((6, 1, 3, 4, 5), torch.float64)


def spec_behind(transform, leaf):
    return transform.transform_observation_spec(Composite(pixels=leaf))["pixels"]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16])
@pytest.mark.parametrize("arguments", [{}, {"from_int": False}])
def test_integers_keep_the_values_of_the_frame(dtype, arguments):
    frames = image(5, 7, 9, 3)
    transform = ToTensorImage(dtype=dtype, **arguments)

    result = transform(pixels=frames)
    spec = spec_behind(transform, Bounded(0, 255, (7, 9, 3), dtype=torch.uint8))

    assert torch.equal(result, frames.movedim(-1, -3).to(dtype))
    assert (spec.dtype, spec.space.high.unique().tolist()) == (dtype, [255])


def test_floats_up_to_one_are_not_made_integers():
    with pytest.raises(SpecError, match=r"ToTensorImage\(dtype=torch.uint8\): .* floats up to 1"):
        spec_behind(ToTensorImage(dtype=torch.uint8), Bounded(0, 1, (7, 9, 3)))


LAST = r"{} takes images .* found the shape {}. Channels come first: put ToTensorImage\(\) before it"


@pytest.mark.parametrize("shape", [(30, 44, 3), (2, 30, 44, 3), (30, 44, 1), (30, 44, 4)])
@pytest.mark.parametrize(
    "transform", [Resize(12), Crop(12), CenterCrop(12), GrayScale()], ids=lambda one: type(one).__name__
)
def test_channels_at_the_end_are_refused(transform, shape):
    match = LAST.format(type(transform).__name__, str(shape).replace("(", r"\(").replace(")", r"\)"))
    with pytest.raises(SpecError, match=match):
        transform(pixels=image(*shape))
    with pytest.raises(SpecError, match=match + ".*'pixels'"):
        transform.transform_observation_spec(Composite(pixels=Bounded(0, 255, shape, dtype=torch.uint8)))


@pytest.mark.parametrize("shape", [(12, 30, 44), (1, 30, 44), (64, 1, 1), (3, 2, 4), (4, 8, 4), (7, 3, 3)])
@pytest.mark.parametrize("transform", [Resize(2), Crop(2), CenterCrop(2)], ids=lambda one: type(one).__name__)
def test_any_number_of_channels_may_be_in_front(transform, shape):
    assert transform(pixels=image(*shape)).shape == (shape[0], 2, 2)


def test_channels_in_front_are_not_put_there_twice():
    once = ToTensorImage()(pixels=image(30, 44, 3))

    with pytest.raises(SpecError, match=r"found the shape \(3, 30, 44\), whose channels are first already"):
        ToTensorImage()(pixels=once)
    assert ToTensorImage(shape_tolerant=True)(pixels=once).shape == (3, 30, 44)


def test_shape_tolerant_keeps_images_without_last_channels():
    """With shape_tolerant, an image without three channels at the end is unchanged."""
    tolerant = ToTensorImage(shape_tolerant=True)

    assert tolerant(pixels=image(3, 4, 5)).shape == (3, 4, 5)
    assert tolerant(pixels=image(4, 5, 3)).shape == (3, 4, 5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
def test_grey_values_match_opencv(dtype):
    colours = image(7, 9, 3)
    expected = cv2.cvtColor(colours.numpy(), cv2.COLOR_RGB2GRAY)

    grey = GrayScale()(pixels=colours.movedim(-1, -3).to(dtype))

    assert (grey.shape, grey.dtype) == ((1, 7, 9), dtype)
    # OpenCV weighs red with 0.299, and rounds to the nearest where we round down.
    assert np.abs(grey[0].numpy().astype(float) - expected).max() <= 1.0


def test_an_image_of_one_channel_is_grey_already():
    grey = image(1, 4, 5)

    assert torch.equal(GrayScale()(pixels=grey), grey)


LINEAR, AREA = cv2.INTER_LINEAR, cv2.INTER_AREA
OPENCV = [
    *[((210, 160), to, {"antialias": False}, LINEAR, 0.02) for to in [(42, 32), (84, 84), (50, 37), (300, 161)]],
    *[((210, 160), to, {"interpolation": "area"}, AREA, 0.01) for to in [(105, 80), (42, 32)]],
    ((20, 30), (47, 61), {}, LINEAR, 0.02),  # a larger image: there is nothing to average
]


@pytest.mark.parametrize(("size", "to", "arguments", "reference", "atol"), OPENCV)
def test_resizing_without_antialiasing_matches_opencv(size, to, arguments, reference, atol):
    frame = image(*size).float()
    expected = cv2.resize(frame.numpy(), to[::-1], interpolation=reference)

    result = Resize(*to, **arguments)(pixels=frame[None])

    np.testing.assert_allclose(result[0].numpy(), expected, atol=atol)


@pytest.mark.parametrize(("rows", "columns"), [(84, 84), (50, 37), (300, 222)])
def test_sizes_with_averaging_weigh_pixels_by_a_triangle(rows, columns):
    frame = image(210, 160).float()
    expected = triangle(210, rows) @ frame.numpy().astype(float) @ triangle(160, columns).T

    result = Resize(rows, columns)(pixels=frame[None])

    np.testing.assert_allclose(result[0].numpy(), expected, atol=0.01)


def test_integers_are_rounded():
    frame = torch.tensor([[[0, 1], [1, 1]]], dtype=torch.uint8)

    assert Resize(1)(pixels=frame).tolist() == [[[1]]]  # 0.75
    assert Resize(1, interpolation="area")(pixels=frame * 10).tolist() == [[[8]]]  # 7.5, to the even number


def test_bicubic_bytes_stay_between_0_and_255():
    edge = torch.zeros(1, 8, 8, dtype=torch.uint8)
    edge[..., 4:] = 255
    large = Resize(31, interpolation="bicubic")(pixels=edge)

    assert large[0, 0, 0] == 0
    assert large[0, 0, -1] == 255
    assert large[0].float().diff(dim=-1).min() >= -40  # nothing wraps around


def test_resize_takes_a_pair_of_sizes_and_an_enum_mode():
    class Mode:
        value = "nearest"

    resize = Resize((4, 6), interpolation=Mode())

    assert resize(pixels=image(1, 8, 8)).shape == (1, 4, 6)
    assert "Resize(w=4, h=6, interpolation=nearest" in repr(resize)


def test_a_crop_is_what_its_numbers_say():
    frame = image(1, 6, 8)

    assert torch.equal(Crop(2, 3, top=1, left=4)(pixels=frame), frame[:, 1:3, 4:7])
    assert torch.equal(Crop(3)(pixels=frame), frame[:, :3, :3])


@pytest.mark.parametrize(("top", "left"), [(-2, -3), (4, 5), (-9, 0), (3, 20)])
def test_a_crop_outside_the_image_is_filled_with_zeros(top, left):
    frame = image(1, 6, 8) // 2 + 1
    around = cv2.copyMakeBorder(frame[0].numpy(), 30, 30, 30, 30, cv2.BORDER_CONSTANT, value=0)

    result = Crop(5, 7, top, left)(pixels=frame)

    assert np.array_equal(result[0].numpy(), around[30 + top : 35 + top, 30 + left : 37 + left])


@pytest.mark.parametrize(("size", "part", "first"), [(6, 2, 2), (7, 2, 2), (9, 2, 4), (5, 5, 0)])
def test_center_crop_rounds_like_torchvision(size, part, first):
    row = torch.arange(size).reshape(1, 1, size)

    assert CenterCrop(1, part)(pixels=row).flatten().tolist() == list(range(first, first + part))


def test_center_crop_pads_a_smaller_image_with_zeros():
    result = CenterCrop(2, 5)(pixels=torch.ones(1, 2, 2))

    assert result.tolist() == [[[0, 1, 1, 0, 0]] * 2]


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Resize(0), "w must be a number of pixels >= 1, found 0"),
        (lambda: Resize(8, 2.5), "h must be a number of pixels >= 1, found 2.5"),
        (lambda: Resize((8, 8, 8)), "without h; found"),
        (lambda: Resize(8, interpolation="lanczos"), r"interpolation must be one of \['nearest'.*found 'lanczos'"),
        (lambda: Crop("8"), "w must be a number of pixels"),
        (lambda: Crop(8, top=0.5), "top must be a whole number of pixels, found 0.5"),
        (lambda: ToTensorImage(from_int=True, dtype=torch.int32), "integers can only be 0 or 1. Leave from_int out"),
        (lambda: CenterCrop(8, -1), "h must be a number of pixels >= 1, found -1"),
        (lambda: ToTensorImage()(pixels=image(4, 4)), r"takes images \[\*, H, W, C\], found the shape \(4, 4\)"),
        (lambda: GrayScale()(pixels=image(4, 4, 3)), r"found the shape \(4, 4, 3\).*ToTensorImage\(\) before it"),
        (lambda: Resize(4)(pixels=image(4, 5)), r"takes images \[\*, C, H, W\], found the shape \(4, 5\)"),
        (lambda: Crop(4)(pixels=image(4)), r"takes images \[\*, H, W\], found the shape \(4,\)"),
    ],
)
def test_an_error_names_accepted_and_found_values(make, match):
    with pytest.raises(SpecError, match=match):
        make()
