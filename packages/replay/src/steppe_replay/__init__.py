"""Replay buffers: keep the data of collectors, and sample it for training."""

from __future__ import annotations

from steppe_replay.buffer_writer import BufferWriter
from steppe_replay.buffers import ReplayBuffer
from steppe_replay.datasets import DatasetFormat, DatasetNotFound, dataset_format, load_dataset
from steppe_replay.lazy_storages import LazyMemmapStorage, LazyTensorStorage
from steppe_replay.prioritized import PrioritizedSampler
from steppe_replay.priority_tree import PriorityTree
from steppe_replay.samplers import RandomSampler, Sampler, SamplerWithoutReplacement
from steppe_replay.slices import PrioritizedSliceSampler, SliceSampler, SliceSamplerWithoutReplacement
from steppe_replay.storages import ListStorage, Storage
from steppe_replay.tensor_storage import TensorStorage
from steppe_replay.tensordict_buffers import (
    PrioritizedReplayBuffer,
    TensorDictPrioritizedReplayBuffer,
    TensorDictReplayBuffer,
)
from steppe_replay.trajectory_reader import iter_trajectories
from steppe_replay.writers import (
    ImmutableDatasetWriter,
    RoundRobinWriter,
    TensorDictMaxValueWriter,
    TensorDictRoundRobinWriter,
    Writer,
)

__all__ = [
    "BufferWriter",
    "DatasetFormat",
    "DatasetNotFound",
    "ImmutableDatasetWriter",
    "LazyMemmapStorage",
    "LazyTensorStorage",
    "ListStorage",
    "PrioritizedReplayBuffer",
    "PrioritizedSampler",
    "PrioritizedSliceSampler",
    "PriorityTree",
    "RandomSampler",
    "ReplayBuffer",
    "RoundRobinWriter",
    "Sampler",
    "SamplerWithoutReplacement",
    "SliceSampler",
    "SliceSamplerWithoutReplacement",
    "Storage",
    "TensorDictMaxValueWriter",
    "TensorDictPrioritizedReplayBuffer",
    "TensorDictReplayBuffer",
    "TensorDictRoundRobinWriter",
    "TensorStorage",
    "Writer",
    "dataset_format",
    "iter_trajectories",
    "load_dataset",
]
