"""``steppe.gae`` equals TorchRL's vec_generalized_advantage_estimate, which computes the same formula as a matrix."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from steppe import gae

functional = pytest.importorskip("torchrl.objectives.value.functional")


@pytest.mark.parametrize(("gamma", "lambda_"), [(0.99, 0.95), (0.9, 0.3)])
def test_advantages_equal_those_of_torchrl(gamma, lambda_):
    generator = torch.Generator().manual_seed(0)
    reward, value, next_value = torch.randn(3, 4, 50, 1, generator=generator, dtype=torch.float64)
    done = torch.rand(4, 50, 1, generator=generator) < 0.1
    terminated = done & (torch.rand(4, 50, 1, generator=generator) < 0.5)
    data = TensorDict({"next": {"reward": reward, "done": done, "terminated": terminated}}, [4, 50])

    advantage, returns = gae(data, value, next_value, gamma=gamma, lambda_=lambda_)
    theirs = functional.vec_generalized_advantage_estimate(
        gamma, lambda_, value, next_value, reward, done=done, terminated=terminated
    )

    # TorchRL leaves out errors whose weight is below a threshold.
    torch.testing.assert_close(advantage, theirs[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(returns, theirs[1], rtol=1e-5, atol=1e-5)
