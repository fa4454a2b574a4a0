"""Collector: the engine behind every collector."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from tensordict import LazyStackedTensorDict, TensorDict, TensorDictBase

from steppe.collectors import arguments
from steppe.collectors.agents import AgentFacts
from steppe.collectors.array_run import rows_of, run_rows
from steppe.collectors.batch_run import BatchRun
from steppe.collectors.dry_step import check_policy, empty_root
from steppe.collectors.iteration import IteratingCollector
from steppe.collectors.lanes import Lanes
from steppe.collectors.planning import planned
from steppe.collectors.requests import Requests, spec_of_row
from steppe.collectors.runners import LocalRunner
from steppe.collectors.trajectories import TrajectoryIds, row_ends, split_trajectories
from steppe.collectors.weights import Weights
from steppe.collectors.writer import FrameList, FrameWriter, make_writer, public
from steppe.envs import EnvBase, ExplorationType, RandomActions, as_policy, done_groups, set_exploration_type
from steppe.errors import ClosedError, NotSupported, PolicyError, SpecError
from steppe.specs import CPU, Composite, below_next, make_composite_from_td
from steppe.transforms import transforms_for_policy

__all__ = ["Collector"]


class Collector(IteratingCollector):
    """Collects batches of transitions and answers requests, in this process or with ``num_workers`` others.

    Each batch goes on where the one before stopped: episodes run over the border, rows that end begin anew. Data is
    collected without gradients.

    A batch is ``[T]`` for one environment and ``[*B, T]`` for a batch of them, the last dimension named ``"time"``. It
    holds what a rollout holds, and

    * ``("collector", "traj_ids")`` ``[*B, T]`` int64: the trajectory of each frame, numbered in the order in which
      they begin; no number is used twice.
    * ``("collector", "policy_version")`` ``[*B, T]`` int64: how often the policy had been updated.

    Entries whose name begins with an underscore are left out.

    With ``replay_buffer`` batches go there, and None is yielded for each.

    With ``num_workers`` what is made is a :class:`WorkerCollector`, whose batches are ``[lanes, T]``: the environments
    of the first worker, then those of the second, and so on.

    Args:
        create_env_fn: an environment, a function that makes one, or an id such as ``"gym:Pendulum-v1"``. The collector
            closes it in ``shutdown``.
        policy: what :func:`~steppe.envs.as_policy` takes; None for random actions. These are the ones that a rollout
            of the same environment and seed has.
        policy_factory: makes the policy, in place of ``policy``.
        frames_per_batch: transitions in a batch, over all rows; rounded up to whole steps, with a warning. Requests
            (``execute``) need none.
        total_frames: when to stop; rounded up to whole batches, with a warning. None or negative for no end.
        seed: given to ``set_seed``.
        seeds: one for each worker, as a list; or a seed by another name.
        policy_seeds: seeds what the policy draws, and nothing else: torch's random numbers after ``seed`` has, and the
            policy's own through its ``seed(number)`` where it has that. One, or a list with one for each worker.
        num_workers: how many processes collect, each with what ``create_env_fn`` makes; 0 for this one.
        create_env_kwargs: keyword arguments for the function or id.
        max_frames_per_traj: truncate episodes after this many steps, with a StepCounter; not where 0 or negative.
        init_random_frames: take random actions until this many frames are collected, in whole batches; what else the
            policy writes is 0 in these.
        reset_at_each_iter: begin new episodes with each batch.
        reset_when_done: for compatibility; rows that end are always reset.
        split_trajs: yield trajectories, see :func:`~steppe.collectors.split_trajectories`.
        exploration_type: in force while the policy acts.
        return_same_td: yield the storage itself, whose content the next batch replaces, instead of a copy.
        set_truncated: mark the last frame of each row as truncated and done in what is yielded.
        device: default of the three that follow.
        storing_device: where batches are moved to.
        env_device: where the environment is moved to.
        policy_device: where a copy of the policy acts. ``update_policy_weights_`` brings it up to date.
        postproc: called with each batch; what it returns is yielded. A module is moved to ``storing_device``.
        trust_policy: the policy takes and returns a TensorDict; skip the adapter, and the call on zeros that otherwise
            tells, before anything is collected, of a policy that does not fit.
        replay_buffer: its ``extend`` is called with each batch, and None is yielded. ``init_random_frames`` are then
            counted by its ``write_count``.
        extend_buffer: False calls ``replay_buffer.add`` with each step of a batch instead, without ``postproc``.
        trajs_per_batch: yield this many whole trajectories: episodes are held back until they have ended, those that
            run at the end are left out, and ``frames_per_batch`` says how many frames are collected between two looks.
            With ``replay_buffer`` each goes there as it ends, ``[frames]``.
        trajs_per_write: how many trajectories go to the buffer in one call; all that there are where None.
        traj_format: ``"padded"``, ``[trajectories, longest]`` with ``("collector", "mask")``, or ``"cat"``,
            ``[frames]``, one after the other. None is ``"padded"``.
        track_traj_ids: False leaves ``("collector", "traj_ids")`` out.
        track_policy_version: write ``"policy_version"`` at the root and below ``"next"`` too.
        compact_obs: leave out what a step observes, below ``"next"``, which is the root of the step after it.
        compile_policy: compile what acts: True, or keyword arguments of ``torch.compile``.
        cudagraph_policy: record what acts as CUDA graphs: True, or keyword arguments of ``CudaGraphModule``.
        auto_register_policy_transforms: append to the environment what the policy needs, see
            :func:`~steppe.transforms.transforms_for_policy`.
        progress_bar: show a live line with frames and frames per second.
        max_steps: of requests: truncate a row after so many steps.
        auto_reset: of requests: slices begin anew in place where an episode ends, instead of leaving the lane.
        slot_len: of requests with workers: steps in a slot of shared memory, through which data comes back; longer
            episodes take several. 100 where None.
        num_slots: of requests with workers: how many slots there are, at least one for each environment; two for each
            where None. Workers wait where all are full, until the caller looks at the job.
        compact: of requests: call the policy with the rows that are at work, and no others. False calls it with all
            lanes, for policies whose rows look at each other; ``("collector", "mask")`` says which are at work.
        start_timeout: seconds that workers may take to make their environments and policies; None for as long as it
            takes.
        store_agent_state: of requests: keep the agent's state of the ``"first"`` step of a row, of ``"all"``, or
            ``"none"``.
        interruptor: an object with ``collection_stopped()``, which is asked between steps: where it says True the batch
            ends, with at least one step. Its other frames are marked False in ``("collector", "mask")``, with
            ``traj_ids`` -1 and zeros.
        pre_collect_hook: called before each batch.
        post_collect_hook: called with each batch, after ``postproc``.
        **others: arguments of TorchRL's collectors that only choose how are taken with a warning; those of collectors
            that are not built are refused where they ask for something.

    Raises:
        SpecError: a number of frames is none, or the environment does not fit ``max_frames_per_traj`` or
            ``set_truncated``.
        PolicyError: the policy does not fit the environment.
        NotSupported: an argument that has no meaning yet.
        TypeError: an argument that does not exist, or two that contradict each other.
    """

    def __new__(cls, *args: Any, num_workers: int = 0, **kwargs: Any) -> Any:
        """Make a collector of this class, or of the one that has workers."""
        if cls is Collector and num_workers:
            from steppe.collectors.worker_collector import WorkerCollector  # which is made of collectors

            return WorkerCollector(*args, num_workers=num_workers, **kwargs)
        return super().__new__(cls)

    def __init__(
        self,
        create_env_fn: Any,
        policy: Any = None,
        *,
        frames_per_batch: int | None = None,
        total_frames: int | None = -1,
        seed: int | None = None,
        seeds: int | Sequence[int] | None = None,
        policy_seeds: int | Sequence[int] | None = None,
        num_workers: int = 0,
        policy_factory: Callable[[], Any] | None = None,
        create_env_kwargs: dict[str, Any] | None = None,
        max_frames_per_traj: int | None = None,
        init_random_frames: int | None = 0,
        reset_at_each_iter: bool = False,
        reset_when_done: bool = True,
        split_trajs: bool | None = False,
        exploration_type: ExplorationType | None = ExplorationType.RANDOM,
        return_same_td: bool = False,
        set_truncated: bool = False,
        device: torch.device | str | None = None,
        storing_device: torch.device | str | None = None,
        env_device: torch.device | str | None = None,
        policy_device: torch.device | str | None = None,
        postproc: Callable[[TensorDictBase], TensorDictBase] | None = None,
        trust_policy: bool | None = False,
        replay_buffer: Any = None,
        extend_buffer: bool = True,
        trajs_per_batch: int | None = None,
        trajs_per_write: int | None = None,
        traj_format: str | None = None,
        track_traj_ids: bool = True,
        track_policy_version: bool = False,
        compact_obs: bool = False,
        compile_policy: bool | dict[str, Any] | None = None,
        cudagraph_policy: bool | dict[str, Any] | None = None,
        auto_register_policy_transforms: bool | None = None,
        interruptor: Any = None,
        progress_bar: bool = False,
        max_steps: int | None = None,
        auto_reset: bool = False,
        compact: bool = True,
        slot_len: int | None = None,
        num_slots: int | None = None,
        start_timeout: float | None = None,
        store_agent_state: str = "first",
        pre_collect_hook: Callable[[], Any] | None = None,
        post_collect_hook: Callable[[TensorDictBase], Any] | None = None,
        **others: Any,
    ) -> None:
        name = type(self).__name__
        self.closed = True  # until there is something to close
        vars(self).update(arguments.take_others(name, others, list(Collector.__init__.__kwdefaults__ or ())))
        if num_workers:
            raise NotSupported(
                f"{name} collects in the caller's process: Collector(..., num_workers={num_workers}) and "
                "MultiSyncDataCollector have workers."
            )
        for argument, value in {"slot_len": slot_len, "num_slots": num_slots, "start_timeout": start_timeout}.items():
            if value is not None:
                raise TypeError(f"{name}: {argument}= is for workers: say num_workers= too.")
        seed = arguments.one_seed(name, seed, seeds)
        if not reset_when_done:
            raise NotSupported(f"{name}: rows that have ended cannot be stepped, so reset_when_done=False is refused.")
        self.storing_device = _device(storing_device, device)
        output = arguments.checked_output(
            name,
            split_trajs=split_trajs,
            track_traj_ids=track_traj_ids,
            trajs_per_batch=trajs_per_batch,
            trajs_per_write=trajs_per_write,
            traj_format=traj_format,
            replay_buffer=replay_buffer,
            extend_buffer=extend_buffer,
            postproc=postproc,
            hook=post_collect_hook,
            storing_device=self.storing_device,
            return_same_td=return_same_td,
            reset_at_each_iter=reset_at_each_iter,
        )
        policy = arguments.policy_of(policy, policy_factory)
        iterates, asked = frames_per_batch is not None, 1 if frames_per_batch is None else frames_per_batch
        arguments.check_frames(asked, total_frames, 1)
        env, own = arguments.make(create_env_fn, create_env_kwargs, name)
        try:
            self.env: EnvBase = arguments.limit_steps(env, max_frames_per_traj)
            if auto_register_policy_transforms:
                for transform in transforms_for_policy(policy, self.env):
                    self.env = self.env.append_transform(transform)
            if _device(env_device, device) is not None:
                self.env = self.env.to(_device(env_device, device))
            self.env.register_collector(self)
            self._groups = done_groups(self.env.full_done_spec)
            self._truncated = self._truncated_keys(name) if set_truncated else []
            self.policy_device = _device(policy_device, device)
            self._weights = Weights(policy, self.policy_device)
            self._policy = None
            if policy is not None:
                act = self._actor(bool(trust_policy))
                if not trust_policy:
                    self._try_policy(name, act, exploration_type or ExplorationType.RANDOM, iterates)
                self._policy = arguments.compiled(act, compile_policy, cudagraph_policy, self._weights.device)
                if hasattr(policy, "register_collector"):
                    policy.register_collector(self)
            rows = self.env.numel()
            self._steps, self.total_frames, notes = arguments.check_frames(asked, total_frames, rows)
            for note in notes if iterates else ():
                warnings.warn(f"{name}: {note}", stacklevel=2)
            self.n_env = rows
            self.requested_frames_per_batch = self.frames_per_batch = self._steps * rows
            self.init_random_frames = max(arguments.whole_number(init_random_frames or 0) or 0, 0)
            self.max_frames_per_traj = max(arguments.whole_number(max_frames_per_traj or 0) or 0, 0)
            self.reset_when_done, self.set_truncated = True, set_truncated
            self.exploration_type = exploration_type or ExplorationType.RANDOM
            self.return_same_td, self.trust_policy = return_same_td, bool(trust_policy)
            self.device = None if device is None else torch.device(device)
            self.env_device = self.env.device
            self._set_up_iteration(
                output,
                self._groups,
                iterates=iterates,
                pre_collect_hook=pre_collect_hook,
                progress_bar=progress_bar,
            )
            self.track_traj_ids, self.track_policy_version = track_traj_ids, track_policy_version
            self.compact_obs = compact_obs
            self.interruptor = interruptor
            self.max_steps, self.auto_reset = max_steps, auto_reset
            self.store_agent_state, self.compact = store_agent_state, compact
            self._is_stopped = arguments.asked_between_steps(name, interruptor)
            #: Steps of the batch that was collected last.
            self.steps_of_batch = self._steps
            self._first: tuple[TensorDictBase, TensorDictBase] | None = None
            self._episodes = 0
            self._policy_version = 0
            self._root: TensorDictBase | None = None
            self._fresh = True
            self._writer: FrameWriter | FrameList | None = None
            self._random: RandomActions | None = None
            self._ids = TrajectoryIds(self.env.batch_size)
            if seed is not None:
                self.set_seed(seed)
            if policy_seeds is not None:
                self.seed_policy(arguments.seeds_of(name, "policy_seeds", policy_seeds, 1)[0])
        except BaseException:
            if own:
                env.close(raise_if_closed=False)
            raise
        self.closed = False

    def _truncated_keys(self, name: str) -> list[tuple[Any, Any]]:
        keys = [(group.key("truncated"), group.key("done")) for group in self._groups if "truncated" in group.names]
        if not keys:
            raise SpecError(
                f"{name}: set_truncated=True needs a 'truncated' entry in the done spec, which has "
                f"{self.env.done_keys}. Add one with env.add_truncated_keys()."
            )
        return keys

    def _actor(self, trust_policy: bool) -> Callable[[TensorDictBase], TensorDictBase]:
        policy = self._weights.policy
        act = policy if trust_policy else as_policy(policy, self.env)
        there, here = self._weights.device or self.policy_device, self.env.device
        # A policy that was given a device reads it from its TensorDict, also where the environment's have none.
        plain = here or (torch.device("cpu") if self.policy_device is None else None)
        if there is not None and there != plain:
            act = arguments.within_devices(act, there, here or torch.device("cpu"))
        return act

    def _try_policy(self, name: str, act: Any, exploration: ExplorationType, iterates: bool) -> None:
        """Call the policy once, so that one that does not fit is heard of before anything is collected."""
        if self.env.has_dynamic_specs:
            return
        facts = AgentFacts(self._weights.policy)
        told = facts.info_spec is not None or facts.info_default is not None or bool(facts.state_keys)
        plain = self.env.batch_dims > 1 or (iterates and not told)
        with set_exploration_type(exploration):
            check_policy(name, self._weights.policy, act, empty_root(self.env, None if plain else facts))

    # -- what it is -----------------------------------------------------------------------------------------------

    @property
    def policy(self) -> Any:
        """What acts; None for random actions."""
        return self._weights.policy

    @property
    def policy_version(self) -> int:
        """How often the policy was updated."""
        return self._policy_version

    @policy_version.setter
    def policy_version(self, version: int) -> None:
        # Workers count the updates of their caller.
        self._policy_version = version

    def stats(self) -> dict[str, float]:
        """See :class:`IteratingCollector`."""
        return {**super().stats(), "episodes": self._episodes}

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.env!r}, frames_per_batch={self.frames_per_batch}, "
            f"total_frames={self.total_frames}, frames={self._frames})"
        )

    # -- batches --------------------------------------------------------------------------------------------------

    def rollout(self) -> TensorDictBase:
        """Collect one batch as it comes out of the environment: neither counted, split nor processed."""
        return self._collect()

    def _check_open(self) -> None:
        if self.closed:
            raise ClosedError(f"{type(self).__name__} is shut down: make a new one.")

    def _collected(self) -> tuple[TensorDictBase, int]:
        batch = self._collect()
        return batch, self.steps_of_batch * self.n_env

    @torch.no_grad()
    def prepare(self) -> Composite | None:
        """Take the first step of the first batch, unless that has been taken, and say what a batch holds.

        Returns:
            The spec of a whole batch; None where its data has no fixed place.
        """
        if self._writer is None:
            root = self._root if self._root is not None else self._begin()
            with set_exploration_type(self.exploration_type):
                self._first = self._step(self._actor_now(root), root)
            self._root = root
            self._writer = make_writer(self._first[0], self._steps, dynamic=self.env.has_dynamic_specs)
        if not isinstance(self._writer, FrameWriter):
            return None
        stored = self._writer.td.copy()
        if self.compact_obs:
            stored = stored.exclude(*self._mirrored())
        ids = torch.zeros(stored.batch_size, dtype=torch.int64, device=CPU)
        return make_composite_from_td(self._marked(stored, ids), unsqueeze_null_shapes=False)

    @torch.no_grad()
    def _collect(self) -> TensorDictBase:
        if self.reset_at_each_iter and self._first is None:
            self._root = None
        root = self._root if self._root is not None else self._begin()
        # What interrupts the batch leaves the environment somewhere in it: the next one then begins anew.
        self._root = None
        with set_exploration_type(self.exploration_type):
            self._root = self._run(root)
        assert self._writer is not None
        return self._yielded(self._writer.finish(self.steps_of_batch))

    def _begin(self, **kwargs: Any) -> TensorDictBase:
        if not self._fresh:
            self._ids.begin_all()
        self._fresh = False
        return self.env.reset(**kwargs)

    def _actor_now(self, root: TensorDictBase) -> Callable[[TensorDictBase], TensorDictBase]:
        """What acts in this batch."""
        done = self._frames if self.replay_buffer is None else getattr(self.replay_buffer, "write_count", self._frames)
        random = self._policy is None or done < self.init_random_frames
        if random and self._random is None:
            self._random = RandomActions(self.env)
        act = self._random if random else planned(self._policy)
        assert act is not None
        return self._padded(act, root) if random and self._policy is not None else act

    def _run(self, root: TensorDictBase) -> TensorDictBase:
        """Fill the writer with the steps of one batch, and return the root of the next."""
        env, step = self.env, 0
        first, self._first = self._first, None
        act = self._actor_now(root)
        if self._writer is None:
            first = self._step(act, root)
            self._writer = make_writer(first[0], self._steps, dynamic=env.has_dynamic_specs)
        writer = self._writer
        writer.begin()
        if first is not None:
            frame, root = first
            writer.write(frame, 0)
            step = 1
        stopped = self._is_stopped
        if step < self._steps and not (stopped is not None and step and stopped()):
            rows = None
            if isinstance(act, RandomActions) and self._policy is None and isinstance(writer, FrameWriter):
                rows = rows_of(env) if act.in_blocks else None
            if rows is not None:
                step, root = run_rows(rows, writer, act, root, step, stopped)  # type: ignore[arg-type]
            elif isinstance(writer, FrameWriter) and BatchRun.fits(env, writer):
                step, root = BatchRun(env, writer).run(act, root, step, stopped)  # type: ignore[arg-type]
            else:
                while step < self._steps:
                    frame, root = self._step(act, root)
                    writer.write(frame, step)
                    step += 1
                    if stopped is not None and stopped():
                        break
        self.steps_of_batch = step
        return root

    def _step(
        self, act: Callable[[TensorDictBase], TensorDictBase], root: TensorDictBase
    ) -> tuple[TensorDictBase, TensorDictBase]:
        acted = act(root)
        if acted is not root:
            if not isinstance(acted, TensorDictBase):
                raise PolicyError(f"The policy must return a TensorDict, found {type(acted).__name__}.")
            root.update(acted)
        return self.env.step_and_maybe_reset(root)

    def _padded(
        self, act: Callable[[TensorDictBase], TensorDictBase], root: TensorDictBase
    ) -> Callable[[TensorDictBase], TensorDictBase]:
        """Random actions with zeros for what else the policy writes, so that all batches have the same entries."""
        assert self._policy is not None
        with torch.random.fork_rng(devices=[]):
            written = self._policy(root.clone())
        known = {*root.keys(include_nested=True, leaves_only=True), *self.env.action_keys}
        keys = [key for key in written.keys(include_nested=True, leaves_only=True) if key not in known]
        zeros = written.select(*keys).apply(torch.zeros_like) if keys else None

        def padded(tensordict: TensorDictBase) -> TensorDictBase:
            if zeros is not None:
                tensordict.update(zeros)
            return act(tensordict)

        return padded

    def _yielded(self, stored: TensorDictBase) -> TensorDictBase:
        """Make of the writer's data what the caller gets."""
        ends = row_ends(stored.get("next"), self._groups)
        self._episodes += int(ends.sum())
        steps = self.steps_of_batch
        ids = self._ids.advance(ends[..., :steps])
        if ids.shape[-1] < stored.batch_size[-1]:
            ids = torch.nn.functional.pad(ids, (0, self._steps - steps), value=-1)
        if self._truncated:
            self._truncate(stored.get("next")[..., :steps])
        own = isinstance(self._writer, FrameWriter) and not self.return_same_td
        if self.compact_obs:
            stored = stored.exclude(*self._mirrored())
        batch = stored.clone() if own and self._stays(stored) else stored
        if self.storing_device is not None and batch.device != self.storing_device:
            batch = batch.to(self.storing_device)
        return self._marked(batch, ids)

    def _marked(self, batch: TensorDictBase, ids: torch.Tensor) -> TensorDictBase:
        """Add what the collector says of each frame."""
        version = torch.full_like(ids, self._policy_version)
        told = {"traj_ids": ids, "policy_version": version} if self.track_traj_ids else {"policy_version": version}
        if self._is_stopped is not None:
            told["mask"] = torch.arange(ids.shape[-1], device=CPU).lt(self.steps_of_batch).expand(ids.shape).clone()
        collector = TensorDict(told, batch_size=ids.shape)
        batch.set("collector", collector if batch.device is None else collector.to(batch.device))
        if self.track_policy_version:
            for key in ("policy_version", ("next", "policy_version")):
                batch.set(key, version.clone())
        batch.names = [None] * (batch.batch_dims - 1) + ["time"]
        return batch

    def _mirrored(self) -> list[Any]:
        """What is below ``"next"`` and at the root of the step after it."""
        return [below_next(key) for key in (*self.env.observation_keys, *self.env.state_keys)]

    def _stays(self, stored: TensorDictBase) -> bool:
        """Whether what is yielded would be the storage itself: a move to another device copies anyway."""
        device = self.storing_device
        return device is None or device == (stored.device or torch.device("cpu"))

    def _truncate(self, following: TensorDictBase) -> None:
        last = following[..., -1]
        for keys in self._truncated:
            for key in keys:
                if isinstance(following, LazyStackedTensorDict):
                    # The frame itself: its tensors are those of the next root too.
                    last.set(key, torch.ones_like(last.get(key)))
                else:
                    last.get(key).fill_(True)

    @torch.no_grad()
    def fake_tensordict(self) -> TensorDictBase:
        """Return zeros in the place of what is yielded for a batch: same entries, shapes and dtypes.

        The policy is called once, on zeros.
        """
        frame = self.env.fake_tensordict()
        if self._policy is not None:
            root = frame.exclude("next")
            with torch.random.fork_rng(devices=[]):
                frame.update(self._policy(root))
        batch = public(frame).unsqueeze(-1).expand(*self.env.batch_size, self._steps).clone().zero_()
        if self._truncated:
            self._truncate(batch.get("next"))
        if self.compact_obs:
            batch = batch.exclude(*self._mirrored())
        if self.storing_device is not None:
            batch = batch.to(self.storing_device)
        batch = self._marked(batch, torch.zeros(batch.batch_size, dtype=torch.int64, device=CPU))
        if self.split_trajs:
            batch = split_trajectories(batch, prefix="collector")
        return batch if self.postproc is None else self.postproc(batch)

    # -- requests -------------------------------------------------------------------------------------------------

    def _new_requests(self) -> Requests:
        self._check_open()
        facts = AgentFacts(self.policy)
        act: Any = self._policy
        if act is None:
            act = self._random = self._random or RandomActions(self.env)
        lanes = Lanes(
            self.env,
            act,
            facts,
            max_steps=self.max_steps,
            auto_reset=self.auto_reset,
            store_agent_state=self.store_agent_state,
            compact=self.compact,
        )
        return Requests(
            LocalRunner(lanes, self.acting, lambda: self._policy_version), facts, spec_of_row(self.env.env_info_spec)
        )

    def acting(self) -> Any:
        """What is in force while the policy acts: a context."""
        # Who iterates after a request begins anew.
        self._root = self._first = None
        return set_exploration_type(self.exploration_type)

    # -- episodes, seeds, weights ---------------------------------------------------------------------------------

    def reset(self, index: Any = None, **kwargs: Any) -> None:
        """Begin new episodes.

        Args:
            index: which rows of the batch of environments; all where None.
            **kwargs: given to ``env.reset``.
        """
        self._check_open()
        first, self._first = self._first, None
        if first is not None:
            self._root = first[1]
        if index is None or self._root is None:
            self._root = self._begin(**kwargs)
            if self._delivery.whole is not None:
                self._delivery.whole.drop_all()
            return
        rows = torch.zeros(self.env.batch_size, dtype=torch.bool, device=CPU)
        rows[index] = True
        root = self._root.copy()
        for group in self._groups:
            shape = self.env.full_done_spec[group.key("done")].shape
            mask = rows.reshape(*rows.shape, *[1] * (len(shape) - rows.ndim)).expand(shape)
            root.set(group.key("_reset"), mask.clone().to(root.device))
        self._root = self.env.reset(root, **kwargs)
        replaced = self._ids.begin(rows)
        if self._delivery.whole is not None:
            self._delivery.whole.drop_running(replaced)

    def set_seed(self, seed: int | None, static_seed: bool = False) -> int | None:
        """Seed the environment, from its next reset on, random actions, from the next batch on, and torch.

        The same seed gives the same data in this process, from one worker, and from ``execute(n_steps=...)``; therefore
        torch's random numbers are seeded too, of which the policy draws.

        Args:
            seed: a whole number >= 0, or None to seed from the operating system.
            static_seed: give all rows the same seed.

        Returns:
            The seed for whatever comes next.
        """
        if seed is not None:
            torch.manual_seed(seed)
        following = self.env.set_seed(seed, static_seed=static_seed)
        self._random = None
        self._requests = None
        return following

    def seed_policy(self, seed: int) -> None:
        """Seed what the policy draws: torch's random numbers, and its own through ``policy.seed(number)``."""
        torch.manual_seed(seed)
        own = getattr(self.policy, "seed", None)
        if callable(own):
            own(seed)

    def update_policy_weights_(
        self,
        policy_or_weights: Any = None,
        *,
        weights: Any = None,
        policy: Any = None,
        policy_weights: Any = None,
        weights_dict: Mapping[str, Any] | None = None,
        model_id: str | None = None,
        worker_ids: Any = None,
        **unknown: Any,
    ) -> None:
        """Take over new weights before the next batch, and count the policy version up.

        A policy that was given and acts itself has its weights already; then this only counts.

        Args:
            policy_or_weights: a module, a TensorDict of parameters, or a state dict. None: those of the policy given.
            weights: the same by another name.
            policy: the same by another name.
            policy_weights: the same by the name that older programs have for it.
            weights_dict: ``{"policy": weights}``.
            model_id: ``"policy"``, the only model that there is.
            worker_ids: None: there are no workers.
            **unknown: refused, with the nearest of the names above.

        Raises:
            PolicyError: the weights do not fit.
            NotSupported: another model, or workers.
        """
        given = arguments.weights_given(
            f"{type(self).__name__}.update_policy_weights_",
            policy_or_weights,
            {
                **{"weights": weights, "policy": policy, "policy_weights": policy_weights},
                **{"weights_dict": weights_dict, "model_id": model_id, "worker_ids": worker_ids},
                **unknown,
            },
        )
        self._weights.update(given)
        self._policy_version += 1

    # -- state ----------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """What ``load_state_dict`` needs to go on elsewhere: weights, the state of transforms, and counts.

        Running episodes are not part of it; new ones begin.
        """
        return {
            "policy_state_dict": self._weights.state_dict(),
            "env_state_dict": dict(self.env.state_dict()),
            "iter": self._iterations,
            "frames": self._frames,
            "episodes": self._episodes,
            "policy_version": self._policy_version,
            "trajectories": self._ids.begun,
        }

    def load_state_dict(self, state_dict: dict[str, Any], *, strict: bool = True) -> None:
        """Take over what ``state_dict`` returned, and begin new episodes with the next batch.

        Args:
            state_dict: from a collector of the same policy and environment.
            strict: refuse weights that do not fit.
        """
        policy = self._weights.policy
        if state_dict["policy_state_dict"] or strict:
            if isinstance(policy, torch.nn.Module):
                policy.load_state_dict(state_dict["policy_state_dict"], strict=strict)
            elif state_dict["policy_state_dict"]:
                raise PolicyError("The state has weights, and this collector's policy has none.")
        self.env.load_state_dict(state_dict["env_state_dict"], strict=strict)
        self._iterations, self._frames = state_dict["iter"], state_dict["frames"]
        self._episodes = state_dict.get("episodes", 0)
        self._policy_version = state_dict.get("policy_version", 0)
        self._ids.begun = state_dict.get("trajectories", 0)
        self._ids.begin_all()
        self._root, self._fresh, self._first = None, True, None

    def shutdown(self, timeout: float | None = None, close_env: bool = True, raise_on_error: bool = True) -> None:
        """End the thread that ``start`` began, and close the environment. Calling it again does nothing.

        Args:
            timeout: seconds to wait for the thread.
            close_env: False leaves the environment open, for who gave it.
            raise_on_error: False passes over what the thread or closing the environment raises.
        """
        if self.closed:
            return
        try:
            try:
                self._end_background(timeout)
            finally:
                self.closed = True
                self._root = self._writer = self._random = None
                if close_env:
                    self.env.close(raise_if_closed=False)
        except Exception:
            if raise_on_error:
                raise


def _device(own: Any, default: Any) -> torch.device | None:
    found = own if own is not None else default
    return None if found is None else torch.device(found)
