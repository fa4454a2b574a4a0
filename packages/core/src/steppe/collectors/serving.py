"""What a worker of a collector does: it makes environments and a policy, and collects whole batches with them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDictBase

from steppe.collectors.agents import Declared
from steppe.collectors.chunk import Chunk
from steppe.collectors.engine import Collector
from steppe.collectors.lanes import Lanes
from steppe.collectors.policy_content import PolicyContent, check_attributes
from steppe.collectors.runners import LocalRunner
from steppe.collectors.shared_weights import Field, SharedWeights, fields_of
from steppe.collectors.slots import Columns, Piece, Slots, SlotWriter, Stopped
from steppe.specs import Composite
from steppe.storage import Storage, StorageHandle
from steppe.workers import Loaded, SubjectError, Words, Worker

__all__ = ["ENTRY", "HAS_WEIGHTS", "PER_WORKER", "PROGRESS", "STOP", "Job", "Report", "serve"]

#: Where a pool of workers finds this.
ENTRY = f"{__name__}:serve"

#: Words that each worker has beside those of its orders: the caller's wish that it stop, the frames of this batch, and
#: whether it has taken over the weights for its request.
STOP, PROGRESS, HAS_WEIGHTS, PER_WORKER = 0, 1, 2, 8

#: Seconds between two messages about rows that have ended.
_TELL_EVERY = 0.02

#: Seconds between two looks for a slot that the caller has freed.
_SLOT_LOOK = 0.0005


@dataclass(frozen=True)
class Job:
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
        facts: what its policy declares.
    """

    batch_size: tuple[int, ...]
    frames: int
    env_info_spec: Composite
    full_done_spec: Composite
    fields: list[Field]
    weights: dict[str, torch.Tensor] | None
    modules: Loaded
    facts: Declared


def serve(worker: Worker, job: Job) -> None:
    """Make a collector, say what it is, and collect until the caller is done."""
    service = _Collecting(worker, job)
    try:
        worker.say(service.report())
        worker.serve(service)
    finally:
        service.collector.shutdown(raise_on_error=False)


class _Collecting:
    """A :class:`~steppe.workers.Service`: one collector."""

    def __init__(self, worker: Worker, job: Job) -> None:
        self.worker, self.job = worker, job
        self.collector = Collector(
            job.create_env_fn,
            job.policy,
            policy_factory=job.policy_factory,
            return_same_td=True,
            interruptor=self if job.interruptible else None,
            **job.settings,
        )
        self.n_workers = 1
        self.weights: SharedWeights | None = None
        self.storage: Storage | None = None
        self._slot_writer: SlotWriter | None = None

    def report(self) -> Report:
        """Say what there is."""
        collector, policy = self.collector, self.collector.policy
        fields, state = fields_of(policy), None
        if self.job.policy_factory is not None and fields:
            state = {name: tensor.detach() for name, tensor in PolicyContent(policy).tensors.items()}
        size = tuple(collector.env.batch_size)
        return Report(
            size,
            collector.frames_per_batch,
            collector.env.env_info_spec,
            collector.env.full_done_spec,
            fields,
            state,
            self.worker.new_modules(),
            Declared.by(policy),
        )

    # -- what the caller asks for ---------------------------------------------------------------------------------

    def share(self, worker: Worker, words: Words, message: Any, fds: list[int]) -> None:
        self.n_workers, fields = message
        self.flags = words.extra.cast("q")[worker.index * PER_WORKER : (worker.index + 1) * PER_WORKER]
        self.weights = SharedWeights(fields, fds[0])
        if self.job.policy is not None:
            # What a policy refers to by name (a module-level net) was made anew here, with weights of its own.
            self.weights.read_into(self.collector.policy, -1)

    def take(self, message: Any, fds: list[int]) -> None:
        """Be given the memory where batches go."""
        if message[0] == "slots":
            _, columns, n, length = message
            slots = Slots(columns, n, length, fds)
            own = slots.of_worker(self.worker.index, self.n_workers)
            self._slot_writer = SlotWriter(slots, own, self._tell, self._pause)
            return
        _, spec, rows, nbytes = message
        self.storage = Storage.attach(StorageHandle(spec, rows, nbytes, fds[0]))

    def call(self, message: Any) -> Any:
        kind, *given = message
        doing = {"prepare": "the first step", "first_step": "the first step", "batch": "a batch"}.get(kind, kind)
        try:
            return getattr(self, f"_{kind}")(*given)
        except Exception as error:
            raise SubjectError(self.worker.index, doing) from error

    def order(self, order: int, argument: int) -> int:
        """Collect a batch into shared memory; returns how many steps it has."""
        try:
            assert self.storage is not None
            batch = self._collected(False)
            row = self.worker.index
            for key, target in self.storage.tensors.items():
                target[row].copy_(batch.get(key))
            return self.collector.steps_of_batch
        except Exception as error:
            raise SubjectError(self.worker.index, "a batch") from error

    def collection_stopped(self) -> bool:
        """Whether the caller wishes that the batch end here; asked between steps."""
        self.flags[PROGRESS] += 1
        return bool(self.flags[STOP])

    # -- calls ----------------------------------------------------------------------------------------------------

    def _prepare(self) -> Any:
        """Take the first step of the first batch, and say what a batch holds; None where that has no fixed place."""
        self._take_weights()
        return self.collector.prepare()

    def _batch(self, random: bool) -> tuple[TensorDictBase, int]:
        """Collect a batch that travels as a message."""
        return self._collected(random).clone(), self.collector.steps_of_batch

    def _seed(self, seed: int | None, static_seed: bool) -> int | None:
        return self.collector.set_seed(seed, static_seed)

    def _seed_policy(self, seed: int) -> None:
        self.collector.seed_policy(seed)

    def _reset(self, kwargs: dict[str, Any]) -> None:
        self.collector.reset(**kwargs)

    def _state(self) -> dict[str, Any]:
        return self.collector.state_dict()

    def _load(self, state: dict[str, Any], strict: bool) -> None:
        self.collector.load_state_dict(state, strict=strict)

    def _policy(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return getattr(self.collector.policy, name)(*args, **kwargs)

    def _check_attributes(self, names: list[str]) -> None:
        check_attributes(self.collector.policy, names)

    # -- requests -------------------------------------------------------------------------------------------------

    def _lanes(self) -> Lanes:
        runner = self.collector.requests.runner
        assert isinstance(runner, LocalRunner)
        if self._slot_writer is not None:
            runner.lanes.record = self._slot_writer
        return runner.lanes

    def _reset_lanes(self, agent_info: Any, env_info: Any) -> None:
        self._take_weights()
        self._lanes().reset(agent_info, env_info)

    def _drop(self) -> None:
        self._lanes().drop()

    def _first_step(self, chunk: Chunk, first_lane: int) -> Columns | None:
        """Begin a chunk, and take its first step; what a step holds, None where that has no fixed place."""
        lanes = self._begun(chunk, first_lane)
        with self.collector.acting():
            return lanes.prepare()

    def _request(self, chunk: Chunk, first_lane: int) -> tuple[str, Any, int]:
        """Run a chunk, and tell of rows that have ended while others run on."""
        self._begun(chunk, first_lane)
        return self._go_on()

    def _begun(self, chunk: Chunk, first_lane: int) -> Lanes:
        self._take_weights()
        self.flags[HAS_WEIGHTS] = 1
        lanes = self._lanes()
        lanes.first_lane = first_lane
        with self.collector.acting():
            if chunk.rows is None:
                lanes.begin_slice(chunk)
            else:
                lanes.begin_episodes(chunk)
        return lanes

    def _go_on(self) -> tuple[str, Any, int]:
        """Run the chunk that was begun to its end."""
        self.flags[HAS_WEIGHTS] = 1
        lanes = self._lanes()
        with self.collector.acting():
            told = time.monotonic()
            while lanes.at_work:
                try:
                    lanes.step()
                except Stopped:
                    lanes.cancel()
                if self.flags[STOP]:
                    lanes.cancel()
                elif lanes.at_work and time.monotonic() - told > _TELL_EVERY:
                    if (found := self._found(lanes)) is not None:
                        self.worker.say(found)
                    told = time.monotonic()
        return "end", self._found(lanes), len(lanes.live)

    def _found(self, lanes: Lanes) -> tuple[str, Any, int] | None:
        """Rows that have ended, or slots that are full, and nobody was told of; None where there are none."""
        version = self.collector.policy_version
        if isinstance(lanes.record, SlotWriter):
            lanes.forget_finished()
            pieces = lanes.record.take()
            return ("pieces", pieces, version) if pieces else None
        return ("rows", lanes.take(version), 0) if lanes.has_finished else None

    def _tell(self, pieces: list[Piece]) -> None:
        self.worker.say(("pieces", pieces, self.collector.policy_version))

    def _pause(self) -> bool:
        """Wait for the caller to free a slot; whether it wishes that the request end, or is gone."""
        return bool(self.flags[STOP]) or self.worker.pause(_SLOT_LOOK)

    # -- batches --------------------------------------------------------------------------------------------------

    def _take_weights(self) -> None:
        assert self.weights is not None
        version = self.weights.read_into(self.collector.policy, self.collector.policy_version)
        self.collector.policy_version = version

    def _collected(self, random: bool) -> TensorDictBase:
        if not self.collector.holds_first_step:  # which was made with the weights that the rest of its batch has then
            self._take_weights()
        if self.job.interruptible:
            self.flags[PROGRESS] = 0
        batch = self.collector.counted(random=random)
        ids = batch.get(("collector", "traj_ids"), None)
        if ids is not None and self.n_workers > 1:
            # Each worker numbers its own; together they use each number once.
            batch.set(("collector", "traj_ids"), torch.where(ids < 0, ids, ids * self.n_workers + self.worker.index))
        return batch
