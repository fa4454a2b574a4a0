"""Collectors whose batches are made by worker processes."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from tensordict import TensorDictBase
from tensordict import cat as cat_tds

from steppe.arguments import ignored_argument
from steppe.collectors import collector_arguments as arguments
from steppe.collectors.agent_hook import AgentDeclarations
from steppe.collectors.iteration import IteratingCollector
from steppe.collectors.policy_content import check_attributes
from steppe.collectors.serving import WorkerTask
from steppe.collectors.shared_weights import values_for
from steppe.collectors.weights import SourcePolicy
from steppe.collectors.worker_group import WorkerGroup
from steppe.envs import ExplorationType, done_groups, next_seed, stack_frames
from steppe.errors import PolicyError, SpecError
from steppe.registry import env_factory
from steppe.specs import Composite
from steppe.workers import AFTER_AN_ERROR, PATIENCE, PATIENCE_AFTER_FAILURE, InUse, exclusive

__all__ = ["MultiCollector", "named"]

#: Frames of a batch where nobody says how many.
_FRAMES = 200

#: Seconds until a start that says nothing is given up: longer than compiling takes, and no night.
_START_TIMEOUT = 600.0


class MultiCollector(IteratingCollector):
    """Collects with several worker processes, each of which has environments and a copy of the policy.

    A worker collects whole batches by itself, as :class:`~steppe.Collector` does, and sends one word for each: the data
    lies in memory that all share. It takes over new weights at the border of a batch;
    ``("collector", "policy_version")`` says with which each frame was made. ``("collector", "traj_ids")`` are unique
    over all workers. What a worker raises reaches the caller with its traceback; a worker that is killed is noticed at
    once; after either, all are stopped.

    Args:
        create_env_fn: what makes the environment of each worker, a list: ids, functions, or batches that are not
            started. One that is no list is for all of ``num_workers``.
        policy: see :class:`~steppe.Collector`; each worker is sent a copy.
        policy_factory: makes the policy in each worker; or a list, one for each.
        num_workers: how many, where ``create_env_fn`` is no list.
        frames_per_batch: see the class; about 200 where it is not said. Requests (``execute``) need none.
        total_frames: when to stop; rounded up to whole batches. None or negative for no end.
        seed: given to ``set_seed``.
        seeds: the same; or one for each worker, as a list.
        policy_seeds: seeds what the policy draws, and nothing else, in each worker: a list, or one from which theirs
            follow. See :class:`~steppe.Collector`.
        create_env_kwargs: keyword arguments for what makes environments; or a list, one for each worker.
        init_random_frames: random actions for this many frames, over all workers, in whole batches; they hold nothing
            that the policy writes, see :class:`~steppe.Collector`.
        split_trajs, postproc, storing_device, replay_buffer, extend_buffer, trajs_per_batch, trajs_per_write,
            traj_format, progress_bar, pre_collect_hook, post_collect_hook: done in the caller's process, with whole
            batches; see :class:`~steppe.Collector`.
        device, env_device, policy_device: as there; each one for all workers, or a list.
        devices: older name of ``device``.
        update_at_each_batch: take over the weights of ``policy`` with every batch, without a call of
            ``update_policy_weights_``. Each time counts the policy version up, before
            :class:`MultiSyncDataCollector` begins a batch (its first one has version 1), and after
            :class:`MultiaSyncDataCollector` has received one (each worker's first one has version 0).
        preemptive_threshold: the part of workers, 0 to 1, that must have their batch: then the others end theirs at
            their next step. What they have not collected is marked False in ``("collector", "mask")``, with
            ``traj_ids`` -1 and zeros.
        num_threads: taken with a warning: the caller's process keeps the number that it has.
        num_sub_threads: threads that torch uses in each worker.
        batch_timeout: seconds that a batch may take; None to wait as long as it takes.
        slot_len, num_slots: of requests, see :class:`~steppe.Collector`.
        start_timeout: seconds that workers may take to make their environments and policies, which at a first time may
            compile and download; None for as long as it takes.
        start_method: how processes are started; see :class:`~steppe.ParallelEnv`.
        reset_at_each_iter, reset_when_done, exploration_type, set_truncated, max_frames_per_traj, trust_policy,
            track_traj_ids, compile_policy, compact_obs, auto_register_policy_transforms, return_same_td: see
            :class:`~steppe.Collector`.

    Raises:
        SpecError: a number is none, or lists have different lengths.
        WorkerError: a worker could not make its environment or policy.
        NotSupported: an argument that has no meaning yet.
        TypeError: an argument that does not exist.
    """

    #: Arguments of each worker's collector that are handed on.
    _HANDED_ON: ClassVar[tuple[str, ...]] = (
        *("max_frames_per_traj", "reset_at_each_iter", "reset_when_done", "exploration_type", "set_truncated"),
        *("trust_policy", "track_traj_ids", "track_policy_version", "compile_policy", "cudagraph_policy"),
        *("compact_obs", "auto_register_policy_transforms", "max_steps", "auto_reset", "store_agent_state"),
        "compact",
    )

    def __init__(
        self,
        create_env_fn: Any,
        policy: Any = None,
        *,
        frames_per_batch: Any = None,
        total_frames: int | None = -1,
        num_workers: int | None = None,
        seed: int | None = None,
        seeds: int | Sequence[int] | None = None,
        policy_seeds: int | Sequence[int] | None = None,
        policy_factory: Any = None,
        create_env_kwargs: Any = None,
        init_random_frames: int | None = 0,
        split_trajs: bool | None = False,
        postproc: Callable[[TensorDictBase], TensorDictBase] | None = None,
        storing_device: Any = None,
        replay_buffer: Any = None,
        extend_buffer: bool = True,
        trajs_per_batch: int | None = None,
        trajs_per_write: int | None = None,
        traj_format: str | None = None,
        progress_bar: bool = False,
        pre_collect_hook: Callable[[], Any] | None = None,
        post_collect_hook: Callable[[TensorDictBase], Any] | None = None,
        device: Any = None,
        devices: Any = None,
        env_device: Any = None,
        policy_device: Any = None,
        update_at_each_batch: bool = False,
        preemptive_threshold: float | None = None,
        num_threads: int | None = None,
        num_sub_threads: int = 1,
        batch_timeout: float | None = None,
        start_timeout: float | None = _START_TIMEOUT,
        slot_len: int | None = None,
        num_slots: int | None = None,
        start_method: str | None = None,
        return_same_td: bool = False,
        **others: Any,
    ) -> None:
        given, name = dict(locals()), type(self).__name__
        self.closed = True
        handed_on = {key: others.pop(key) for key in self._HANDED_ON if key in others}
        if others:
            known = [*(MultiCollector.__init__.__kwdefaults__ or ()), *self._HANDED_ON, *self._own_arguments]
            vars(self).update(arguments.take_others(name, others, known))
        self.storing_device = None if storing_device is None else torch.device(storing_device)
        asked_of_workers = {"track_traj_ids": True, "reset_at_each_iter": False, **handed_on}
        output = arguments.checked_output(name, {**asked_of_workers, **given}, self.storing_device)
        if seed is not None and seeds is not None:
            raise TypeError(f"{name}: give seed= or seeds=, not both.")
        if policy is not None and policy_factory is not None:
            raise TypeError("Give a policy or a policy_factory, not both.")
        if num_threads is not None:
            ignored_argument(name, "num_threads", "the caller's process keeps the number that it has")
        makers = self._makers(name, create_env_fn, num_workers)
        n = self.num_workers = len(makers)
        wanted = _FRAMES if frames_per_batch is None else frames_per_batch
        frames, total = arguments.frames_of_workers(name, wanted, total_frames, n, self._share)
        threshold = 1.0 if preemptive_threshold is None else float(preemptive_threshold)
        if not 0.0 <= threshold <= 1.0:
            raise SpecError(f"{name}: preemptive_threshold lies between 0 and 1, found {preemptive_threshold!r}.")
        self.preemptive_threshold = threshold
        random_frames = max(arguments.whole_number(init_random_frames or 0) or 0, 0)
        device = devices if device is None else device
        each = {
            "create_env_kwargs": arguments.one_for_each(name, "create_env_kwargs", create_env_kwargs, n),
            "device": arguments.one_for_each(name, "device", device, n),
            "env_device": arguments.one_for_each(name, "env_device", env_device, n),
            "policy_device": arguments.one_for_each(name, "policy_device", policy_device, n),
        }
        factories = arguments.one_for_each(name, "policy_factory", policy_factory, n)
        tasks = [
            WorkerTask(
                maker,
                policy,
                factories[w],
                {
                    **handed_on,
                    **{key: values[w] for key, values in each.items()},
                    "frames_per_batch": frames[w],
                    "storing_device": "cpu" if each["device"][w] is not None else None,
                },
                threshold < 1.0,
            )
            for w, maker in enumerate(makers)
        ]
        self._source = policy
        self._source_policy = None if policy is None else SourcePolicy(policy, name)
        self._made_by_workers = policy_factory is not None
        if update_at_each_batch and self._made_by_workers:
            raise PolicyError(
                f"{name}: update_at_each_batch=True takes over the weights of policy=, and policy_factory= makes one "
                "in each worker: call update_policy_weights_(policy) instead."
            )
        self.worker_group = WorkerGroup(
            tasks,
            self._source_policy,
            num_threads=num_sub_threads,
            timeout=batch_timeout,
            start_timeout=start_timeout,
            method=start_method,
        )
        try:
            reports = self.worker_group.reports
            sizes = {report.batch_size for report in reports}
            if len(sizes) > 1:
                raise SpecError(f"{name}: the workers' environments have batch sizes {sorted(sizes)}, which differ.")
            self.env_batch_size = torch.Size(reports[0].batch_size)
            self.slot_len, self.num_slots = arguments.check_slots(
                name, slot_len, num_slots, n * self.env_batch_size.numel()
            )
            self.frames_per_worker = [report.frames for report in reports]
            self.frames_per_batch = self.requested_frames_per_batch = self._frames_of_batch()
            asked = arguments.whole_number(frames_per_batch)
            if asked is not None and asked != self.frames_per_batch:
                warnings.warn(
                    f"{name}: frames_per_batch={asked} is rounded up to {self.frames_per_batch}: "
                    f"{self.frames_per_worker} frames of {n} workers.",
                    stacklevel=2,
                )
            self.total_frames = total
            if total > 0 and total % self.frames_per_batch:
                whole = -(-total // self.frames_per_batch) * self.frames_per_batch
                warnings.warn(
                    f"{name}: total_frames={total} is rounded up to {whole}: whole batches of {self.frames_per_batch}.",
                    stacklevel=2,
                )
            self.update_at_each_batch = update_at_each_batch
            self.init_random_frames = random_frames if policy is not None or policy_factory is not None else 0
            self.exploration_type = handed_on.get("exploration_type") or ExplorationType.RANDOM
            self.return_same_td = return_same_td
            self._set_up_iteration(
                output,
                done_groups(reports[0].full_done_spec),
                iterates=self._iterates_by_default or frames_per_batch is not None,
                pre_collect_hook=pre_collect_hook,
                progress_bar=progress_bar,
            )
            if isinstance(seeds, Sequence):
                # Numbers that follow each other would give workers the same environments, shifted by one.
                self.seed_workers([next_seed(each) for each in arguments.seeds_of(name, "seeds", seeds, n)])
            elif seed is not None or seeds is not None:
                self.set_seed(seed if seeds is None else seeds)
            if policy_seeds is not None:
                numbers = arguments.seeds_of(name, "policy_seeds", policy_seeds, n)
                self.worker_group.ask({worker: ("seed_policy", number) for worker, number in enumerate(numbers)})
        except BaseException:
            self.worker_group.stop(PATIENCE_AFTER_FAILURE, AFTER_AN_ERROR)
            raise
        self.closed = False

    _own_arguments: ClassVar[tuple[str, ...]] = ()
    _iterates_by_default: ClassVar[bool] = True

    def _makers(self, name: str, create_env_fn: Any, num_workers: int | None) -> list[Any]:
        if isinstance(create_env_fn, (list, tuple)):
            makers = list(create_env_fn)
            if num_workers is not None and num_workers != len(makers):
                raise SpecError(f"{name}: num_workers={num_workers}, and create_env_fn lists {len(makers)}.")
        else:
            if num_workers is not None and (arguments.whole_number(num_workers) or 0) < 1:
                raise SpecError(f"{name}: num_workers is a whole number >= 1, found {num_workers!r}.")
            makers = [create_env_fn] * (num_workers or self._default_workers(name))
        if not makers:
            raise SpecError(f"{name}: create_env_fn is an empty list, where each worker needs something to make.")
        return [env_factory(maker) if isinstance(maker, str) else maker for maker in makers]

    @staticmethod
    def _default_workers(name: str) -> int:
        raise SpecError(f"{name}: create_env_fn is a list with one entry for each worker; or say num_workers=.")

    def _share(self, frames: int) -> int:
        """A worker's part of ``frames_per_batch``."""
        return frames

    @abstractmethod
    def _frames_of_batch(self) -> int:
        """Frames of what is delivered, from those of the workers."""

    @abstractmethod
    def _collect(self) -> tuple[TensorDictBase, int]:
        """One batch, the caller's to keep, and how many frames it has."""

    # -- batches --------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        self.worker_group.check(self)

    def _collected(self) -> tuple[TensorDictBase, int]:
        if self._requests is not None:
            self._requests.forget()
        batch, frames = self._collect()
        if self.storing_device is not None and batch.device != self.storing_device:
            batch = batch.to(self.storing_device)
        return batch, frames

    def _begin_all_anew(self) -> None:
        self.worker_group.begin_anew()

    def _joined(self, batches: list[TensorDictBase], dim: int) -> TensorDictBase:
        """Concatenate the batches of workers, lazily if the shapes of their entries differ."""
        if len(batches) == 1:
            return named(batches[0].clone())
        try:
            return named(cat_tds(batches, dim))
        except RuntimeError:
            at = dim % batches[0].batch_dims
            return named(stack_frames([frame for batch in batches for frame in batch.unbind(at)], at))

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.num_workers} workers, frames_per_batch={self.frames_per_batch}, "
            f"total_frames={self.total_frames}, frames={self._frames})"
        )

    @property
    def agent_declarations(self) -> AgentDeclarations:
        """The infos and the recurrent state that the policy declares."""
        return self.worker_group.reports[0].declarations

    @property
    def env_info_spec(self) -> Composite:
        """The infos that the environment of a worker takes at a reset."""
        return self.worker_group.reports[0].env_info_spec

    # -- workers --------------------------------------------------------------------------------------------------

    @property
    def policy_version(self) -> int:
        """How often weights were updated."""
        return self.worker_group.weights.version

    @exclusive("set_seed")
    def set_seed(self, seed: int | None, static_seed: bool = False) -> int | None:
        """Seed the workers one after another, each with the seed that follows: environments from their next reset on,
        and all random numbers of its process.

        Args:
            seed: a whole number >= 0, or None to seed from the operating system.
            static_seed: give all the same seed.

        Returns:
            The seed for whatever comes next.
        """
        self.worker_group.check(self)
        following = seed
        for worker in range(self.num_workers):
            following = self.worker_group.ask({worker: ("seed", seed, static_seed)})[worker]
            seed = seed if static_seed else following
        self._restart_requests()
        return following

    @exclusive("seed_workers")
    def seed_workers(self, seeds: Sequence[int]) -> None:
        """Seed each worker with a number of its own.

        Args:
            seeds: one for each worker.
        """
        self.worker_group.check(self)
        if len(seeds) != self.num_workers:
            raise SpecError(f"{self.num_workers} workers need {self.num_workers} seeds, found {len(seeds)}.")
        self.worker_group.ask({worker: ("seed", seed, False) for worker, seed in enumerate(seeds)})
        self._restart_requests()

    @exclusive("reset")
    def reset(self, **kwargs: Any) -> None:
        """Begin new episodes in all rows of all workers, with their next batch."""
        self.worker_group.check(self)
        self.worker_group.ask_all("reset", kwargs)
        if self._delivery.whole is not None:
            self._delivery.whole.drop_all()

    def policy_has(self, name: str) -> bool:
        """Whether the policy, which the workers may have made, has a method of this name."""
        return name in self.worker_group.reports[0].declarations.methods

    @exclusive("call_policy")
    def call_policy(self, name: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Call a method of the policy in each worker, and return what they return."""
        self.worker_group.check(self)
        return self.worker_group.ask_all("policy", name, args, kwargs)

    def update_policy_weights_(
        self, policy_or_weights: Any = None, *, attributes: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> None:
        """Hand new weights to the workers, who take them over before their next batch.

        Nothing is sent: they are written to memory that all share, while workers may collect. Weights are the
        parameters and buffers of modules, and tensors that require gradients, wherever the policy has them: in
        attributes, closures, default arguments, arguments of ``functools.partial``, and global variables that its code
        names; also the tensors and numpy arrays that a function, or an object that is no module, holds itself. Numbers
        and text are not among them: name these in ``attributes``.

        For random actions, and for a policy that has neither weights nor anything else that could change, this only
        counts the version up.

        Args:
            policy_or_weights: a module or other policy, a TensorDict of parameters, or a state dict. None: those of the
                policy given.
            attributes: values for attributes of the policy, such as ``{"eps": 0.1}`` or ``{"module.eps": 0.1}``: set in
                the policy given and, before their next batch or request, in those of the workers.
            **kwargs: weights by another name: ``weights``, ``policy``, ``policy_weights``,
                ``weights_dict={"policy": ...}``.

        Raises:
            PolicyError: the weights do not fit, the policy has no such attribute, or nothing can be sent of a policy
                that may have changed: it was made by ``policy_factory``, or its content cannot be seen.
            ClosedError: after ``shutdown``.
            WorkerError: a worker raised, or ended, in the request that is running.
        """
        self.worker_group.check(self)
        if self._requests is not None:
            self._requests.look()  # the error of a worker in a running job is raised here too
        given = arguments.weights_given(f"{type(self).__name__}.update_policy_weights_", policy_or_weights, kwargs)
        attributes, fields = attributes or {}, self.worker_group.weights.fields
        if given is None and self._made_by_workers and not attributes:
            raise PolicyError(
                "The policy was made in the workers, by policy_factory: say which weights they are to take, "
                "update_policy_weights_(policy)."
            )
        source = self._source_policy
        if given is None and source is not None:
            given = source.weights(fields, attributes)
        if attributes and source is not None:
            check_attributes(source.policy, attributes)
        elif attributes and self._made_by_workers:
            self.worker_group.check_attributes(list(attributes))
        elif attributes:
            raise PolicyError(f"Random actions have no attributes, found {sorted(attributes)}.")
        if attributes and given is not None:
            values_for(fields, given)  # what does not fit is refused before an attribute is set
        if attributes and source is not None:
            source.set_attributes(attributes)
        self.worker_group.write_weights(given, attributes)

    @exclusive("state_dict")
    def state_dict(self) -> dict[str, Any]:
        """What ``load_state_dict`` needs to go on elsewhere: the state of each worker, and counts."""
        self.worker_group.check(self)
        states = self.worker_group.ask_all("state")
        return {
            **{f"worker{worker}": state for worker, state in enumerate(states)},
            "iter": self._iterations,
            "frames": self._frames,
        }

    @exclusive("load_state_dict")
    def load_state_dict(self, state_dict: dict[str, Any], *, strict: bool = True) -> None:
        """Take over what ``state_dict`` returned, and begin new episodes with the next batch.

        Args:
            state_dict: from a collector with as many workers.
            strict: refuse weights that do not fit.

        Raises:
            SpecError: it is of another number of workers.
        """
        self.worker_group.check(self)
        names = [f"worker{worker}" for worker in range(self.num_workers)]
        found = sorted(key for key in state_dict if key.startswith("worker"))
        if found != sorted(names):
            raise SpecError(f"A state of {self.num_workers} workers is needed, found {found}.")
        states = {worker: ("load", state_dict[name], strict) for worker, name in enumerate(names)}
        self.worker_group.ask(states)
        weights = state_dict[names[0]]["policy_state_dict"]
        if weights and self.worker_group.weights.fields:
            self.worker_group.weights.write(weights)
        self._iterations, self._frames = state_dict["iter"], state_dict["frames"]

    def shutdown(self, timeout: float | None = None, close_env: bool = True, raise_on_error: bool = True) -> None:
        """End the workers. Calling it again does nothing.

        Where another thread waits for a batch, it is raised a ClosedError, after ``timeout`` at the latest.

        Args:
            timeout: seconds that they may take to end by themselves.
            close_env: for compatibility: environments end with their workers.
            raise_on_error: False passes over what a thread that ``start`` began has raised.
        """
        running, self.closed = not self.closed, True
        worker_group = self.__dict__.get("worker_group")
        try:
            if running:
                self._end_background(timeout)
        except Exception:
            if raise_on_error:
                raise
        finally:
            if worker_group is not None:
                patience = PATIENCE if timeout is None else timeout
                in_use = self.__dict__.get("in_use", InUse(type(self).__name__))  # there is none before it is set up
                with in_use.alone("shutdown", patience, force=worker_group.pool.kill):
                    worker_group.stop(patience)


def named(batch: TensorDictBase) -> TensorDictBase:
    """Name the dimension of time, which is the last."""
    batch.names = [None] * (batch.batch_dims - 1) + ["time"]
    return batch
