"""Draws of torch's distributions in few operations: a sample and its log-probability at once.

Each takes whether the log-probability is wanted, and the parameters by name. It returns the sample and its
log-probability (or None where that is not wanted), or None altogether where the parameters are none of this
distribution: torch's class then says what is wrong with them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.nn import ProbabilisticTensorDictModule
from torch import distributions

from steppe.envs import ExplorationType, exploration_type

__all__ = ["EXACT", "Draw", "Drawing"]

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


class Drawing(ProbabilisticTensorDictModule):
    """A probabilistic module that draws with a function of its own, where it is asked for random samples.

    Args:
        *args: for the class of tensordict.
        draw: see this module.
        **kwargs: for the class of tensordict, whose distribution serves all else: modes, losses.
    """

    def __init__(self, *args: Any, draw: Draw, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.draw = draw

    def forward(
        self,
        tensordict: TensorDictBase,
        tensordict_out: TensorDictBase | None = None,
        _requires_sample: bool = True,
    ) -> TensorDictBase:
        """Write a sample, and its log-probability where that is asked for."""
        kind = exploration_type() or self.default_interaction_type
        # Losses need the gradient of a log-probability, and samples that nothing has to flow through.
        if kind is ExplorationType.RANDOM and _requires_sample and not torch.is_grad_enabled():
            names = zip(self.dist_keys, self.in_keys, strict=True)
            found = self.draw(self.return_log_prob, **{name: tensordict.get(key) for name, key in names})
            if found is not None:
                out = tensordict if tensordict_out is None else tensordict_out
                out.set(self.dist_sample_keys[0], found[0])
                if self.return_log_prob:
                    assert found[1] is not None
                    out.set(self.log_prob_key, found[1])
                return out
        return super().forward(tensordict, tensordict_out, _requires_sample=_requires_sample)  # type: ignore[no-any-return]
