"""Random actions that keep to an action mask."""

from __future__ import annotations

from collections.abc import Sequence

import torch

__all__ = ["MaskedChoice"]


class MaskedChoice:
    """Draws choices that an action mask allows.

    Args:
        sizes: how many values each part of an action has; ``[n]`` for an action that is a single number.
        single: whether an action is a single number, not a row of them.
        mask_shape: shape of the mask of one row: ``sizes``, where it says which combinations there are, or
            ``[parts, n]``, where it says so for each part.

    Raises:
        ValueError: the mask has another shape.
    """

    def __init__(self, sizes: Sequence[int], single: bool, mask_shape: Sequence[int]) -> None:
        self.sizes, self.single = list(sizes), single
        self.joint = list(mask_shape) == self.sizes
        if not self.joint and (len(mask_shape) != 2 or mask_shape[0] != len(self.sizes)):
            raise ValueError(f"A mask {tuple(mask_shape)} does not fit actions of {self.sizes} values.")

    def draw(self, mask: torch.Tensor, generator: torch.Generator | None) -> torch.Tensor:
        """Actions ``[*lead]``, or ``[*lead, parts]``, int64, for masks ``[*lead, *mask_shape]`` bool.

        Where nothing is allowed, after the end of an episode, anything is drawn.
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
        # A mask may be wider than the choices of some part.
        limits = torch.tensor(self.sizes, device="cpu") - 1
        return torch.minimum(drawn.reshape((*lead, len(self.sizes))), limits).to(mask.device)
