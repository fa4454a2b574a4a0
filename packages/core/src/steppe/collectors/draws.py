"""Draws from distributions in few operations: a sample and its log-probability at once.

Each takes whether the log-probability is wanted, and the parameters by name. It returns the sample and its
log-probability (or None where that is not wanted), or None altogether where the parameters are none of this
distribution: torch's class then says what is wrong with them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import distributions

__all__ = ["EXACT", "Draw", "categorical", "normal", "one_hot"]

_Tensor = torch.Tensor
Draw = Callable[..., "tuple[_Tensor, _Tensor | None] | None"]

_HALF_LOG = math.log(math.sqrt(2 * math.pi))


def _exact_categorical(scored: bool, logits: _Tensor) -> tuple[_Tensor, _Tensor | None] | None:
    normalized = logits - logits.logsumexp(-1, keepdim=True)
    return _choose(scored, normalized.softmax(-1), normalized)


def _exact_of_probs(scored: bool, probs: _Tensor) -> tuple[_Tensor, _Tensor | None] | None:
    probs = probs / probs.sum(-1, keepdim=True)
    eps = torch.finfo(probs.dtype).eps
    return _choose(scored, probs, probs.clamp(min=eps, max=1 - eps).log() if scored else probs)


def _choose(scored: bool, probs: _Tensor, normalized: _Tensor) -> tuple[_Tensor, _Tensor | None] | None:
    try:
        drawn = torch.multinomial(probs.reshape(-1, probs.shape[-1]), 1, True)
    except RuntimeError:  # these are no probabilities: the distribution says so
        return None
    sample = drawn.reshape(probs.shape[:-1])
    return sample, normalized.gather(-1, sample.unsqueeze(-1)).squeeze(-1) if scored else None


def _exact_one_hot(scored: bool, logits: _Tensor) -> tuple[_Tensor, _Tensor | None] | None:
    found = _exact_categorical(scored, logits)
    if found is None:
        return None
    index, log_prob = found
    return torch.nn.functional.one_hot(index, logits.shape[-1]).to(logits), log_prob


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


def _exact_normal(scored: bool, loc: _Tensor, scale: _Tensor) -> tuple[_Tensor, _Tensor | None] | None:
    if loc.shape != scale.shape or not bool(((scale > 0) & (loc == loc)).all()):
        return None
    sample = loc + torch.empty(loc.shape, dtype=loc.dtype, device=loc.device).normal_() * scale
    if not scored:
        return sample, None
    return sample, -((sample - loc) ** 2) / (2 * scale**2) - scale.log() - _HALF_LOG


#: By class and arguments: draws of the numbers that torch's class draws, to the last bit.
EXACT: dict[Any, Draw] = {
    (distributions.Categorical, "logits"): _exact_categorical,
    (distributions.Categorical, "probs"): _exact_of_probs,
    (distributions.OneHotCategorical, "logits"): _exact_one_hot,
    (distributions.Normal, "loc", "scale"): _exact_normal,
}
