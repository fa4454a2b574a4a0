"""WorkersBackend: worker processes, each with environments and a copy of a collector's policy."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from tensordict import TensorDictBase

from steppe.collectors import collector_arguments as arguments
from steppe.collectors.agent_hook import AgentDeclarations
from steppe.collectors.collector_backend import CollectorBackend
from steppe.collectors.weights import SourcePolicy, values_for
from steppe.collectors.worker_group import WorkerGroup
from steppe.collectors.worker_messages import WorkerTask
from steppe.envs import done_groups, next_seed
from steppe.errors import PolicyError, SpecError
from steppe.specs import Composite
from steppe.workers import AFTER_AN_ERROR, SHUTDOWN_TIMEOUT_AFTER_FAILURE, exclusive

if TYPE_CHECKING:
    from steppe.collectors.engine import Collector

__all__ = ["WorkersBackend"]

#: Frames of a batch if ``frames_per_batch`` is not given.
_FRAMES = 200

#: Arguments that the collector of each worker gets as they are.
_PASSED_ON = (
    *("policy", "max_frames_per_traj", "reset_at_each_iter", "exploration_type", "set_truncated"),
    *("trust_policy", "track_traj_ids", "track_policy_version", "compile_policy"),
    *("compact_obs", "auto_register_policy_transforms", "max_steps", "auto_reset", "store_agent_state", "compact"),
)

#: Arguments that are one value for all workers, or a list with one for each.
_ONE_FOR_EACH = ("create_env_kwargs", "device", "env_device", "policy_device", "policy_factory")


class WorkersBackend(CollectorBackend):
    """Worker processes that collect whole batches by themselves, each with a ``Collector`` of its own.

    The data lies in memory that all processes share, and a worker sends a short message for each batch. It takes over
    new weights between batches. ``("collector", "traj_ids")`` are unique over all workers. The error of a worker
    reaches the caller with its traceback, and a killed worker is noticed at once; after either, all workers are
    stopped. A subclass says when workers begin a batch, and what a batch of the collector is made of.

    Args:
        collector: the collector that this is for.
        makers: what makes the environment of each worker.
        settings: the arguments of the collector.

    Attributes:
        slot_len, num_slots: the arguments of the collector for the shared memory of requests.
        frames_of_all: whether a number ``frames_per_batch=`` is that of all workers together, not that of each.
        frames_begun: how many frames are in the batches that workers have begun, if batches are begun one by one.
    """

    worker_group: WorkerGroup
    frames_of_all: ClassVar[bool] = True
    frames_begun: int = 0

    def __init__(self, collector: Collector, makers: list[Any], settings: Mapping[str, Any]) -> None:
        super().__init__(collector)
        name, n = type(collector).__name__, len(makers)
        policy, factory = settings["policy"], settings["policy_factory"]
        wanted = _FRAMES if settings["frames_per_batch"] is None else settings["frames_per_batch"]
        frames = arguments.frames_of_workers(name, wanted, n, together=self.frames_of_all)
        self._source_policy = None if policy is None else SourcePolicy(policy, name)
        self._made_by_workers = factory is not None
        if collector.update_at_each_batch and self._made_by_workers:
            raise PolicyError(
                f"{name}: update_at_each_batch=True takes over the weights of policy=, and policy_factory= makes one "
                "in each worker: call update_policy_weights_(policy) instead."
            )
        tasks = _tasks(name, makers, frames, settings, interruptible=collector.preemptive_threshold < 1.0)
        self.worker_group = WorkerGroup(name, tasks, self._source_policy, settings)
        try:
            self._read_reports(name, settings)
        except BaseException:
            self.abandon()
            raise

    def _read_reports(self, name: str, settings: Mapping[str, Any]) -> None:
        """Set what is known once the workers have made their environments."""
        collector, reports = self._collector, self.worker_group.reports
        sizes = {report.batch_size for report in reports}
        if len(sizes) > 1:
            raise SpecError(f"{name}: the workers' environments have batch sizes {sorted(sizes)}, which differ.")
        self.env_batch_size = torch.Size(reports[0].batch_size)
        self.slot_len, self.num_slots = settings["slot_len"], settings["num_slots"]
        self.frames_per_worker = [report.frames for report in reports]
        self.iterates = collector.schedule is not None or settings["frames_per_batch"] is not None
        self.parts_of_batch = f"{self.frames_per_worker} frames of {len(reports)} workers"
        self.done_groups = done_groups(reports[0].full_done_spec)

    # -- what the collector and steppe-agents read ----------------------------------------------------------------

    @property
    def agent_declarations(self) -> AgentDeclarations:
        return self.worker_group.reports[0].declarations

    @property
    def env_info_spec(self) -> Composite:
        return self.worker_group.reports[0].env_info_spec

    @property
    def policy_version(self) -> int:
        return self.worker_group.weights.version

    def check_open(self) -> None:
        self.worker_group.check()

    def describe(self) -> str:
        return f"{self.worker_group.n} workers"

    # -- batches --------------------------------------------------------------------------------------------------

    def collect(self, random: bool) -> tuple[TensorDictBase, int]:
        batch, frames = self._joined_batch(random)
        batch.names = [None] * (batch.batch_dims - 1) + ["time"]
        device = self._collector.storing_device
        if device is not None and batch.device != device:
            batch = batch.to(device)
        return batch, frames

    @abstractmethod
    def _joined_batch(self, random: bool) -> tuple[TensorDictBase, int]:
        """Collect a batch on the device of the workers; see :meth:`collect`.

        ``batch_lost`` is set before the data of a worker is taken: from then on an interrupt loses it.
        """

    def begin_anew(self) -> None:
        self.worker_group.begin_anew()

    # -- episodes, seeds, weights ---------------------------------------------------------------------------------

    def reset(self, kwargs: dict[str, Any]) -> None:
        self.worker_group.call_all("reset", **kwargs)

    def set_seed(self, seed: int | Sequence[int] | None, static_seed: bool) -> int | None:
        following: int | None = None
        for worker in range(self.worker_group.n):
            # Numbers of a list that follow each other would give workers the same environments, shifted by one.
            number = next_seed(seed[worker]) if isinstance(seed, Sequence) else seed
            following = self.worker_group.ask({worker: _call("set_seed", number, static_seed)})[worker]
            if not (static_seed or isinstance(seed, Sequence)):
                seed = following
        return following

    def seed_policies(self, seeds: Sequence[int]) -> None:
        self.worker_group.ask({worker: _call("seed_policy", seed) for worker, seed in enumerate(seeds)})

    def call_policy(self, name: str, *args: Any, **kwargs: Any) -> list[Any]:
        return [result for (result,) in self.worker_group.call_all("call_policy", name, *args, **kwargs)]

    def _update_if_asked(self) -> None:
        if self._collector.update_at_each_batch and self._source_policy is not None:
            self._collector.update_policy_weights_()

    def update_weights(self, weights: Any, attributes: Mapping[str, Any] | None) -> None:
        attributes, fields = attributes or {}, self.worker_group.weights.fields
        if weights is None and self._made_by_workers and not attributes:
            raise PolicyError(
                "The policy was made in the workers, by policy_factory: say which weights they are to take, "
                "update_policy_weights_(policy)."
            )
        source = self._source_policy
        if weights is None and source is not None:
            weights = source.weights(fields, attributes)
        values_for(fields, weights)  # weights that do not fit are refused before an attribute is set
        if source is not None:
            source.set_attributes(attributes)
        elif attributes and self._made_by_workers:
            self._check_attributes(attributes)
        elif attributes:
            raise PolicyError(f"Random actions have no attributes, found {sorted(attributes)}.")
        self.worker_group.write_weights(weights, attributes)

    @exclusive("update_policy_weights_ with attributes=")
    def _check_attributes(self, names: Iterable[str]) -> None:
        self.worker_group.ask({0: ("check_attributes", list(names))})

    def state_dict(self) -> dict[str, Any]:
        return {f"worker{worker}": state for worker, state in enumerate(self.worker_group.call_all("state_dict"))}

    def load_state_dict(self, state_dict: dict[str, Any], *, strict: bool, frames: int) -> None:
        self.check_open()
        n = self.worker_group.n
        names = [f"worker{worker}" for worker in range(n)]
        state_names = sorted(key for key in state_dict if key.startswith("worker"))
        if state_names != sorted(names):
            raise SpecError(f"A state of {n} workers is needed, found {state_names}.")
        messages = {n: _call("load_state_dict", state_dict[name], strict=strict) for n, name in enumerate(names)}
        self.worker_group.ask(messages)
        weights = state_dict[names[0]]["policy_state_dict"]
        if weights and self.worker_group.weights.fields:
            self.worker_group.weights.write(weights)
        self.frames_begun = frames

    def kill(self) -> None:
        """Kill the workers, which ends the wait of another thread for a batch."""
        self.worker_group.pool.kill()

    def shutdown(self, timeout: float, close_env: bool) -> None:
        self.worker_group.stop(timeout)

    def abandon(self) -> None:
        self.worker_group.stop(SHUTDOWN_TIMEOUT_AFTER_FAILURE, AFTER_AN_ERROR)


def _call(method: str, *args: Any, **kwargs: Any) -> tuple[object, ...]:
    """Return the message that calls a method of a worker's collector."""
    return "collector", method, args, kwargs


def _tasks(
    name: str, makers: list[Any], frames: list[int], settings: Mapping[str, Any], *, interruptible: bool
) -> list[WorkerTask]:
    """Return what each worker is sent."""
    n = len(makers)
    each = {key: arguments.one_for_each(name, key, settings[key], n) for key in _ONE_FOR_EACH}
    return [
        WorkerTask(
            {
                "create_env_fn": maker,
                **{key: settings[key] for key in _PASSED_ON},
                **{key: values[worker] for key, values in each.items()},
                "frames_per_batch": frames[worker],
                "storing_device": "cpu" if each["device"][worker] is not None else None,
            },
            interruptible,
        )
        for worker, maker in enumerate(makers)
    ]
