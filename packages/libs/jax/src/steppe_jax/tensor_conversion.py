"""Convert torch tensors to JAX arrays and back, without a copy if possible."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import torch
from torch.utils.dlpack import from_dlpack

__all__ = ["to_argument", "to_data", "to_jax", "to_torch", "torch_device", "torch_dtype"]

#: Up to this many bytes, copying on the CPU costs less than passing the array through dlpack.
_SMALL = 64 * 1024
#: XLA on a GPU refuses arrays that do not begin at a multiple of this many bytes.
_ALIGNED = 16


@functools.cache
def _only_cpu() -> bool:
    return all(device.platform == "cpu" for device in jax.devices())


def torch_device(device: jax.Device | None = None) -> torch.device:
    """Return the torch device of a JAX device.

    It is the GPU if torch can use it, otherwise the CPU.

    Args:
        device: a device of JAX. ``None``: the default device of JAX.
    """
    chosen = jax.devices()[0] if device is None else device
    if chosen.platform in ("gpu", "cuda", "rocm") and torch.cuda.is_available():
        return torch.device("cuda", chosen.id)
    return torch.device("cpu")


def torch_dtype(dtype: npt.DTypeLike) -> torch.dtype:
    """Return the torch dtype of a JAX or numpy dtype. Unsigned dtypes stay unsigned.

    >>> import jax.numpy as jnp
    >>> from steppe_jax import torch_dtype
    >>> torch_dtype(jnp.uint8), torch_dtype(jnp.float32)
    (torch.uint8, torch.float32)

    Raises:
        TypeError: torch has no such dtype.
    """
    result = getattr(torch, np.dtype(dtype).name, None)
    if not isinstance(result, torch.dtype):
        raise TypeError(f"torch has no dtype for {dtype}.")
    return result


def to_torch(array: jax.Array, device: torch.device | None = None) -> torch.Tensor:
    """Return a tensor that shares the memory of a JAX array, through dlpack.

    JAX assumes that its arrays never change: write into the tensor only if the array is no longer used.

    >>> import jax.numpy as jnp
    >>> from steppe_jax import to_torch
    >>> to_torch(jnp.arange(3))
    tensor([0, 1, 2], dtype=torch.int32)

    Args:
        array: the array. If it is not computed yet, this call waits for it.
        device: device of the tensor. If the array is on another device, the data is copied.
    """
    if _only_cpu() or torch_device(next(iter(array.devices()))).type == "cuda":
        tensor = from_dlpack(array.__dlpack__())
    else:
        tensor = torch.from_numpy(np.array(array))
    return tensor if device is None or tensor.device == device else tensor.to(device)


def to_data(array: jax.Array, device: torch.device | None = None) -> torch.Tensor:
    """Convert an array to a tensor.

    Small arrays are copied, because that costs less than dlpack.

    Args:
        array: a computed array that nothing else uses.
        device: device of the tensor.
    """
    if not _only_cpu() or array.nbytes > _SMALL:
        return to_torch(array, device)
    tensor = torch.from_numpy(np.array(array))
    return tensor if device is None or device.type == "cpu" else tensor.to(device)


def to_jax(tensor: torch.Tensor) -> jax.Array:
    """Return a JAX array that shares the memory of a tensor, through dlpack.

    It is a copy if the tensor is not contiguous, or is on a GPU at an address that XLA refuses, as a row of another
    tensor may be. Do not write into the tensor while the array is in use.

    >>> import torch
    >>> from steppe_jax import to_jax
    >>> to_jax(torch.ones(3)).sum()
    Array(3., dtype=float32)
    """
    tensor = tensor.detach().contiguous()
    refused = tensor.device.type != "cpu" and tensor.data_ptr() % _ALIGNED
    return jax.dlpack.from_dlpack(tensor.clone() if refused else tensor)


def to_argument(tensor: torch.Tensor) -> jax.Array | np.ndarray:
    """Convert a tensor to an argument of a compiled JAX function.

    On the CPU the result is a numpy view, at a tenth of the cost of dlpack. Do not write into the tensor before the
    result of the function is ready.

    >>> import jax
    >>> import torch
    >>> from steppe_jax import to_argument
    >>> double = jax.jit(lambda value: 2 * value)
    >>> double(to_argument(torch.ones(3))).tolist()
    [2.0, 2.0, 2.0]
    """
    if tensor.device.type == "cpu" and jax.default_backend() == "cpu":
        return tensor.detach().numpy()
    if tensor.device != torch_device():
        tensor = tensor.to(torch_device())
    if tensor.device.type == "cpu":
        return tensor.detach().numpy()
    # XLA replays functions as CUDA graphs, which accept no memory of another allocator in place of XLA's own.
    return jnp.copy(to_jax(tensor))
