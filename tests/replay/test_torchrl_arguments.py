"""Classes take the arguments of TorchRL 0.14.1: without effect, with a warning, or refused with what to do instead."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import steppe_replay
from steppe import arguments
from steppe.errors import IgnoredArgumentWarning, NotSupported
from steppe_replay import LazyMemmapStorage, LazyTensorStorage, ListStorage, ReplayBuffer, RoundRobinWriter

BUFFER: dict[str, Any] = {
    **dict.fromkeys(("storage", "sampler", "sample_unit", "writer", "collate_fn", "prefetch", "transform")),
    **dict.fromkeys(("transform_factory", "batch_size", "dim_extend", "checkpointer", "generator", "delayed_init")),
    **dict.fromkeys(("consume_after_n_samples", "service_backend_options", "transport_options")),
    **{"pin_memory": False, "shared": False, "compilable": False, "service_backend": "direct", "transport": "auto"},
}
PRIORITIES: dict[str, Any] = {"alpha": 0.6, "beta": 0.4, "eps": 1e-8, "reduction": "max"}
PRIORITY_BUFFER: dict[str, Any] = {
    **{key: BUFFER[key] for key in ("storage", "sample_unit", "collate_fn", "prefetch", "transform", "batch_size")},
    **{"pin_memory": False, "dim_extend": None, "sampler_device": None, "sync": True, "transport": "auto"},
}
STORAGE: dict[str, Any] = {"max_size": 10, "device": "cpu", "ndim": 1, "compilable": False, "shared_init": False}
SAMPLER: dict[str, Any] = {"max_capacity": 10, **PRIORITIES, "dtype": torch.float32, "device": None}
SAMPLER["max_priority_within_buffer"] = False
SLICES: dict[str, Any] = {
    **dict.fromkeys(("num_slices", "end_key", "end_keys", "traj_key", "ends", "trajectories", "init_key", "step_key")),
    **{"slice_len": 4, "cache_values": False, "truncated_key": ("next", "truncated"), "strict_length": True},
    **{"compile": False, "span": False, "use_gpu": False, "pad_output": False, "fragmented": False},
}
WRITER: dict[str, Any] = {"compilable": False, "track_generations": False}
#: The arguments of each class, with TorchRL's defaults where it has some.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "ReplayBuffer": BUFFER,
    "TensorDictReplayBuffer": {**BUFFER, "priority_key": "td_error"},
    "PrioritizedReplayBuffer": {**PRIORITIES, **PRIORITY_BUFFER, "dtype": torch.float32},
    "TensorDictPrioritizedReplayBuffer": {
        **PRIORITIES,
        **PRIORITY_BUFFER,
        **{"priority_key": "td_error", "generator": None, "shared": False, "compilable": False},
        "transport_options": None,
    },
    "ListStorage": {"max_size": None, "compilable": False, "device": None},
    "TensorStorage": {"storage": None, "max_size": 10, "device": "cpu", "ndim": 1, "compilable": False},
    "LazyTensorStorage": {**STORAGE, "consolidated": False, "cleanup_memmap": True},
    "LazyMemmapStorage": {**STORAGE, "scratch_dir": None, "existsok": False, "auto_cleanup": None},
    "RandomSampler": {},
    "SamplerWithoutReplacement": {"drop_last": False, "shuffle": True},
    "PrioritizedSampler": SAMPLER,
    "SliceSampler": SLICES,
    "SliceSamplerWithoutReplacement": {**SLICES, "drop_last": False, "shuffle": True},
    "PrioritizedSliceSampler": {**SAMPLER, **SLICES},
    "RoundRobinWriter": WRITER,
    "TensorDictRoundRobinWriter": WRITER,
    "TensorDictMaxValueWriter": {"rank_key": None, "reduction": "sum", "compilable": False},
    "ImmutableDatasetWriter": {"compilable": False},
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_class_takes_the_values_that_torchrl_has(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", IgnoredArgumentWarning)
        getattr(steppe_replay, name)(**ARGUMENTS[name])


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: ReplayBuffer(compilable=True), "compilable"),
        (lambda: ReplayBuffer(checkpointer=object()), "checkpointer"),
        (lambda: LazyTensorStorage(10, consolidated=True), "consolidated"),
        (lambda: LazyMemmapStorage(10, auto_cleanup=True), "auto_cleanup"),
        (lambda: RoundRobinWriter(True), "compilable"),
        (lambda: steppe_replay.PrioritizedSampler(10, 0.6, 0.4, device="cuda"), "device"),
        (lambda: steppe_replay.SliceSampler(slice_len=2, use_gpu=True), "use_gpu"),
    ],
)
def test_an_argument_without_effect_warns(make: Any, argument: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arguments, "_warned", set())
    with pytest.warns(IgnoredArgumentWarning, match=f"the argument {argument} has no effect: "):
        make()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: ReplayBuffer(sample_unit="steps"), r"sample_unit='steps' does not exist here: .*SliceSampler"),
        (lambda: ReplayBuffer(consume_after_n_samples=1), "SamplerWithoutReplacement"),
        (lambda: ReplayBuffer(service_backend="ray"), "RayReplayBuffer of steppe-ray"),
        (lambda: ReplayBuffer(transport="distributed"), "shared=True"),
        (lambda: LazyTensorStorage(10, shared_init=True), "pass shared=True"),
        (lambda: RoundRobinWriter(track_generations=True), "use a larger storage"),
        (lambda: steppe_replay.SliceSampler(slice_len=2, pad_output=True), "split_trajectories"),
    ],
)
def test_an_argument_of_a_missing_feature_says_what_to_do(make: Any, says: str) -> None:
    with pytest.raises(NotSupported, match=says):
        make()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: LazyTensorStorage(10, shard=True),
            "LazyTensorStorage has no argument 'shard': did you mean 'shared'?",
        ),
        (lambda: LazyMemmapStorage(10, scratchdir="a"), "did you mean 'scratch_dir'?"),
        (lambda: ReplayBuffer(batchsize=3), "did you mean 'batch_size'?"),
        (lambda: steppe_replay.SliceSampler(slice_length=3), "did you mean 'slice_len'?"),
        (lambda: steppe_replay.TensorDictMaxValueWriter(rank="a"), "did you mean 'rank_key'?"),
    ],
)
def test_an_unknown_argument_names_the_nearest(make: Any, says: str) -> None:
    with pytest.raises(TypeError) as raised:
        make()
    assert says in str(raised.value)


def test_a_list_moves_its_items_to_its_device() -> None:
    buffer = ReplayBuffer(storage=ListStorage(4, device="meta"), collate_fn=list, batch_size=2)
    buffer.extend([torch.ones(2), torch.zeros(2)])
    buffer.add({"a": torch.ones(1), "name": "text"})
    assert [each["a"].device.type if isinstance(each, dict) else each.device.type for each in buffer[:]] == ["meta"] * 3
