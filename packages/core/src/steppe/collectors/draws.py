"""Samples of torch's distributions in few operations: a sample and its log-probability at once.

Each function takes whether the log-probability is wanted, and the parameters of the distribution by name. It returns
the sample and the log-probability (None if that is not wanted). It returns None instead of both if the parameters are
invalid; the caller then makes the distribution, whose error says what is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import distributions

__all__ = ["EXACT", "Draw"]

_Tensor = torch.Tensor
Draw = Callable[..., "tuple[_Tensor, _Tensor | None] | None"]

_HALF_LOG = math.log(math.sqrt(2 * math.pi))


def _exact_categorical(scored: bool, logits: _Tensor) -> tuple[_Tensor, _Tensor | None] | None:
    normalized = logits - logits.logsumexp(-1, keepdim=True)
    return _choose(scored, normalized.softmax(-1), normalized)


def _choose(scored: bool, probs: _Tensor, normalized: _Tensor) -> tuple[_Tensor, _Tensor | None] | None:
    try:
        drawn = torch.multinomial(probs.reshape(-1, probs.shape[-1]), 1, True)
    except RuntimeError:  # invalid probabilities: the error of the distribution says what is wrong
        return None
    sample = drawn.reshape(probs.shape[:-1])
    return sample, normalized.gather(-1, sample.unsqueeze(-1)).squeeze(-1) if scored else None


def _exact_one_hot(scored: bool, logits: _Tensor) -> tuple[_Tensor, _Tensor | None] | None:
    draw = _exact_categorical(scored, logits)
    if draw is None:
        return None
    index, log_prob = draw
    return torch.nn.functional.one_hot(index, logits.shape[-1]).to(logits), log_prob


def _exact_normal(scored: bool, loc: _Tensor, scale: _Tensor) -> tuple[_Tensor, _Tensor | None] | None:
    if loc.shape != scale.shape or not bool(((scale > 0) & (loc == loc)).all()):
        return None
    sample = loc + torch.empty(loc.shape, dtype=loc.dtype, device=loc.device).normal_() * scale
    if not scored:
        return sample, None
    return sample, -((sample - loc) ** 2) / (2 * scale**2) - scale.log() - _HALF_LOG


#: Draws by distribution class and names of its arguments, bit for bit equal to the samples of that class.
EXACT: dict[tuple[object, ...], Draw] = {
    (distributions.Categorical, "logits"): _exact_categorical,
    (distributions.OneHotCategorical, "logits"): _exact_one_hot,
    (distributions.Normal, "loc", "scale"): _exact_normal,
}
