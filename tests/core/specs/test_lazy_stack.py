"""Stacks of data whose rows differ."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from steppe.errors import NotSupported
from steppe.specs import (
    Bounded,
    Stacked,
    Unbounded,
)


def ragged() -> Stacked:
    return torch.stack([Bounded(0, 1, (2, 3)), Bounded(0, 1, (2, 4))])


def test_rows_of_different_sizes_are_a_nested_tensor() -> None:
    spec = ragged()
    drawn = spec.rand(generator=torch.Generator().manual_seed(0))
    assert drawn.is_nested
    assert spec.is_in(drawn)
    assert spec.is_in([torch.zeros(2, 3), torch.zeros(2, 4)])
    assert not spec.is_in([torch.zeros(2, 3), torch.zeros(2, 3)])
    assert spec.is_in(spec.encode([np.zeros((2, 3)), np.zeros((2, 4))]))
    assert spec.is_in(spec.project([torch.full((2, 3), 9.0), torch.full((2, 4), 9.0)]))
    assert [a.shape for a in spec.to_numpy(drawn)] == [(2, 3), (2, 4)]
    with pytest.raises(NotSupported, match="cannot be one tensor"):
        spec.rand((5,))


def test_other_torch_functions_know_specs() -> None:
    spec = Unbounded((1, 4))
    assert torch.squeeze(spec, 0) == Unbounded((4,))
    assert torch.unsqueeze(spec, 0).shape == (1, 1, 4)
    assert torch.index_select(spec, -1, torch.tensor([0, 2])).shape == (1, 2)
    with pytest.raises(TypeError, match=r"torch\.exp"):
        torch.exp(spec)
