"""Storage: one memory, seen by numpy, by torch, and by another process."""

from __future__ import annotations

import gc
import multiprocessing
import os

import numpy as np
import pytest
import torch

from steppe.errors import NotSupported, SpecError
from steppe.specs import Bounded, Composite, OneHot, Unbounded
from steppe.storage import Storage
from tests.limits import CHILD

SPEC = Composite(
    {
        "observation": Unbounded(shape=(3,), dtype=torch.float64),
        "pixels": Bounded(0, 255, shape=(2, 2), dtype=torch.uint8),
        "action": OneHot(4),
        ("agents", "reward"): Unbounded(shape=(1,)),
        "scalar": Unbounded(shape=()),
    }
)


KINDS = ["plain", "shared"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_storage_holds_zeros_in_the_specs_shapes(kind: str) -> None:
    storage = Storage(SPEC, (5, 2), kind=kind)

    assert storage.tensors["observation"].shape == (5, 2, 3)
    assert storage.arrays["pixels"].dtype == np.uint8
    assert storage.tensors["agents", "reward"].shape == (5, 2, 1)
    assert not any(tensor.any() for tensor in storage.tensors.values())


def test_entries_written_first_use_uninitialized_memory() -> None:
    shape = (1 << 20,)
    for _ in range(2):
        storage = Storage(Composite(first=Unbounded(shape), others=Unbounded(shape)), (2,), unset=["first"])
        before = storage.arrays["first"].ctypes.data
        assert not storage.arrays["others"].any()
        storage.arrays["first"][...] = 7
        storage.arrays["others"][...] = 7
        del storage
    # The memory of the first storage, which nobody holds any more.
    again = Storage(Composite(first=Unbounded(shape)), (2,), unset=["first"])
    assert again.arrays["first"].ctypes.data == before
    assert again.tensors["first"][0, 0] == 7


@pytest.mark.parametrize("kind", KINDS)
def test_numpy_and_torch_see_the_same_memory(kind: str) -> None:
    storage = Storage(SPEC, (4,), kind=kind)

    storage.arrays["observation"][2] = 7
    storage.arrays["scalar"][2] = 3
    storage.tensors["pixels"][1] = 9

    assert storage.tensors["observation"][2].tolist() == [7, 7, 7]
    assert storage.td["scalar"].tolist() == [0, 0, 3, 0]
    assert storage.arrays["pixels"][1].tolist() == [[9, 9], [9, 9]]


def test_the_tensordict_view_nests_and_writes_through() -> None:
    storage = Storage(SPEC, (4,))

    storage.td["agents"]["reward"][3] = 2.0

    assert storage.td.batch_size == (4,)
    assert storage.arrays["agents", "reward"][3, 0] == 2.0


def test_a_dtype_that_numpy_lacks_is_seen_by_torch_alone() -> None:
    spec = Composite(x=Unbounded(shape=(3,), dtype=torch.bfloat16))

    storage = Storage(spec, (2,), kind="shared")
    storage.tensors["x"][1] = 1.5

    assert "x" not in storage.arrays
    assert storage.td["x"][1].tolist() == [1.5] * 3


def _write_one(fd: int) -> None:
    storage = Storage(SPEC, (3,), kind="shared", fd=os.dup(fd))
    storage.arrays["observation"][1] = 42


@pytest.mark.skipif(not hasattr(os, "fork"), reason="descriptors are inherited by fork here")
def test_another_process_writes_what_this_one_reads() -> None:
    storage = Storage(SPEC, (3,), kind="shared")
    child = multiprocessing.get_context("fork").Process(target=_write_one, args=(storage.fd,))

    child.start()
    child.join(CHILD)

    assert child.exitcode == 0
    assert storage.tensors["observation"][1].tolist() == [42, 42, 42]


def test_memory_outlives_its_storage_while_a_view_lives() -> None:
    storage = Storage(SPEC, (3,), kind="shared")
    fd = storage.fd
    tensor = storage.tensors["observation"]
    tensor += 5

    del storage
    gc.collect()

    assert tensor.sum() == 45
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_many_storages_leave_no_descriptor() -> None:
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0

    for _ in range(50):
        Storage(SPEC, (3,), kind="shared")
    gc.collect()

    after = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    assert after <= before


def test_only_shared_storage_has_a_descriptor() -> None:
    with pytest.raises(NotSupported, match="plain storage has no descriptor"):
        _ = Storage(SPEC, (2,)).fd


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(SpecError, match="no storage of kind 'disk'"):
        Storage(SPEC, (2,), kind="disk")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_storage_without_gpu_is_an_error() -> None:
    with pytest.raises(NotSupported, match="torch sees none"):
        Storage(SPEC, (2,), kind="cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_storage_holds_its_rows() -> None:
    storage = Storage(SPEC, (2,), kind="cuda")

    assert storage.tensors["observation"].is_cuda
    assert not storage.arrays
