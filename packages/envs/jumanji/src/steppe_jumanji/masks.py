"""MaskedChoice: random actions that an action mask allows."""

from __future__ import annotations

from collections.abc import Sequence

import torch

__all__ = ["MaskedChoice"]


class MaskedChoice:
    """Draw random discrete actions that an action mask allows.

    Args:
        sizes: number of values of each part of an action; ``[n]`` for an action that is a single number.
        single: whether an action is a single number instead of a row of numbers.
        mask_shape: shape of the mask of one row: ``sizes`` for a mask of combinations, ``[parts, n]`` for one mask for
            each part.

    Raises:
        ValueError: ``mask_shape`` is neither of the two.
    """

    def __init__(self, sizes: Sequence[int], single: bool, mask_shape: Sequence[int]) -> None:
        self.sizes, self.single = list(sizes), single
        self.joint = list(mask_shape) == self.sizes
        if not self.joint and (len(mask_shape) != 2 or mask_shape[0] != len(self.sizes)):
            raise ValueError(
                f"The action mask must have the shape {tuple(self.sizes)} or ({len(self.sizes)}, n), found "
                f"{tuple(mask_shape)}."
            )

    def draw(self, mask: torch.Tensor, generator: torch.Generator | None) -> torch.Tensor:
        """Draw actions ``[*lead]`` or ``[*lead, parts]``, int64, for masks ``[*lead, *mask_shape]`` bool.

        If a mask allows nothing, as after the end of an episode, any action may be drawn.
        """
        dims = len(self.sizes) if self.joint else 2
        lead = mask.shape[: mask.ndim - dims]
        flat = mask.reshape(-1, mask.shape[-dims:].numel() if self.joint else mask.shape[-1]).cpu()
        weights = (flat | ~flat.any(-1, keepdim=True)).float()
        drawn = torch.multinomial(weights, 1, generator=generator)[:, 0]
        if self.joint:
            parts = torch.unravel_index(drawn, self.sizes)
            action = parts[0] if self.single else torch.stack(parts, -1)
            return action.reshape((*lead, *action.shape[1:])).to(mask.device)
        # A mask row may have more columns than the part has values.
        limits = torch.tensor(self.sizes, device="cpu") - 1
        return torch.minimum(drawn.reshape((*lead, len(self.sizes))), limits).to(mask.device)
