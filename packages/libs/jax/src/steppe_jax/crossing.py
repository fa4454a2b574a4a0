"""Tensors of torch as arrays of JAX and back, over memory that both look at where that is possible."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
import torch
from torch.utils.dlpack import from_dlpack

__all__ = ["to_argument", "to_data", "to_jax", "to_torch", "torch_device", "torch_dtype"]

#: Bytes up to which a copy on the CPU costs less than handing an array over.
_SMALL = 64 * 1024


@functools.cache
def _cpu_alone() -> bool:
    return all(device.platform == "cpu" for device in jax.devices())


def torch_device(device: Any = None) -> torch.device:
    """The device of torch on which data of a JAX device lies: that of a GPU where torch can use it, or the CPU.

    Args:
        device: a device of JAX; the one that it computes on by default.
    """
    chosen = jax.devices()[0] if device is None else device
    if chosen.platform in ("gpu", "cuda", "rocm") and torch.cuda.is_available():
        return torch.device("cuda", chosen.id)
    return torch.device("cpu")


def torch_dtype(dtype: Any) -> torch.dtype:
    """The dtype of torch that a dtype of JAX or numpy is; unsigned ones stay unsigned.

    Raises:
        TypeError: torch has none.
    """
    found = getattr(torch, np.dtype(dtype).name, None)
    if not isinstance(found, torch.dtype):
        raise TypeError(f"torch has no dtype for {dtype}.")
    return found


def to_torch(array: Any, device: torch.device | None = None) -> torch.Tensor:
    """An array of JAX as a tensor of the same memory, handed over by dlpack.

    JAX takes its arrays for constant: write into the tensor only if nobody uses the array any more.

    Args:
        array: has been computed (``jax.block_until_ready``), or is waited for.
        device: where the tensor is wanted; copied there, if it lies elsewhere.
    """
    if _cpu_alone() or torch_device(next(iter(array.devices()))).type == "cuda":
        tensor = from_dlpack(array.__dlpack__())
    else:
        tensor = torch.from_numpy(np.array(array))
    return tensor if device is None or tensor.device == device else tensor.to(device)


def to_data(array: Any, device: torch.device | None = None) -> torch.Tensor:
    """A computed array as a tensor of data: like :func:`to_torch`, but for small ones, whose copy costs less.

    Args:
        array: nobody else may use it.
        device: where the tensor is wanted.
    """
    if not _cpu_alone() or array.nbytes > _SMALL:
        return to_torch(array, device)
    tensor = torch.from_numpy(np.array(array))
    return tensor if device is None or device.type == "cpu" else tensor.to(device)


def to_jax(tensor: torch.Tensor) -> Any:
    """A tensor as an array of JAX, of the same memory where its layout allows it, handed over by dlpack.

    Do not write into the tensor while the array is in use.
    """
    tensor = tensor.detach()
    return jax.dlpack.from_dlpack(tensor if tensor.is_contiguous() else tensor.contiguous())


def to_argument(tensor: torch.Tensor) -> Any:
    """A tensor as an argument of a compiled function that is waited for.

    On the CPU this is a numpy view, which such functions take at a tenth of what dlpack costs there.
    """
    if tensor.device.type == "cpu" and jax.default_backend() == "cpu":
        return tensor.detach().numpy()
    if tensor.device != torch_device():
        tensor = tensor.to(torch_device())
    return to_jax(tensor) if tensor.device.type != "cpu" else tensor.detach().numpy()
