"""Collector: a policy in environments, which yields batches of transitions."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from tensordict import TensorDictBase

from steppe.collectors import collector_arguments as arguments
from steppe.collectors.base import DataCollectorBase
from steppe.collectors.collector_backend import CollectorBackend
from steppe.collectors.delivery import Delivery
from steppe.collectors.local_backend import LocalBackend
from steppe.collectors.schedules import Lockstep
from steppe.collectors.worker_group import ProcessGroup, WorkerGroup
from steppe.collectors.workers_backend import WorkersBackend
from steppe.envs import EnvBase, ExplorationType, spread_seed
from steppe.errors import ArgumentError, PolicyError
from steppe.registry import find_class
from steppe.workers import InUse, exclusive

__all__ = ["Collector"]

#: Seconds that workers may take to start: longer than compiling an environment takes.
START_TIMEOUT = 600.0


class Collector(DataCollectorBase):
    """Run a policy in environments, and yield batches of transitions.

    Each batch continues where the one before stopped: episodes may span several batches, and rows whose episode has
    ended are reset. Data is collected without gradients.

    The policy is called exactly once for each step, on data from the environment only. What it writes is known from its
    first call, which raises PolicyError if the policy does not fit the environment.

    A batch is ``[T]`` for one environment and ``[*B, T]`` for a batch of them. The last dimension is named ``"time"``.
    It has the entries of a rollout, and

    * ``("collector", "traj_ids")`` ``[*B, T]`` int64: the number of the trajectory of each frame. Trajectories are
      numbered in the order in which they begin, and no number is used twice.
    * ``("collector", "policy_version")`` ``[*B, T]`` int64: how many times the policy had been updated.

    Entries whose name begins with an underscore are left out, unless a spec or the policy's ``out_keys`` declare them.
    An :class:`~steppe.Agent` adds ``"is_init"`` if it keeps a state, and ``("agent_info", ...)``, its default info.

    With ``num_workers``, each worker process has environments and a copy of the policy. Batches are then ``[rows, T]``:
    the environments of the first worker, then of the second, and so on. :class:`MultiSyncDataCollector` and
    :class:`MultiaSyncDataCollector` combine the batches of workers in other ways.

    Args:
        create_env_fn: an environment, a function that makes one, or an id such as ``"gym:Pendulum-v1"``; with workers
            also a list with one entry for each worker. ``shutdown`` closes the environment.
        policy: a policy as in :func:`~steppe.envs.as_policy`; None for random actions, the same as in a rollout of
            the same environment and seed.
        policy_factory: a function that makes the policy, instead of ``policy``; with workers also a list.
        frames_per_batch: frames in a batch, over all rows; rounded up to whole steps, with a warning. Requests
            (``execute``) need none.
        total_frames: frames to collect in all; rounded up to whole batches, with a warning. None or negative: no end.
        seed: the argument of ``set_seed``.
        seeds: another name of ``seed``.
        policy_seeds: seeds only the random numbers of the policy: torch's, after ``seed`` was set, and the numbers of
            ``policy.seed(number)`` if the policy has that method. A number, or a list with one for each worker.
        num_workers: number of worker processes; 0: collect in this process.
        create_env_kwargs: keyword arguments for the function or id.
        max_frames_per_traj: truncate episodes after this many steps, with a StepCounter; None, 0 or negative: do not.
        init_random_frames: take random actions until this many frames are collected, in whole batches. The policy is
            not called for these frames, and they lack the other entries that it writes.
        reset_at_each_iter: begin new episodes with each batch.
        split_trajs: yield trajectories, see :func:`~steppe.collectors.split_trajectories`.
        exploration_type: the exploration type during the calls of the policy.
        return_same_td: yield the same memory each time, which the next batch overwrites, instead of a copy.
        set_truncated: mark the last frame of each row of a batch as truncated and done.
        device: default of ``storing_device``, ``env_device`` and ``policy_device``.
        storing_device: the device of the batches.
        env_device: the device of the environment.
        policy_device: the device of a copy of the policy, which ``update_policy_weights_`` updates.
        postproc: a function of a batch; its result is yielded. A module is moved to ``storing_device``.
        trust_policy: the policy takes and returns a TensorDict: skip the adapter and the checks of its first call.
        replay_buffer: extend this buffer with each batch, and yield None. ``init_random_frames`` are then counted by
            its ``write_count``. With workers, a buffer may have a method ``writers(n, example)``, which gets a batch of
            zeros and returns an object for each worker whose ``extend`` the worker calls, so that no data passes
            through this process; or None.
        trajs_per_batch: yield this many whole trajectories (needs steppe-agents). Unfinished trajectories are held
            back, and dropped at the end. ``frames_per_batch`` is the number of frames collected at a time. With
            ``replay_buffer``, each trajectory ``[frames]`` is written when it ends.
        trajs_per_write: how many trajectories are written to the buffer in one call; None: all that have ended.
        traj_format: ``"padded"`` (also None): ``[trajectories, longest]`` with ``("collector", "mask")``; or ``"cat"``:
            ``[frames]``, one trajectory after the other.
        track_traj_ids: False: leave ``("collector", "traj_ids")`` out.
        track_policy_version: also write ``"policy_version"`` at the root and below ``"next"``.
        compact_obs: leave out the observations below ``"next"``, which equal the root of the next step.
        compile_policy: compile the policy: True, or keyword arguments of ``torch.compile``.
        auto_register_policy_transforms: append the transforms that the policy needs to the environment, see
            :func:`~steppe.transforms.transforms_for_policy`.
        interruptor: an object whose method ``collection_stopped()`` is called between steps. True ends the batch, after
            at least one step. Missing frames are zeros, with ``traj_ids`` -1 and False in ``("collector", "mask")``.
        max_steps: requests: truncate a row after this many steps.
        auto_reset: requests: a slice continues with a new episode when one ends, instead of leaving the lane.
        compact: requests: call the policy only with the rows that run. False: call it with all lanes, for policies in
            which rows depend on each other; ``("collector", "mask")`` tells the rows that run.
        slot_len: requests with workers: steps in a slot of the shared memory that transports the data; longer episodes
            take several slots. None: up to 512, a block of a few megabytes.
        num_slots: requests with workers: number of slots, at least one for each environment; None: two for each.
            Workers wait while all slots are full, until the caller reads the job.
        start_timeout: workers: seconds that they may take to make environments and policies; None: no limit. The first
            time this may include compilation and downloads.
        start_method: workers: how processes are started, see :class:`~steppe.ParallelEnv`.
        batch_timeout: workers: seconds that a batch may take, or a step of a request; None: no limit.
        num_sub_threads: workers: number of threads of torch in each.
        update_at_each_batch: workers: update the weights with every batch, without a call of
            ``update_policy_weights_``. This counts the policy version up before :class:`MultiSyncDataCollector` begins
            a batch (its first batch has version 1), and after :class:`MultiaSyncDataCollector` has received one (the
            first batch of each worker has version 0).
        preemptive_threshold: workers in lockstep: fraction of the workers, 0 to 1, that must have finished their batch;
            then the others end theirs at the next step. Missing frames are zeros, with ``traj_ids`` -1 and False in
            ``("collector", "mask")``.
        cat_results: how :class:`MultiSyncDataCollector` combines the batches of its workers.
        devices: older name of ``device``. With workers, ``device``, ``env_device``, ``policy_device`` and
            ``create_env_kwargs`` may be lists with one entry for each worker.
        store_agent_state: keep the state of an agent: in requests at the ``"first"`` step of a row, at ``"all"``, or
            ``"none"``; in batches only ``"all"`` keeps it.
        pre_collect_hook: a function that is called before each batch.
        post_collect_hook: a function of each batch, called after ``postproc``.
        **others: arguments of TorchRL's collectors without an effect here are ignored with a warning; those for
            features that are missing are refused.

    Raises:
        ArgumentError: a number of frames is invalid, or the environment does not fit ``max_frames_per_traj`` or
            ``set_truncated``.
        PolicyError: the policy cannot be called on the environment's data.
        WorkerError: a worker could not make its environment or policy.
        NotSupported: an argument asks for a missing feature.
        ClassNotFound: an argument needs steppe-agents, which is not installed.
        TypeError: an argument does not exist, or two contradict each other.
    """

    def __init__(
        self,
        create_env_fn: Any,
        policy: Any = None,
        *,
        frames_per_batch: int | Sequence[int] | None = None,
        total_frames: int | None = -1,
        seed: int | Sequence[int] | None = None,
        seeds: int | Sequence[int] | None = None,
        policy_seeds: int | Sequence[int] | None = None,
        num_workers: int | None = 0,
        policy_factory: Any = None,
        create_env_kwargs: Any = None,
        max_frames_per_traj: int | None = None,
        init_random_frames: int | None = 0,
        reset_at_each_iter: bool = False,
        split_trajs: bool | None = False,
        exploration_type: ExplorationType | None = ExplorationType.RANDOM,
        return_same_td: bool = False,
        set_truncated: bool = False,
        device: Any = None,
        storing_device: Any = None,
        env_device: Any = None,
        policy_device: Any = None,
        postproc: Callable[[TensorDictBase], TensorDictBase] | None = None,
        trust_policy: bool | None = False,
        replay_buffer: Any = None,
        trajs_per_batch: int | None = None,
        trajs_per_write: int | None = None,
        traj_format: str | None = None,
        track_traj_ids: bool = True,
        track_policy_version: bool = False,
        compact_obs: bool = False,
        compile_policy: bool | dict[str, Any] | None = None,
        auto_register_policy_transforms: bool | None = None,
        interruptor: Any = None,
        max_steps: int | None = None,
        auto_reset: bool = False,
        compact: bool = True,
        slot_len: int | None = None,
        num_slots: int | None = None,
        start_timeout: float | None = START_TIMEOUT,
        start_method: str | None = None,
        batch_timeout: float | None = None,
        num_sub_threads: int = 1,
        update_at_each_batch: bool = False,
        preemptive_threshold: float | None = None,
        cat_results: str | int | None = None,
        devices: Any = None,
        store_agent_state: str = "first",
        pre_collect_hook: Callable[[], Any] | None = None,
        post_collect_hook: Callable[[TensorDictBase], Any] | None = None,
        **others: Any,
    ) -> None:
        settings, name = dict(locals()), type(self).__name__
        defaults = Collector.__init__.__kwdefaults__ or {}
        arguments.check_others(name, others, defaults)
        makers = arguments.makers_of(name, create_env_fn, num_workers, always=self.schedule is not None)
        joins_batches = self.schedule is Lockstep
        arguments.check(name, settings, defaults, has_workers=makers is not None, joins_batches=joins_batches)
        self.cat_results = "stack" if cat_results is None else cat_results
        settings["device"] = device = devices if device is None else device
        one_device = device if isinstance(device, (str, int, torch.device)) else None
        stored = one_device if storing_device is None else storing_device
        self.storing_device = None if stored is None else torch.device(stored)
        self.in_use = InUse(name)
        self.interruptor = interruptor
        self.exploration_type = exploration_type or ExplorationType.RANDOM
        self.total_frames = arguments.whole_number("total_frames", total_frames, optional=True)
        random_frames = arguments.whole_number("init_random_frames", init_random_frames, optional=True)
        self.init_random_frames = 0 if policy is None and policy_factory is None else max(random_frames, 0)
        max_frames = arguments.whole_number("max_frames_per_traj", max_frames_per_traj, optional=True)
        self.max_frames_per_traj = max(max_frames, 0)
        self.set_truncated = set_truncated
        self.return_same_td, self.trust_policy = return_same_td, bool(trust_policy)
        self.track_traj_ids, self.track_policy_version = track_traj_ids, track_policy_version
        self.compact_obs, self.update_at_each_batch = compact_obs, update_at_each_batch
        self.max_steps, self.auto_reset = max_steps, auto_reset
        self.store_agent_state, self.compact = store_agent_state, compact
        self.preemptive_threshold = 1.0 if preemptive_threshold is None else preemptive_threshold
        move: Any = getattr(postproc, "to", None)
        if self.storing_device is not None and move is not None:
            # Modules of torch return themselves, a method of the user's may return nothing.
            moved = move(self.storing_device)
            postproc = postproc if moved is None else moved
        self.split_trajs, self.postproc = bool(split_trajs), postproc
        self.pre_collect_hook, self.post_collect_hook = pre_collect_hook, post_collect_hook
        self.replay_buffer = replay_buffer
        if trajs_per_batch is not None:
            trajs_per_batch = arguments.whole_number(f"{name}: trajs_per_batch", trajs_per_batch)
        self.trajs_per_batch, self.trajs_per_write = trajs_per_batch, trajs_per_write
        self.traj_format, self.reset_at_each_iter = traj_format or "padded", bool(reset_at_each_iter)
        self.device, self.policy_device = device, device if policy_device is None else policy_device
        self.backend: CollectorBackend
        if makers is None:
            if policy_factory is not None:
                policy = policy_factory()
                if policy is None:
                    raise PolicyError("policy_factory() returned None where a policy is needed.")
            self.backend = LocalBackend(self, create_env_fn, policy, settings)
        else:
            self.backend = (self.schedule or Lockstep)(self, makers, settings)
        try:
            self.requested_frames_per_batch = self.frames_per_batch = self.backend.frames_per_batch
            self._warn_of_rounding(frames_per_batch)
            self._set_up_loop()
            self.deliver_anew()
            self.closed = False
            for number in (seed, seeds):
                if number is not None:
                    self.set_seed(number)
            if policy_seeds is not None:
                self.seed_policy(policy_seeds)
            if slot_len is not None or num_slots is not None:
                _ = self.requests  # validates both arguments
        except BaseException:
            self.closed = True
            self.backend.abandon()
            raise

    def new_group(self, n: int, settings: Mapping[str, Any]) -> WorkerGroup:
        """Return the workers, not started yet: processes of this machine. Collectors on other engines override it.

        Args:
            n: the number of workers.
            settings: the arguments of this collector.
        """
        return ProcessGroup(n, settings["start_method"])

    def deliver_anew(self) -> None:
        """Deliver batches as the attributes of this collector say now, and drop what is held back."""
        whole = self.trajs_per_batch is not None
        self._delivery = find_class("collector", "WholeTrajectories")(self) if whole else Delivery(self)

    def _warn_of_rounding(self, frames_per_batch: object) -> None:
        """Warn if a batch, or the last one, has more frames than were asked for."""
        name, frames, total = type(self).__name__, self.frames_per_batch, self.total_frames
        if not self.backend.iterates:
            return
        if not isinstance(frames_per_batch, Sequence) and frames_per_batch not in (None, frames):
            parts = self.backend.parts_of_batch
            warnings.warn(
                f"{name}: frames_per_batch={frames_per_batch} is rounded up to {frames}: {parts}.", stacklevel=3
            )
        if total > 0 and total % frames:
            whole = -(-total // frames) * frames
            warnings.warn(
                f"{name}: total_frames={total} is rounded up to {whole}: whole batches of {frames}.", stacklevel=3
            )

    #: How workers take turns, of the classes that always have workers.
    schedule: ClassVar[type[WorkersBackend] | None] = None

    # -- environment and policy -----------------------------------------------------------------------------------

    @property
    def env(self) -> EnvBase:
        """The environment; of a collector with workers there is none in this process.

        Raises:
            AttributeError: the collector has workers.
        """
        return self._local("env").env

    @property
    def policy(self) -> Any:
        """The policy, with the weights that it acts with; None for random actions."""
        return self._local("policy").policy

    def _local(self, name: str) -> LocalBackend:
        if isinstance(self.backend, LocalBackend):
            return self.backend
        raise AttributeError(f"{type(self).__name__}.{name}: the environments and policies are in its workers.")

    @property
    def num_workers(self) -> int:
        """How many worker processes collect; 0 if this process does."""
        return self.backend.num_workers

    def __repr__(self) -> str:
        envs = f"{self.num_workers} workers" if self.num_workers else repr(self.env)
        return (
            f"{type(self).__name__}({envs}, frames_per_batch={self.frames_per_batch}, "
            f"total_frames={self.total_frames}, frames={self._frames})"
        )

    # -- episodes, seeds, weights ---------------------------------------------------------------------------------

    @exclusive("reset")
    def reset(self, **kwargs: Any) -> None:
        """Begin new episodes in all rows, over workers with their next batch.

        Args:
            **kwargs: given to ``env.reset``. ``env_info=`` and ``agent_info=`` hold in slices of requests too.

        Raises:
            TypeError: ``index=`` names rows, as it does in TorchRL.
        """
        self.backend.check_open()
        # Environments that take any keyword would drop it, and all rows would begin new episodes.
        if kwargs.pop("index", None) is not None:
            raise TypeError(f"{type(self).__name__}.reset takes no index=: it begins new episodes in all environments.")
        self._reset_with(kwargs)
        self._delivery.drop_all()

    @exclusive("set_seed")
    def set_seed(self, seed: int | Sequence[int] | None, static_seed: bool = False) -> int | None:
        """Seed environments, from their next reset on, random actions, from the next batch on, and torch.

        The same seed gives the same data in this process, from one worker, and from ``execute(n_steps=...)``; therefore
        torch's random numbers are seeded too, which the policy uses. Worker k gets the k-th seed of the chain. With
        workers, torch is seeded only in the workers.

        Args:
            seed: a whole number >= 0, or None to seed from the operating system; or a list with a number for each
                worker.
            static_seed: give all rows, and all workers, the same seed.

        Returns:
            The seed for whatever comes next.

        Raises:
            ClosedError: after ``shutdown``.
            ArgumentError: the list has another length.
        """
        self.backend.check_open()
        if isinstance(seed, Sequence):
            seed = arguments.one_for_each(type(self).__name__, "seeds", seed, max(self.num_workers, 1), "numbers")
        if self._requests is not None:
            self._requests.check_idle()
        following = self.backend.set_seed(seed, static_seed)
        self._restart_requests()
        return following

    @exclusive("seed_policy")
    def seed_policy(self, seed: int | Sequence[int]) -> None:
        """Seed the random numbers of the policy: torch's, and its own through ``policy.seed(number)``.

        Args:
            seed: a number, the first of a chain of seeds for the workers; or a list with a number for each worker.
        """
        n = max(self.num_workers, 1)
        seeds = arguments.one_for_each(type(self).__name__, "policy_seeds", seed, n, "numbers")
        if not isinstance(seed, Sequence):
            seeds, _ = spread_seed(seed, n)
        self.backend.seed_policies(seeds)

    @exclusive("call_policy")
    def call_policy(self, name: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Call a method of each copy of the policy, and return the results."""
        return self.backend.call_policy(name, *args, **kwargs)

    @exclusive("get_attr")
    def get_attr(self, name: str) -> list[Any]:
        """Return an attribute of each environment, those of all workers one after another."""
        return self.backend.call_envs(name, None)

    @exclusive("call")
    def call(self, name: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Call a method of each environment, between two batches, and return the results."""
        return self.backend.call_envs(name, (args, kwargs))

    @exclusive("set_attr")
    def set_attr(self, name: str, value: object) -> None:
        """Set an attribute of each environment, between two batches; episodes go on.

        Workers that have begun their next batch already have the value in the one after that.

        Args:
            name: an attribute that the environments have.
            value: its value; a list holds the value of each environment, in the order of :meth:`get_attr`.

        Raises:
            AttributeError: an environment does not have the attribute.
            ArgumentError: a list has another length.
        """
        n = len(self.get_attr(name))
        values = value if isinstance(value, list) else [value] * n
        if len(values) != n:
            raise ArgumentError(f"{name} needs a list of {n} values, one for each environment, found {len(values)}.")
        self.backend.set_in_envs(name, values)

    def update_policy_weights_(
        self,
        policy_or_weights: Any = None,
        *,
        weights: Any = None,
        policy: Any = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Take over new weights before the next batch, and count the policy version up.

        In this process a policy has its weights and attributes already, unless it acts as a copy on ``policy_device``;
        then this only counts, as it does for random actions.

        For workers nothing is sent: weights are written to memory that all share, while workers may collect. Weights
        are the parameters and buffers of modules, and tensors that require gradients, wherever the policy has them: in
        attributes, closures, default arguments, arguments of ``functools.partial``, and global variables that its code
        names; also the tensors and numpy arrays that a function, or an object that is no module, holds itself. Numbers
        and text are not among them: name these in ``attributes``.

        Args:
            policy_or_weights: a module or other policy, a TensorDict of parameters, or a state dict. None: the weights
                of the policy given.
            weights: the same by another name.
            policy: the same by another name.
            attributes: values for attributes of the policy, such as ``{"eps": 0.1}`` or ``{"module.eps": 0.1}``: set in
                the policy given and, before the next batch or request, in its copies.

        Raises:
            PolicyError: the weights do not fit, the policy has no such attribute, or nothing can be sent of a policy
                that may have changed: it was made by ``policy_factory``, or its content cannot be seen.
            TypeError: there are weights under several names.
            ClosedError: after ``shutdown``, of a collector with workers.
            WorkerError: a worker raised, or ended, in the request that is running.
        """
        self._raise_thread_error()
        if self.num_workers:
            self.backend.check_open()
        if self._requests is not None:
            self._requests.look()  # the error of a worker in a running job is raised here too
        given = [each for each in (policy_or_weights, weights, policy) if each is not None]
        if len(given) > 1:
            raise TypeError(
                f"{type(self).__name__}.update_policy_weights_ takes one of policy_or_weights, weights and policy, "
                f"found {len(given)}."
            )
        self.backend.update_weights(given[0] if given else None, attributes)

    # -- state ----------------------------------------------------------------------------------------------------

    @exclusive("state_dict")
    def state_dict(self) -> dict[str, Any]:
        """Return what ``load_state_dict`` needs to go on elsewhere: weights, the state of transforms, and counts.

        Running episodes are not part of it; new ones begin.
        """
        return {**self.backend.state_dict(), "iter": self._iterations, "frames": self._frames}

    @exclusive("load_state_dict")
    def load_state_dict(self, state_dict: dict[str, Any], *, strict: bool = True) -> None:
        """Take over what ``state_dict`` returned, and begin new episodes with the next batch.

        Args:
            state_dict: from a collector of the same policy and environment, with as many workers.
            strict: refuse weights that do not fit.

        Raises:
            SpecError: it is of another number of workers.
        """
        self.backend.load_state_dict(state_dict, strict=strict)
        self._iterations, self._frames = state_dict["iter"], state_dict["frames"]
