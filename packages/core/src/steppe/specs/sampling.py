"""Draw random numbers between bounds, both included, in one vectorised call."""

from __future__ import annotations

import torch

from .dtypes import UNSIGNED

__all__ = ["floats", "integers", "normal"]

_LONG = torch.iinfo(torch.int64)


def normal(
    size: torch.Size, *, dtype: torch.dtype, generator: torch.Generator | None, device: torch.device
) -> torch.Tensor:
    """Draw standard normal floats or complex numbers."""
    wide = dtype if dtype.is_complex or dtype.itemsize >= 4 else torch.float32
    return torch.randn(size, dtype=wide, generator=generator, device=device).to(dtype)


def floats(
    low: torch.Tensor,
    high: torch.Tensor,
    size: torch.Size,
    *,
    dtype: torch.dtype,
    generator: torch.Generator | None,
    device: torch.device,
) -> torch.Tensor:
    """Draw floats in ``[low, high]``.

    The distribution is uniform between finite bounds. With one finite bound, its distance is the absolute value of a
    normal variable; without bounds, the distribution is normal. Arithmetic is in float32 or wider, and rounding cannot
    leave the bounds.
    """
    low, high = low.to(device), high.to(device)
    wide = dtype if dtype.itemsize >= 4 else torch.float32
    if low.ndim == 0 and high.ndim == 0:
        first, last = low.item(), high.item()
        # For larger spans uniform_ raises an error, because the difference is not a finite float.
        if last - first <= torch.finfo(wide).max / 2:
            drawn = torch.empty(size, dtype=wide, device=device).uniform_(first, last, generator=generator)
            return drawn.to(dtype).clamp_(first, last)
    least, most = low.to(wide), high.to(wide)
    has_low, has_high = ~least.isinf(), ~most.isinf()
    bounded = has_low & has_high
    if bool(bounded.all()):
        u = torch.rand(size, dtype=wide, generator=generator, device=device)
        # This form does not compute the span, which may exceed the largest float.
        return torch.clamp(((1 - u) * least + u * most).to(dtype), low, high)
    z = torch.randn(size, dtype=wide, generator=generator, device=device)
    out = torch.where(has_low, least + z.abs(), torch.where(has_high, most - z.abs(), z))
    if bool(bounded.any()):
        u = torch.rand(size, dtype=wide, generator=generator, device=device)
        out = torch.where(bounded, (1 - u) * least + u * most, out)
    largest = torch.finfo(dtype).max
    return torch.clamp(out.to(dtype).clamp(-largest, largest), low, high)


def integers(
    low: torch.Tensor,
    high: torch.Tensor,
    size: torch.Size,
    *,
    dtype: torch.dtype,
    generator: torch.Generator | None,
    device: torch.device,
) -> torch.Tensor:
    """Draw integers in ``[low, high]``. Spans up to the full range of int64 do not overflow."""
    if low.ndim == 0 and high.ndim == 0:
        first, last = int(low.item()), int(high.item())
        out = torch.empty(size, dtype=torch.int64 if dtype in UNSIGNED else dtype, device=device)
        if first == last:
            out.fill_(first)
        elif last == _LONG.max:
            out.random_(first, None, generator=generator)
        else:
            out.random_(first, last + 1, generator=generator)
        return out.to(dtype)
    low, high = low.to(device, torch.int64), high.to(device, torch.int64)
    span = high - low + 1  # Wraps around to zero or less where it is 2**63 or more.
    drawn = torch.empty(size, dtype=torch.int64, device=device)
    if bool((span > 0).all()):
        offset = drawn.random_(0, None, generator=generator) % span
    else:
        drawn.random_(_LONG.min, None, generator=generator)
        small = (drawn & _LONG.max) % span.clamp(min=1)
        # As an unsigned number, a large span is more than half of all numbers, so numbers outside are drawn again. The
        # span 2**64 wraps to 0, and all numbers are inside.
        while not bool((inside := (span >= 0) | ((drawn ^ _LONG.min) < (span ^ _LONG.min))).all()):
            again = torch.empty_like(drawn).random_(_LONG.min, None, generator=generator)
            drawn = torch.where(inside, drawn, again)
        offset = torch.where(span > 0, small, drawn)
    return (low + offset).to(dtype)
