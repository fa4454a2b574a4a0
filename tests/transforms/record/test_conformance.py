"""The kit for transforms, on each of the family."""

from __future__ import annotations

import tempfile
from typing import Any, ClassVar

import numpy as np
import torch

from steppe.specs import Bounded, Unbounded
from steppe.transforms import PixelRenderTransform, TensorDictRecorder, VideoRecorder
from steppe_testing import ArrayDataEnv, DataEnv, TransformConformance

FOLDER = tempfile.TemporaryDirectory()
PIXELS = Bounded(0, 255, (6, 8, 3), dtype=torch.uint8)


class TestVideoRecorder(TransformConformance):
    input_spec: ClassVar[dict[Any, Any]] = {"pixels": PIXELS}
    expected: ClassVar[dict[Any, tuple[int, ...]]] = {"pixels": (6, 8, 3), "again": (6, 8, 3)}

    def make_transform(self):
        return VideoRecorder(None, "video", skip=2, out_keys=["again"])


class TestTensorDictRecorder(TransformConformance):
    input_spec: ClassVar[dict[Any, Any]] = {"observation": Unbounded((3,))}
    expected: ClassVar[dict[Any, tuple[int, ...]]] = {"observation": (3,)}

    def make_transform(self):
        # Those inside a batch write their files when it is closed.
        return TensorDictRecorder(f"{FOLDER.name}/data", skip_reset=False, skip=1, overwrite=True)


class Renders:
    """Renders the number of steps of the episode, in grey."""

    def render(self) -> np.ndarray:
        return np.full((6, 8, 3), self.count, np.uint8)  # type: ignore[attr-defined]


class RenderedEnv(Renders, DataEnv):
    pass


class RenderedRows(Renders, ArrayDataEnv):
    pass


class TestPixelRenderTransform(TransformConformance):
    input_spec: ClassVar[dict[Any, Any]] = {"observation": Unbounded((3,))}
    expected: ClassVar[dict[Any, tuple[int, ...]]] = {"pixels": (6, 8, 3)}
    works_alone = False  # there is nothing to render

    def make_env(self):
        return RenderedEnv(dict(self.input_spec))

    def make_row_env(self):
        return RenderedRows(dict(self.input_spec))

    def make_transform(self):
        return PixelRenderTransform()
