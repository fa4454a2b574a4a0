"""Actors that draw in few operations serve TorchRL's losses."""

from __future__ import annotations

from typing import Any

import pytest
from tensordict.nn import TensorDictModule
from torch import nn

from steppe import CategoricalActor, NormalActor, SyncDataCollector

torchrl_objectives = pytest.importorskip("torchrl.objectives")


@pytest.mark.parametrize("make", [CategoricalActor, NormalActor])
def test_an_actor_learns_through_torchrls_clipped_loss(make: Any) -> None:
    discrete = make is CategoricalActor
    actor = make(nn.Linear(4, 2) if discrete else nn.Linear(3, 2))
    critic = TensorDictModule(nn.Linear(4 if discrete else 3, 1), ["observation"], ["state_value"])
    env = "gym:CartPole-v1" if discrete else "gym:Pendulum-v1"
    with SyncDataCollector(env, actor, frames_per_batch=64) as collector:
        batch = next(collector)
    loss = torchrl_objectives.ClipPPOLoss(actor, critic)
    loss.make_value_estimator()
    losses = loss(batch)
    sum(value for key, value in losses.items() if key.startswith("loss_")).backward()
    assert all(parameter.grad is not None for parameter in loss.actor_network_params.flatten_keys().values())
    assert losses["kl_approx"].abs() < 1e-5, "the log-probabilities of the loss are those of the data"
