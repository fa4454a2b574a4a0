"""RandomCropTensorDict: a part of stored trajectories, at a random place."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase

from steppe.errors import SpecError
from steppe.transforms import as_key

from .stored_data import StoredDataTransform
from .windows import swapped

__all__ = ["RandomCropTensorDict"]


class RandomCropTensorDict(StoredDataTransform):
    """Crop each row of stored data to ``sub_seq_len`` successive steps, at a random place.

    Each place has the same probability. The places are drawn from torch's generator.

    Args:
        sub_seq_len: number of steps.
        sample_dim: the dimension of time; negative, so that it means the same for any batch size.
        mask_key: mask ``[*B, T]`` of the steps that are no padding, which begins with True. Only these are taken. If
            the data lacks it, all steps are.

    Raises:
        SpecError: ``sub_seq_len`` is not a whole number >= 1, or the data, or a row by its mask, has fewer steps.

    Examples:
        >>> import torch
        >>> from tensordict import TensorDict
        >>> from steppe.transforms import RandomCropTensorDict
        >>> RandomCropTensorDict(3)(TensorDict({"number": torch.arange(20).reshape(2, 10)}, [2, 10])).batch_size
        torch.Size([2, 3])
    """

    def __init__(self, sub_seq_len: int, sample_dim: int = -1, mask_key: NestedKey | None = None) -> None:
        if isinstance(sub_seq_len, bool) or not isinstance(sub_seq_len, int) or sub_seq_len < 1:
            raise SpecError(f"RandomCropTensorDict: sub_seq_len must be a whole number >= 1, found {sub_seq_len!r}.")
        super().__init__()
        self.sub_seq_len, self.sample_dim = sub_seq_len, sample_dim
        self.mask_key = None if mask_key is None else as_key(mask_key)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Return a part of the data.

        Args:
            tensordict: data with a dimension of time, such as ``[*B, T]``.

        Returns:
            The same with ``sub_seq_len`` steps, a copy.
        """
        dims, length = tensordict.batch_dims, self.sub_seq_len
        if not -dims <= self.sample_dim < dims:
            raise SpecError(
                f"RandomCropTensorDict: sample_dim={self.sample_dim} is none of the {dims} batch dimensions of the "
                "data. Pass data [*B, T]; slices of a buffer get this shape by a transform before this one: "
                "lambda data: data.reshape(-1, slice_len)."
            )
        data = swapped(tensordict, self.sample_dim)
        size, steps = data.batch_size[:-1], data.batch_size[-1]
        mask = None if self.mask_key is None else tensordict.get(self.mask_key, None)
        device = tensordict.device or torch.device("cpu")
        n_steps = torch.full(size, steps, device=device)
        if mask is not None:
            n_steps = mask.reshape(tensordict.batch_size).transpose(self.sample_dim, -1).sum(-1).to(device)
        if n_steps.numel() and int(n_steps.min()) < length:
            raise SpecError(
                f"RandomCropTensorDict(sub_seq_len={length}): a row of the data has {int(n_steps.min())} steps. Crop "
                "to fewer, or sample longer slices."
            )
        # A float64 below 1, so that the product never rounds up to the number of places.
        places = (torch.rand(size, dtype=torch.float64, device=device) * (n_steps - length + 1)).long()
        index = places.unsqueeze(-1) + torch.arange(length, device=device)
        index = index + torch.arange(size.numel(), device=device).mul(steps).reshape(*size, 1)
        return swapped(data.reshape(-1)[index.reshape(-1)].reshape(*size, length), self.sample_dim)

    def _repr_keys(self) -> Any:
        return ("sub_seq_len", "sample_dim", "mask_key")
