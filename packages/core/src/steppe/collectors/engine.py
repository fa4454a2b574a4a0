"""Collector: the engine behind every collector."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from tensordict import TensorDictBase

from steppe.collectors import collector_arguments as arguments
from steppe.collectors.acting import Acting
from steppe.collectors.agent_hook import agent_stepper
from steppe.collectors.batch_maker import BatchMaker
from steppe.collectors.batch_metadata import BatchMetadata
from steppe.collectors.local import LocalCollector
from steppe.envs import EnvBase, ExplorationType, done_groups
from steppe.errors import NotSupported
from steppe.transforms import transforms_for_policy

__all__ = ["Collector"]


class Collector(LocalCollector):
    """Collects batches of transitions and answers requests, in this process or with ``num_workers`` others.

    Each batch goes on where the one before stopped: episodes run over the border, rows that end begin anew. Data is
    collected without gradients.

    The policy is called exactly once for each step, on data from the environment, and never to try it out: what it
    writes is known from its first call, which raises PolicyError where the policy does not fit.

    A batch is ``[T]`` for one environment and ``[*B, T]`` for a batch of them, the last dimension named ``"time"``. It
    holds what a rollout holds, and

    * ``("collector", "traj_ids")`` ``[*B, T]`` int64: the trajectory of each frame, numbered in the order in which
      they begin; no number is used twice.
    * ``("collector", "policy_version")`` ``[*B, T]`` int64: how often the policy had been updated.

    Entries whose name begins with an underscore are left out, unless a spec or the policy's ``out_keys`` declare them.
    Of an :class:`~steppe.Agent` there are ``"is_init"``, where it remembers something, and ``("agent_info", ...)``: its
    own default, which it is told in all rows.

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
        init_random_frames: take random actions until this many frames are collected, in whole batches. The policy is
            not called for these: they hold the data of the environment and the actions, and nothing else that the
            policy writes later.
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
        trust_policy: the policy takes and returns a TensorDict; skip the adapter, and let through what the policy
            raises in its first call, as in all others.
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
        start_timeout: of workers: seconds that they may take to make their environments and policies, 600 where it is
            not said; None for as long as it takes.
        store_agent_state: keep the agent's state: in requests of the ``"first"`` step of a row, of ``"all"``, or
            ``"none"``; in batches of ``"all"`` steps, or not.
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
        PolicyError: the policy cannot be called on the environment's data.
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
        given, name = dict(locals()), type(self).__name__
        vars(self).update(arguments.take_others(name, others, list(Collector.__init__.__kwdefaults__ or ())))
        _refuse(name, given)
        seed = arguments.one_seed(name, seed, seeds)
        self.storing_device = _device(storing_device, device)
        output = arguments.checked_output(name, given, self.storing_device)
        policy = arguments.policy_of(policy, policy_factory)
        iterates, asked = frames_per_batch is not None, 1 if frames_per_batch is None else frames_per_batch
        arguments.check_frames(asked, total_frames, 1)
        made, own = arguments.make(create_env_fn, create_env_kwargs, name)
        try:
            env = _prepared(arguments.limit_steps(made, max_frames_per_traj), policy, given)
            env.register_collector(self)
            groups = done_groups(env.full_done_spec)
            self.interruptor = interruptor
            stopped = arguments.asked_between_steps(name, interruptor)
            metadata = BatchMetadata(
                name,
                env,
                groups,
                set_truncated=set_truncated,
                track_traj_ids=track_traj_ids,
                track_policy_version=track_policy_version,
                compact_obs=compact_obs,
                masks=stopped is not None,
                copies=not return_same_td,
                storing_device=self.storing_device,
            )
            self.policy_device = _device(policy_device, device)
            self.exploration_type = exploration_type or ExplorationType.RANDOM
            acting = Acting(name, env, policy, device=self.policy_device, trusted=bool(trust_policy))
            acting.compile(compile_policy, cudagraph_policy)
            if hasattr(policy, "register_collector"):
                policy.register_collector(self)
            agent = agent_stepper(name, env, acting.policy, groups, keeps_states=store_agent_state == "all")
            steps, self.total_frames, notes = arguments.check_frames(asked, total_frames, env.numel())
            for note in notes if iterates else ():
                warnings.warn(f"{name}: {note}", stacklevel=2)
            self.n_env = env.numel()
            self.requested_frames_per_batch = self.frames_per_batch = steps * self.n_env
            self.init_random_frames = max(arguments.whole_number(init_random_frames or 0) or 0, 0)
            self.max_frames_per_traj = max(arguments.whole_number(max_frames_per_traj or 0) or 0, 0)
            self.reset_when_done, self.set_truncated = True, set_truncated
            self.return_same_td, self.trust_policy = return_same_td, bool(trust_policy)
            self.device, self.env_device = None if device is None else torch.device(device), env.device
            self.track_traj_ids, self.track_policy_version = track_traj_ids, track_policy_version
            self.compact_obs = compact_obs
            self.max_steps, self.auto_reset = max_steps, auto_reset
            self.store_agent_state, self.compact = store_agent_state, compact
            super().__init__(
                env, acting, BatchMaker(env, acting, agent, groups, metadata, steps=steps, stopped=stopped)
            )
            self._set_up_iteration(
                output, groups, iterates=iterates, pre_collect_hook=pre_collect_hook, progress_bar=progress_bar
            )
            self.closed = False
            if seed is not None:
                self.set_seed(seed)
            if policy_seeds is not None:
                self.seed_policy(arguments.seeds_of(name, "policy_seeds", policy_seeds, 1)[0])
        except BaseException:
            self.closed = True
            if own:
                made.close(raise_if_closed=False)
            raise


def _refuse(name: str, given: dict[str, Any]) -> None:
    """Refuse arguments that a collector in this process has no use for."""
    if given["num_workers"]:
        raise NotSupported(
            f"{name} collects in the caller's process: Collector(..., num_workers={given['num_workers']}) and "
            "MultiSyncDataCollector have workers."
        )
    for argument in ("slot_len", "num_slots", "start_timeout"):
        if given[argument] is not None:
            raise TypeError(f"{name}: {argument}= is for workers: say num_workers= too.")
    if not given["reset_when_done"]:
        raise NotSupported(f"{name}: rows that have ended cannot be stepped, so reset_when_done=False is refused.")


def _prepared(env: EnvBase, policy: Any, given: dict[str, Any]) -> EnvBase:
    """The environment with what the policy needs of it, where it is to be."""
    if given["auto_register_policy_transforms"]:
        for transform in transforms_for_policy(policy, env):
            env = env.append_transform(transform)
    device = _device(given["env_device"], given["device"])
    return env if device is None else env.to(device)


def _device(own: Any, default: Any) -> torch.device | None:
    found = own if own is not None else default
    return None if found is None else torch.device(found)
