"""Pearson's chi square, with numpy only."""

from __future__ import annotations

import numpy as np

__all__ = ["follows"]


def follows(counts: np.ndarray, weights: np.ndarray) -> bool:
    """Whether counts may be draws in proportion to weights: at most five standard deviations from the mean.

    Chi square with k degrees of freedom has the mean k and the variance 2 k; its cube root is nearly normal (Wilson and
    Hilferty).
    """
    expected = weights / weights.sum() * counts.sum()
    assert not counts[expected == 0].any()
    counts, expected = counts[expected > 0], expected[expected > 0]
    k = len(counts) - 1
    chi = ((counts - expected) ** 2 / expected).sum()
    return abs((chi / k) ** (1 / 3) - (1 - 2 / (9 * k))) / (2 / (9 * k)) ** 0.5 < 5
