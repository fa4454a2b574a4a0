"""Conversion of torch tensors to JAX arrays and back."""

from __future__ import annotations

import os

import pytest
import torch

pytest.importorskip("jax")

import jax.numpy as jnp
import numpy as np

from steppe_jax import leaf_paths, prepare_worker, to_argument, to_jax, to_torch, torch_dtype

DTYPES = ["bool", "uint8", "uint16", "uint32", "int8", "int16", "int32", "float16", "float32", "bfloat16"]


@pytest.mark.parametrize("name", DTYPES)
def test_values_and_dtypes_come_back(name: str) -> None:
    array = (jnp.arange(64).reshape(8, 8) % 2).astype(name)

    tensor = to_torch(array)

    assert tensor.dtype is torch_dtype(array.dtype)
    np.testing.assert_array_equal(np.asarray(to_jax(tensor)), np.asarray(array))


def test_the_memory_is_the_same() -> None:
    array = jnp.arange(64.0)
    tensor = to_torch(array)

    assert tensor.data_ptr() == array.unsafe_buffer_pointer()
    assert to_jax(tensor).unsafe_buffer_pointer() == tensor.data_ptr()
    assert to_argument(tensor).__array_interface__["data"][0] == tensor.data_ptr()


def test_tensors_of_another_layout_are_copied() -> None:
    tensor = torch.arange(12.0).reshape(3, 4).t()

    np.testing.assert_array_equal(np.asarray(to_jax(tensor)), tensor.numpy())


def test_a_dtype_that_torch_lacks_is_named() -> None:
    with pytest.raises(TypeError, match="float8_e3m4"):
        torch_dtype(jnp.float8_e3m4)


def test_leaves_are_called_as_in_the_library() -> None:
    assert leaf_paths({"a": [1, {"b": 2}], "c": 3}) == [("a", "0"), ("a", "1", "b"), ("c",)]


def test_a_worker_computes_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=x")
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

    prepare_worker()
    prepare_worker()

    assert os.environ["XLA_FLAGS"].count("xla_cpu_multi_thread_eigen=false") == 1
    assert os.environ["XLA_FLAGS"].startswith("--xla_dump_to=x")
