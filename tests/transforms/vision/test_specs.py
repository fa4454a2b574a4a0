"""Specs of transformed images: shapes, dtypes and bounds."""

from __future__ import annotations

import pytest
import torch

from steppe import make_env
from steppe.batched import SerialEnv
from steppe.errors import SpecError
from steppe.specs import Bounded, Unbounded
from steppe.transforms import CenterCrop, Compose, Crop, GrayScale, Resize, ToTensorImage, TransformedEnv
from steppe_testing import DataEnv

BYTES = Bounded(0, 255, (6, 8, 3), dtype=torch.uint8)


def behind(transform, spec=BYTES, **others):
    return TransformedEnv(DataEnv({"pixels": spec, **others}), transform).observation_spec["pixels"]


def test_bytes_become_floats_from_0_to_1():
    assert behind(ToTensorImage()) == Bounded(0, 1, (3, 6, 8))
    assert behind(ToTensorImage(from_int=False)) == Bounded(0, 255, (3, 6, 8))
    double = Bounded(0, 1, (1, 3, 6, 8), dtype=torch.float64)
    assert behind(ToTensorImage(unsqueeze=True, dtype=torch.float64)) == double


def test_grey_values_are_at_most_the_sum_of_the_weights():
    spec = behind(Compose(ToTensorImage(), GrayScale()))

    assert spec.shape == (1, 6, 8)
    assert spec.space.low.unique().tolist() == [0.0]
    assert spec.space.high.unique().tolist() == pytest.approx([0.9999])


def test_bounds_of_single_pixels_are_cropped_with_them():
    high = torch.arange(1, 145, dtype=torch.uint8).reshape(3, 6, 8)

    spec = behind(Crop(2, 3, top=5, left=1), Bounded(0, high, dtype=torch.uint8))

    assert torch.equal(spec.space.high[:, 0], high[:, 5, 1:4])
    assert spec.space.high[:, 1].unique().tolist() == [0]  # outside of the image


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "nearest-exact", "area"])
def test_a_white_image_of_any_size_is_in_its_spec(mode):
    frames = TransformedEnv(DataEnv({"pixels": Bounded(0, 1, (1, 50, 37))}), Resize(13, 11, mode))
    spec = frames.observation_spec["pixels"]

    for lead in ((), (1,), (64,), (3, 5)):
        for value in (0.0, 1.0):
            resized = Resize(13, 11, mode)(pixels=torch.full((*lead, 1, 50, 37), value))
            assert spec.is_in(resized)
    assert spec.space.high.max() <= 1 + 1e-6


def test_bicubic_resizing_has_no_bounds():
    assert behind(Resize(4, interpolation="bicubic"), Bounded(0, 1, (3, 6, 8))) == Unbounded((3, 4, 4))
    assert behind(ToTensorImage(), Unbounded((6, 8, 3), dtype=torch.uint8)) == Unbounded((3, 6, 8))
    assert behind(Resize(4), Bounded(-1, torch.inf, (3, 6, 8))).is_in(torch.full((3, 4, 4), 1e30))


def test_images_of_groups_of_agents_are_found():
    agents = Bounded(0, 255, (2, 6, 8, 3), dtype=torch.uint8)
    env = TransformedEnv(DataEnv({("agents", "pixels"): agents, "observation": Unbounded((4,))}), ToTensorImage())

    assert env.transform.in_keys == [("agents", "pixels")]
    assert env.rollout(2)["next", "agents", "pixels"].shape == (2, 2, 3, 6, 8)


def test_another_entry_is_left_beside_the_image():
    env = TransformedEnv(DataEnv({"pixels": BYTES}), ToTensorImage(in_keys=["pixels"], out_keys=["image"]))

    data = env.rollout(2)

    assert env.observation_spec["pixels"] == BYTES
    torch.testing.assert_close(data["image"], data["pixels"].movedim(-1, -3) / 255)


def test_missing_images_are_an_error_with_the_existing_keys():
    with pytest.raises(SpecError, match=r"the environment has no 'pixels'; give in_keys. It has \['position'\]"):
        TransformedEnv(DataEnv({"position": Unbounded((3,))}), Resize(4)).reset()
    with pytest.raises(SpecError, match=r"Resize: the environment has no observation 'picture'. It has \['pixels'\]"):
        TransformedEnv(DataEnv({"pixels": BYTES}), Resize(4, in_keys=["picture"])).reset()


def test_an_image_of_the_wrong_shape_is_an_error_with_its_key():
    with pytest.raises(SpecError, match=r"found the shape \(6, 8, 3\).*the observation 'pixels'"):
        behind(GrayScale())


def test_partial_resets_and_steps_transform_their_rows():
    env = SerialEnv(3, lambda: TransformedEnv(DataEnv({"pixels": BYTES}), Compose(ToTensorImage(), CenterCrop(2))))
    root = env.reset()
    mask = torch.tensor([True, False, True])

    step = env.step(env.rand_action(root.clone()).set("_step", mask))["next"]
    again = env.reset(root.clone().set("_reset", mask[:, None]))

    for data in (step, again):
        assert data["pixels"].shape == (3, 3, 2, 2)
        assert (data["pixels"] == root["pixels"]).flatten(1).all(1).tolist() == [False, True, False]
    assert env.observation_spec.is_in(again.select("pixels"))


def test_atari_frames_become_grey_images_of_84_by_84():
    pytest.importorskip("ale_py")
    env = TransformedEnv(make_env("gym:ALE/Pong-v5"), Compose(ToTensorImage(), GrayScale(), Resize(84)))

    data = env.rollout(3)

    assert env.no_row_writer_reason is None
    assert data["next", "pixels"].shape == (3, 1, 84, 84)
    assert env.observation_spec["pixels"].is_in(data["next", "pixels"])


@pytest.mark.parametrize("transform", [Resize(4), Crop(4), CenterCrop(4), ToTensorImage(), GrayScale()])
@pytest.mark.parametrize("shape", [(3,), ()])
def test_an_entry_that_is_no_image_is_named(transform, shape):
    with pytest.raises(SpecError, match=r"found the shape .* This is the observation 'pixels'"):
        behind(transform.clone(), Bounded(0, 255, shape, dtype=torch.uint8))
