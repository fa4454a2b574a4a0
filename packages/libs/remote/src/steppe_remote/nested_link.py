"""NestedLink: a worker whose collector has worker processes of its own, and delivers the batches of single ones."""

from __future__ import annotations

from collections.abc import MutableSequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tensordict import TensorDictBase

from steppe.collectors import MultiaSyncDataCollector, WorkersBackend
from steppe.envs import EnvBase
from steppe.errors import NotSupported
from steppe.workers import ItemError
from steppe_remote.weights import ReceivedWeights

if TYPE_CHECKING:
    from steppe_remote.remote_worker import RemoteWorker

__all__ = ["NestedLink", "WorkersOfNode"]


@dataclass(frozen=True)
class WorkersOfNode:
    """The environments of a node, each in a process with a copy of the policy.

    Attributes:
        maker: makes an environment, or is its id.
        num_workers: how many.
    """

    maker: Any
    num_workers: int

    def __call__(self) -> EnvBase:
        raise NotSupported("The environments of a node with MultiaSyncDataCollector are made by its processes.")


class NestedLink:
    """Answer the caller with the batches of a :class:`~steppe.MultiaSyncDataCollector`; see ``WorkerLink``.

    Args:
        worker: this process.
        task: the arguments of the collector, whose ``create_env_fn`` is a :class:`WorkersOfNode`.

    Attributes:
        collector: the collector of this worker.
        copies_batches: unused: the memory of a batch is not written again while the batch exists.
    """

    copies_batches = False

    def __init__(self, worker: RemoteWorker, task: dict[str, Any]) -> None:
        self.worker, nested = worker, task["create_env_fn"]
        settings = {**task, "create_env_fn": [nested.maker] * nested.num_workers}
        settings.pop("interruptor")  # the processes end their batches
        self._keeps_policy = task["policy"] is not None
        self.collector = MultiaSyncDataCollector(**settings)
        backend = self.collector.backend
        assert isinstance(backend, WorkersBackend)
        self.backend = backend
        self.weights = ReceivedWeights()

    def report(self) -> Any:
        """Return the first message to the caller."""
        return replace(self.backend.reports[0], frames=self.collector.frames_per_batch, modules=[])

    def connect(self, n_workers: int, weights: ReceivedWeights, flags: MutableSequence[int] | memoryview[int]) -> None:
        """Begin to read the weights of the caller, and to number trajectories as one worker of several."""
        self.weights = weights
        self._number(self.worker.index, n_workers)
        if self._keeps_policy and weights.newest.values:
            # A net that the policy reads from a global variable was made again in this process, with other weights.
            self.backend.weights.write(weights.newest.values)
        self._versions_apart = weights.newest.version - self.backend.policy_version

    def end(self) -> None:
        """Shut the collector down."""
        self.collector.shutdown(raise_on_error=False)

    def call(self, message: Any) -> Any:
        """Run the method that a message of the caller names, and return its result."""
        kind, *arguments = message
        try:
            return getattr(self, f"_{kind}")(*arguments)
        except Exception as error:
            raise ItemError(self.worker.index, "a batch" if kind == "batch" else kind) from error

    # -- calls ----------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Return None: batches come to the caller as they are."""
        return None

    def _batch(self, random: bool, block: int) -> tuple[TensorDictBase | None, int]:
        """Return the batch of whichever process has one, and how many steps it has."""
        self._take_weights()
        batch, frames = self.backend.collect(self.collector.frames_per_batch if random else 0)
        assert batch is not None
        batch["collector", "policy_version"] += self._versions_apart
        return batch, frames // self.backend.env_batch_size.numel()

    def _take_weights(self) -> None:
        """Pass the newest weights on to the processes, and count as many versions as the caller."""
        version, values, _ = self.weights.newest
        while self.backend.policy_version + self._versions_apart < version - 1:
            self.backend.weights.write()
        if self.backend.policy_version + self._versions_apart < version:
            self.backend.weights.write(values, self.weights.new_attributes())

    def _number(self, first: int, distance: int) -> None:
        self.backend.number_trajectories(first, distance)

    def _collector(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = getattr(self.collector, method)(*args, **kwargs)
        if method == "state_dict":
            # The caller reads the weights of the first worker where a worker without processes has them.
            result = {**result, "policy_state_dict": result["worker0"]["policy_state_dict"]}
        return result

    def _check_attributes(self, names: list[str]) -> None:
        self.backend.ask({0: ("check_attributes", names)})

    def _requests(self, method: str, *given: Any) -> Any:
        raise NotSupported(
            "Requests (execute) are not answered by nodes with MultiaSyncDataCollector: take another collector_class."
        )
