"""Transforms over time for steppe: frame stacks, frame skip, ends of episodes."""

from __future__ import annotations

from .auto_reset import AutoResetTransform
from .burn_in import BurnInTransform
from .cat_frames import CatFrames
from .conditional_skip import ConditionalSkip
from .frame_skip import FrameSkipTransform
from .gsde import gSDENoise
from .max_pool import TimeMaxPool
from .multi_step import MultiStepTransform
from .next_state import NextStateReconstructor
from .noop_reset import NoopResetEnv
from .primer import TensorDictPrimer
from .random_crop import RandomCropTensorDict
from .random_truncation import RandomTruncationTransform
from .terminate import TerminateTransform
from .traj_counter import TrajCounter

__all__ = [
    "AutoResetTransform",
    "BurnInTransform",
    "CatFrames",
    "ConditionalSkip",
    "FrameSkipTransform",
    "MultiStepTransform",
    "NextStateReconstructor",
    "NoopResetEnv",
    "RandomCropTensorDict",
    "RandomTruncationTransform",
    "TensorDictPrimer",
    "TerminateTransform",
    "TimeMaxPool",
    "TrajCounter",
    "gSDENoise",
]
