"""Draws of the fused actors: a sample and its log-probability, with other random numbers than torch's classes."""

from __future__ import annotations

import math

import torch

__all__ = ["categorical", "normal", "one_hot"]

_Tensor = torch.Tensor
_HALF_LOG = math.log(math.sqrt(2 * math.pi))


def categorical(scored: bool, logits: _Tensor) -> tuple[_Tensor, _Tensor | None] | None:
    """Draw categories ``[*B]`` int64 of ``logits`` ``[*B, n]``; the log-probability is ``[*B]``."""
    log_probs = logits.log_softmax(-1)
    # The first of n exponential clocks to ring is a draw from their rates.
    index = (log_probs - torch.empty_like(log_probs).exponential_().log_()).argmax(-1, keepdim=True)
    log_prob = log_probs.gather(-1, index).squeeze(-1)
    # One number tells of all that is wrong: NaN anywhere in a row makes all of its log-probabilities NaN.
    if math.isnan(float(log_prob.sum())):
        return None
    return index.squeeze(-1), log_prob if scored else None


def one_hot(scored: bool, logits: _Tensor) -> tuple[_Tensor, _Tensor | None] | None:
    """The same with one-hot categories ``[*B, n]`` of the dtype of ``logits``."""
    found = categorical(scored, logits)
    if found is None:
        return None
    index, log_prob = found
    return torch.zeros_like(logits).scatter_(-1, index.unsqueeze(-1), 1), log_prob


def normal(scored: bool, loc: _Tensor, scale: _Tensor) -> tuple[_Tensor, _Tensor | None] | None:
    """Draw vectors ``[*B, k]`` of independent normal numbers; the log-probability is ``[*B]``."""
    noise = torch.randn_like(loc)
    log_scale = scale.log()
    log_prob = noise.square().mul_(-0.5).sub_(log_scale).sum(-1).sub_(loc.shape[-1] * _HALF_LOG)
    if not math.isfinite(float(log_prob.sum() + loc.sum())):
        return None
    return torch.addcmul(loc, noise, scale), log_prob if scored else None
