"""WorkerTask and Report: the messages with which the workers of a collector start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from steppe.collectors.agent_hook import AgentDeclarations
from steppe.collectors.weights import Field
from steppe.specs import Composite

__all__ = ["ENTRY", "HAS_WEIGHTS", "PER_WORKER", "STOP", "Report", "WorkerTask"]

#: The function that each worker runs.
ENTRY = "steppe.collectors.serving:serve"

#: Flags of each worker in the control block: the caller asks it to stop, and it has read the weights for its request.
STOP, HAS_WEIGHTS, PER_WORKER = 0, 1, 8


@dataclass(frozen=True)
class WorkerTask:
    """The arguments of a worker's collector, as the caller sends them.

    Attributes:
        settings: the arguments, see :class:`~steppe.Collector`.
        interruptible: whether the caller may stop the worker within a batch.
    """

    settings: dict[str, Any]
    interruptible: bool


@dataclass(frozen=True)
class Report:
    """A worker's first message, sent when its environment and policy are made.

    Attributes:
        batch_size: the batch size of its environment.
        frames: the number of frames in each of its batches.
        env_info_spec: the infos that its environment takes at a reset.
        full_done_spec: the done entries of its environment.
        fields: the names, shapes and dtypes of its policy's weights.
        weights: their values, if ``policy_factory`` made the policy; the caller has none then.
        modules: the modules of plugins that it has imported.
        declarations: the infos, state and methods of its policy.
    """

    batch_size: tuple[int, ...]
    frames: int
    env_info_spec: Composite
    full_done_spec: Composite
    fields: list[Field]
    weights: dict[str, torch.Tensor] | None
    modules: list[str]
    declarations: AgentDeclarations
