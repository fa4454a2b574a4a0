"""Pickle data with the memory of its tensors beside the pickle, so that an engine can carry it without a copy."""

from __future__ import annotations

import io
import pickle
import warnings
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
import torch

__all__ = ["Packed", "dumps", "loads"]


class Packed(NamedTuple):
    """A pickled object, and the memory of its tensors and arrays.

    >>> import torch
    >>> from steppe_remote import dumps
    >>> packed = dumps({"reward": torch.zeros(1000)})
    >>> len(packed.pickle) < 1000, [buffer.nbytes for buffer in packed.buffers]
    (True, [4000])

    Attributes:
        pickle: the pickle.
        buffers: one-dimensional arrays of bytes, which :func:`loads` uses without a copy.
    """

    pickle: bytes
    buffers: list[np.ndarray[Any, Any]]


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is torch.Tensor and obj.device.type == "cpu" and obj.layout is torch.strided:
            plain = obj.detach().resolve_conj().resolve_neg().contiguous()
            if plain.dtype is torch.bfloat16 or plain.is_quantized:
                return super().reducer_override(obj)
            return _tensor, (plain.numpy(), obj.requires_grad)
        return super().reducer_override(obj)


def _tensor(array: np.ndarray[Any, Any], requires_grad: bool) -> torch.Tensor:
    with warnings.catch_warnings():
        # The memory belongs to this tensor alone: nothing else writes it, and its reader may.
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        tensor = torch.from_numpy(array)
    return tensor.requires_grad_() if requires_grad else tensor


def dumps(value: Any) -> Packed:
    """Pickle a value; the memory of CPU tensors and numpy arrays is not copied.

    >>> import torch
    >>> from steppe_remote import dumps, loads
    >>> reward = torch.zeros(3)
    >>> packed = dumps([reward, "text", lambda x: x + 1])
    >>> received, text, function = loads(packed)
    >>> reward[0] = 5.0  # the memory is the same
    >>> received, text, function(1)
    (tensor([5., 0., 0.]), 'text', 2)

    Args:
        value: anything that cloudpickle takes, with tensors at any depth.
    """
    buffers: list[pickle.PickleBuffer] = []
    stream = io.BytesIO()
    _Pickler(stream, protocol=pickle.HIGHEST_PROTOCOL, buffer_callback=buffers.append).dump(value)
    return Packed(stream.getvalue(), [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers])


def loads(packed: Packed) -> Any:
    """Return the value that was packed; its tensors are views of the buffers.

    >>> import torch
    >>> from steppe_remote import dumps, loads
    >>> from tensordict import TensorDict
    >>> batch = TensorDict(next=TensorDict(reward=torch.ones(5, 1), batch_size=[5]), batch_size=[5], names=["time"])
    >>> received = loads(dumps(batch))
    >>> received.names, received["next", "reward"].shape
    (['time'], torch.Size([5, 1]))
    """
    return pickle.loads(packed[0], buffers=packed[1])
