"""Collector: the engine behind every collector."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from tensordict import LazyStackedTensorDict, TensorDict, TensorDictBase

from steppe.collectors import arguments
from steppe.collectors.array_run import rows_of, run_rows
from steppe.collectors.base import DataCollectorBase
from steppe.collectors.batch_run import BatchRun
from steppe.collectors.trajectories import TrajectoryIds, row_ends, split_trajectories
from steppe.collectors.weights import Weights
from steppe.collectors.writer import FrameList, FrameWriter, make_writer
from steppe.envs import EnvBase, ExplorationType, RandomActions, as_policy, done_groups, set_exploration_type
from steppe.errors import ClosedError, NotSupported, PolicyError, SpecError

__all__ = ["Collector"]


class Collector(DataCollectorBase):
    """Collects batches of transitions in this process.

    Each batch goes on where the one before stopped: episodes run over the border, rows that end begin anew. Data is
    collected without gradients.

    A batch is ``[T]`` for one environment and ``[*B, T]`` for a batch of them, the last dimension named ``"time"``. It
    holds what a rollout holds, and

    * ``("collector", "traj_ids")`` ``[*B, T]`` int64: the trajectory of each frame, numbered in the order in which
      they begin; no number is used twice.
    * ``("collector", "policy_version")`` ``[*B, T]`` int64: how often the policy had been updated.

    Entries whose name begins with an underscore are left out.

    Args:
        create_env_fn: an environment, a function that makes one, or an id such as ``"gym:Pendulum-v1"``. The collector
            closes it in ``shutdown``.
        policy: what :func:`~steppe.envs.as_policy` takes; None for random actions. These are the ones that a rollout
            of the same environment and seed has.
        policy_factory: makes the policy, in place of ``policy``.
        frames_per_batch: transitions in a batch, over all rows; rounded up to whole steps, with a warning.
        total_frames: when to stop; rounded up to whole batches, with a warning. Negative for no end.
        seed: given to ``set_seed``.
        create_env_kwargs: keyword arguments for the function or id.
        max_frames_per_traj: truncate episodes after this many steps, with a StepCounter.
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
        postproc: called with each batch; what it returns is yielded.
        trust_policy: the policy takes and returns a TensorDict; skip the adapter.
        **not_built: arguments of other collectors are refused by name.

    Raises:
        SpecError: a number of frames is none, or the environment does not fit ``max_frames_per_traj`` or
            ``set_truncated``.
        PolicyError: the policy does not fit the environment.
        NotSupported: an argument that has no meaning yet.
    """

    def __init__(
        self,
        create_env_fn: Any,
        policy: Any = None,
        *,
        frames_per_batch: int,
        total_frames: int = -1,
        seed: int | None = None,
        policy_factory: Callable[[], Any] | None = None,
        create_env_kwargs: dict[str, Any] | None = None,
        max_frames_per_traj: int | None = None,
        init_random_frames: int | None = 0,
        reset_at_each_iter: bool = False,
        reset_when_done: bool = True,
        split_trajs: bool = False,
        exploration_type: ExplorationType = ExplorationType.RANDOM,
        return_same_td: bool = False,
        set_truncated: bool = False,
        device: torch.device | str | None = None,
        storing_device: torch.device | str | None = None,
        env_device: torch.device | str | None = None,
        policy_device: torch.device | str | None = None,
        postproc: Callable[[TensorDictBase], TensorDictBase] | None = None,
        trust_policy: bool = False,
        **not_built: Any,
    ) -> None:
        name = type(self).__name__
        self.closed = True  # until there is something to close
        arguments.refuse(name, not_built, list(Collector.__init__.__kwdefaults__ or ()))
        if not reset_when_done:
            raise NotSupported(f"{name}: rows that have ended cannot be stepped, so reset_when_done=False is refused.")
        policy = arguments.policy_of(policy, policy_factory)
        arguments.check_frames(frames_per_batch, total_frames, 1)
        env, own = arguments.make(create_env_fn, create_env_kwargs, name)
        try:
            self.env: EnvBase = arguments.limit_steps(env, max_frames_per_traj)
            if _device(env_device, device) is not None:
                self.env = self.env.to(_device(env_device, device))
            self.env.register_collector(self)
            self._groups = done_groups(self.env.full_done_spec)
            self._truncated = self._truncated_keys(name) if set_truncated else []
            self._weights = Weights(policy, _device(policy_device, device))
            self._policy = self._actor(trust_policy) if policy is not None else None
            rows = self.env.numel()
            self._steps, notes = arguments.check_frames(frames_per_batch, total_frames, rows)
            for note in notes:
                warnings.warn(f"{name}: {note}", stacklevel=2)
            self.requested_frames_per_batch = frames_per_batch
            self.frames_per_batch = self._steps * rows
            self.total_frames = total_frames
            self.init_random_frames = int(init_random_frames or 0)
            self.reset_at_each_iter = reset_at_each_iter
            self.split_trajs = split_trajs
            self.exploration_type = exploration_type
            self.return_same_td = return_same_td
            self.storing_device = _device(storing_device, device)
            self.postproc = postproc
            self._frames = 0
            self._iterations = 0
            self._episodes = 0
            self._seconds = 0.0
            self._policy_version = 0
            self._root: TensorDictBase | None = None
            self._fresh = True
            self._writer: FrameWriter | FrameList | None = None
            self._random: RandomActions | None = None
            self._ids = TrajectoryIds(self.env.batch_size)
            if seed is not None:
                self.set_seed(seed)
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
        there, here = self._weights.device, self.env.device
        if there is not None and there != (here or torch.device("cpu")):
            act = arguments.within_devices(act, there, here or torch.device("cpu"))
        return act

    # -- what it is -----------------------------------------------------------------------------------------------

    @property
    def policy(self) -> Any:
        """What acts; None for random actions."""
        return self._weights.policy

    @property
    def policy_version(self) -> int:
        """How often the policy was updated."""
        return self._policy_version

    def stats(self) -> dict[str, float]:
        """Counts since the beginning: ``frames``, ``iterations``, ``episodes`` that ended, ``seconds`` of collecting
        and ``frames_per_second``.
        """
        speed = self._frames / self._seconds if self._seconds else 0.0
        return {
            "frames": self._frames,
            "iterations": self._iterations,
            "episodes": self._episodes,
            "seconds": self._seconds,
            "frames_per_second": speed,
        }

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.env!r}, frames_per_batch={self.frames_per_batch}, "
            f"total_frames={self.total_frames}, frames={self._frames})"
        )

    # -- batches --------------------------------------------------------------------------------------------------

    def next(self) -> TensorDictBase | None:
        """Collect one batch; None when ``total_frames`` have been collected.

        Raises:
            ClosedError: after ``shutdown``.
        """
        if self.closed:
            raise ClosedError(f"{type(self).__name__} is shut down: make a new one.")
        if 0 <= self.total_frames <= self._frames:
            return None
        start = time.perf_counter()
        batch = self._collect()
        self._frames += self.frames_per_batch
        self._iterations += 1
        self._seconds += time.perf_counter() - start
        if self.split_trajs:
            batch = split_trajectories(batch, prefix="collector")
        return self.postproc(batch) if self.postproc is not None else batch

    @torch.no_grad()
    def _collect(self) -> TensorDictBase:
        if self.reset_at_each_iter:
            self._root = None
        root = self._root if self._root is not None else self._begin()
        # What interrupts the batch leaves the environment somewhere in it: the next one then begins anew.
        self._root = None
        with set_exploration_type(self.exploration_type):
            self._root = self._run(root)
        assert self._writer is not None
        return self._yielded(self._writer.finish())

    def _begin(self, **kwargs: Any) -> TensorDictBase:
        if not self._fresh:
            self._ids.begin_all()
        self._fresh = False
        return self.env.reset(**kwargs)

    def _run(self, root: TensorDictBase) -> TensorDictBase:
        """Fill the writer with the steps of one batch, and return the root of the next."""
        env = self.env
        random = self._policy is None or self._frames < self.init_random_frames
        if random and self._random is None:
            self._random = RandomActions(env)
        act = self._random if random else self._policy
        assert act is not None
        if random and self._policy is not None:
            act = self._padded(act, root)
        step = 0
        if self._writer is not None:
            self._writer.begin()
        else:
            frame, root = self._step(act, root)
            self._writer = make_writer(frame, self._steps, dynamic=env.has_dynamic_specs)
            self._writer.write(frame, 0)
            step = 1
        writer = self._writer
        if isinstance(act, RandomActions) and self._policy is None and isinstance(writer, FrameWriter):
            rows = rows_of(env) if act.in_blocks and step < self._steps else None
            if rows is not None:
                return run_rows(rows, writer, act, root, step)
        if isinstance(writer, FrameWriter) and BatchRun.fits(env, writer) and step < self._steps:
            return BatchRun(env, writer).run(act, root, step)  # type: ignore[arg-type]
        while step < self._steps:
            frame, root = self._step(act, root)
            writer.write(frame, step)
            step += 1
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
        ids = self._ids.advance(ends)
        if self._truncated:
            self._truncate(stored.get("next"))
        own = isinstance(self._writer, FrameWriter) and not self.return_same_td
        batch = stored.clone() if own and self._stays(stored) else stored
        if self.storing_device is not None and batch.device != self.storing_device:
            batch = batch.to(self.storing_device)
        version = torch.full_like(ids, self._policy_version)
        collector = TensorDict({"traj_ids": ids, "policy_version": version}, batch_size=ids.shape)
        batch.set("collector", collector if batch.device is None else collector.to(batch.device))
        batch.names = [None] * (batch.batch_dims - 1) + ["time"]
        return batch

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

    # -- episodes, seeds, weights ---------------------------------------------------------------------------------

    def reset(self, index: Any = None, **kwargs: Any) -> None:
        """Begin new episodes in all rows.

        Args:
            index: not built: rows are reset together.
            **kwargs: given to ``env.reset``.
        """
        if index is not None:
            raise NotSupported("Collector.reset begins new episodes in all rows: leave index= out.")
        if self.closed:
            raise ClosedError(f"{type(self).__name__} is shut down: make a new one.")
        self._root = self._begin(**kwargs)

    def set_seed(self, seed: int | None, static_seed: bool = False) -> int | None:
        """Seed the environment, from its next reset on, and random actions, from the next batch on.

        Args:
            seed: a whole number >= 0, or None to seed from the operating system.
            static_seed: give all rows the same seed.

        Returns:
            The seed for whatever comes next.
        """
        following = self.env.set_seed(seed, static_seed=static_seed)
        self._random = None
        return following

    def update_policy_weights_(
        self, policy_or_weights: Any = None, *, weights: Any = None, policy: Any = None, **not_built: Any
    ) -> None:
        """Take over new weights before the next batch, and count the policy version up.

        A policy that was given and acts itself has its weights already; then this only counts.

        Args:
            policy_or_weights: a module, a TensorDict of parameters, or a state dict. None: those of the policy given.
            weights: the same by another name.
            policy: the same by another name.
            **not_built: ``worker_ids``, ``weights_dict`` and ``model_id`` are refused: there is one policy.

        Raises:
            PolicyError: the weights do not fit.
        """
        if not_built:
            raise NotSupported(
                f"{type(self).__name__}.update_policy_weights_ has one policy, here, so {min(not_built)}= has no use."
            )
        given = [each for each in (policy_or_weights, weights, policy) if each is not None]
        if len(given) > 1:
            raise TypeError("update_policy_weights_ takes one of policy_or_weights, weights and policy.")
        self._weights.update(given[0] if given else None)
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
        self._root, self._fresh = None, True

    def shutdown(self, timeout: float | None = None, close_env: bool = True) -> None:
        """Close the environment. Calling it again does nothing.

        Args:
            timeout: for compatibility; there is nothing to wait for.
            close_env: False leaves the environment open, for who gave it.
        """
        if self.closed:
            return
        self.closed = True
        self._root = self._writer = self._random = None
        if close_env:
            self.env.close(raise_if_closed=False)


def _device(own: Any, default: Any) -> torch.device | None:
    found = own if own is not None else default
    return None if found is None else torch.device(found)
