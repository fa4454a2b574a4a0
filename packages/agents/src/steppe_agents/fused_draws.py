"""FusedSampling: a module that samples actions in few operations.

It also returns their log-probability. The samples follow the same distributions as those of torch's classes, and use
other random numbers.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.nn import ProbabilisticTensorDictModule

from steppe.collectors import Draw
from steppe.envs import ExplorationType, exploration_type

__all__ = ["FusedSampling", "categorical", "normal", "one_hot"]

_Tensor = torch.Tensor
_HALF_LOG = math.log(math.sqrt(2 * math.pi))


def categorical(scored: bool, logits: _Tensor) -> tuple[_Tensor, _Tensor | None] | None:
    """Draw categories ``[*B]`` int64 of ``logits`` ``[*B, n]``.

    The log-probability is ``[*B]``.
    """
    log_probs = logits.log_softmax(-1)
    # The argmin of n exponential variables is a sample from their rates; here as the argmax of the logarithms.
    index = (log_probs - torch.empty_like(log_probs).exponential_().log_()).argmax(-1, keepdim=True)
    log_prob = log_probs.gather(-1, index).squeeze(-1)
    # One check suffices: NaN anywhere in a row of logits makes all log-probabilities of the row NaN.
    if math.isnan(float(log_prob.sum())):
        return None
    return index.squeeze(-1), log_prob if scored else None


def one_hot(scored: bool, logits: _Tensor) -> tuple[_Tensor, _Tensor | None] | None:
    """Draw one-hot categories ``[*B, n]`` of the dtype of ``logits`` ``[*B, n]``.

    The log-probability is ``[*B]``.
    """
    draw = categorical(scored, logits)
    if draw is None:
        return None
    index, log_prob = draw
    return torch.zeros_like(logits).scatter_(-1, index.unsqueeze(-1), 1), log_prob


def normal(scored: bool, loc: _Tensor, scale: _Tensor) -> tuple[_Tensor, _Tensor | None] | None:
    """Draw vectors ``[*B, k]`` of independent normal numbers.

    The log-probability is ``[*B]``.
    """
    noise = torch.randn_like(loc)
    log_scale = scale.log()
    log_prob = noise.square().mul_(-0.5).sub_(log_scale).sum(-1).sub_(loc.shape[-1] * _HALF_LOG)
    if not math.isfinite(float(log_prob.sum() + loc.sum())):
        return None
    return torch.addcmul(loc, noise, scale), log_prob if scored else None


class FusedSampling(ProbabilisticTensorDictModule):
    """A probabilistic module that draws random samples with a custom function.

    Everything else (modes, losses, samples with gradients) uses the distribution class. Collectors call ``fused_draw``
    directly while they act.

    Args:
        *args: of ``ProbabilisticTensorDictModule``.
        draw: draws a sample and its log-probability, see :data:`steppe.collectors.Draw`.
        **kwargs: of ``ProbabilisticTensorDictModule``.

    Attributes:
        fused_draw: the argument ``draw``.
    """

    def __init__(self, *args: Any, draw: Draw, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fused_draw = draw

    def forward(
        self,
        tensordict: TensorDictBase,
        tensordict_out: TensorDictBase | None = None,
        _requires_sample: bool = True,
    ) -> TensorDictBase:
        """Write a sample, and its log-probability if ``return_log_prob`` is set."""
        kind = exploration_type() or self.default_interaction_type
        # Losses need the gradient of the log-probability, which only the distribution gives.
        if kind is ExplorationType.RANDOM and _requires_sample and not torch.is_grad_enabled():
            names = zip(self.dist_keys, self.in_keys, strict=True)
            draw = self.fused_draw(self.return_log_prob, **{name: tensordict.get(key) for name, key in names})
            if draw is not None:
                out = tensordict if tensordict_out is None else tensordict_out
                out.set(self.dist_sample_keys[0], draw[0])
                if self.return_log_prob:
                    assert draw[1] is not None
                    out.set(self.log_prob_key, draw[1])
                return out
        return super().forward(tensordict, tensordict_out, _requires_sample=_requires_sample)  # type: ignore[no-any-return]
