"""What the caller of a collector with workers and each worker send each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from steppe.collectors.agent_hook import AgentDeclarations
from steppe.collectors.shared_weights import Field
from steppe.specs import Composite
from steppe.workers import Loaded

__all__ = ["ENTRY", "HAS_WEIGHTS", "PER_WORKER", "PROGRESS", "STOP", "Report", "WorkerTask"]

#: The function that each worker runs.
ENTRY = "steppe.collectors.serving:serve"

#: Words that each worker has beside those of its orders: the caller's wish that it stop, the frames of this batch, and
#: whether it has taken over the weights for its request.
STOP, PROGRESS, HAS_WEIGHTS, PER_WORKER = 0, 1, 2, 8


@dataclass(frozen=True)
class WorkerTask:
    """What a worker is sent.

    Attributes:
        create_env_fn: what a :class:`~steppe.Collector` takes.
        policy, policy_factory: the same.
        settings: further arguments of it.
        interruptible: whether the caller may stop it within a batch.
    """

    create_env_fn: Any
    policy: Any
    policy_factory: Callable[[], Any] | None
    settings: dict[str, Any]
    interruptible: bool


@dataclass(frozen=True)
class Report:
    """What a worker says when it is ready.

    Attributes:
        batch_size: that of its environment.
        frames: in each of its batches.
        env_info_spec: what its environment may be told.
        full_done_spec: the done entries of its environment.
        fields: the weights of its policy.
        weights: their values, where the caller has none.
        modules: what it has imported.
        declarations: the infos, state and methods of its policy.
    """

    batch_size: tuple[int, ...]
    frames: int
    env_info_spec: Composite
    full_done_spec: Composite
    fields: list[Field]
    weights: dict[str, torch.Tensor] | None
    modules: Loaded
    declarations: AgentDeclarations
