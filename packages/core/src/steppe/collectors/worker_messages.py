"""The messages with which the workers of a collector start: their arguments, and their reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from steppe.collectors import collector_arguments as arguments
from steppe.collectors.agent_hook import AgentDeclarations
from steppe.collectors.weights import Field
from steppe.specs import Composite

__all__ = ["HAS_WEIGHTS", "PER_WORKER", "STOP", "Report", "tasks_of"]

#: Flags of each worker in the control block: the caller asks it to stop, and it has read the weights for its request.
STOP, HAS_WEIGHTS, PER_WORKER = 0, 1, 8


#: Arguments that the collector of each worker gets as they are.
_PASSED_ON = (
    *("policy", "max_frames_per_traj", "reset_at_each_iter", "exploration_type", "set_truncated"),
    *("trust_policy", "track_traj_ids", "track_policy_version", "compile_policy"),
    *("compact_obs", "auto_register_policy_transforms", "max_steps", "auto_reset", "store_agent_state", "compact"),
)

#: Arguments that are one value for all workers, or a list with one for each.
_ONE_FOR_EACH = ("create_env_kwargs", "device", "env_device", "policy_device", "policy_factory")


@dataclass(frozen=True)
class Report:
    """A worker's first message, sent when its environment and policy are made.

    Attributes:
        batch_size: the batch size of its environment.
        frames: the number of frames in each of its batches.
        env_info_spec: the infos that its environment takes at a reset.
        full_done_spec: the done entries of its environment.
        fields: the names, shapes and dtypes of its policy's weights.
        modules: the modules of plugins that it has imported.
        declarations: the infos, state and methods of its policy.
    """

    batch_size: tuple[int, ...]
    frames: int
    env_info_spec: Composite
    full_done_spec: Composite
    fields: list[Field]
    modules: list[str]
    declarations: AgentDeclarations


def tasks_of(
    name: str, makers: list[Any], frames: list[int], settings: Mapping[str, Any], *, interruptible: bool
) -> list[dict[str, Any]]:
    """Return the arguments of each worker's :class:`~steppe.Collector`, as the caller sends them.

    Args:
        name: of the collector, for errors.
        makers: the factory of each worker's environment.
        frames: the frames in each batch of each worker.
        settings: the arguments of the collector.
        interruptible: whether the caller may stop workers within a batch; each is its own ``interruptor`` then.

    Raises:
        SpecError: an argument lists values for another number of workers.
    """
    n = len(makers)
    each = {key: arguments.one_for_each(name, key, settings[key], n) for key in _ONE_FOR_EACH}
    return [
        {
            "create_env_fn": maker,
            **{key: settings[key] for key in _PASSED_ON},
            **{key: values[worker] for key, values in each.items()},
            "frames_per_batch": frames[worker],
            "storing_device": "cpu" if each["device"][worker] is not None else None,
            "interruptor": interruptible,
        }
        for worker, maker in enumerate(makers)
    ]
