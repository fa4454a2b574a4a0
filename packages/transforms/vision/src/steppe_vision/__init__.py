"""Transforms of images for steppe, written with torch."""

from __future__ import annotations

from steppe_vision.crop import CenterCrop, Crop
from steppe_vision.gray_scale import GrayScale
from steppe_vision.image import ImageTransform
from steppe_vision.resize import Resize
from steppe_vision.to_tensor_image import ToTensorImage

__all__ = ["CenterCrop", "Crop", "GrayScale", "ImageTransform", "Resize", "ToTensorImage"]
