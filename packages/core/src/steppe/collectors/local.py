"""A collector in this process: batches, requests, seeds, weights and state of what was made for it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.nn import CudaGraphModule

from steppe.collectors import collector_arguments as arguments
from steppe.collectors.acting import Acting
from steppe.collectors.agent_hook import AgentDeclarations
from steppe.collectors.batch_maker import BatchMaker
from steppe.collectors.iteration import IteratingCollector
from steppe.collectors.sole_use import OWN_ENV, SoleUse
from steppe.collectors.trajectories import split_trajectories
from steppe.envs import EnvBase, ExplorationType, set_exploration_type
from steppe.errors import ClosedError, NotSupported
from steppe.specs import Composite
from steppe.workers import PATIENCE, exclusive

__all__ = ["LocalCollector"]


class LocalCollector(IteratingCollector):
    """What a collector does with an environment and a policy of its own process.

    Args:
        env: one environment, or a batch; closed in ``shutdown``.
        acting: the policy, or random actions.
        batches: makes batches of the two.
    """

    closed = True  # until there is something to close
    n_env: int
    init_random_frames: int
    exploration_type: ExplorationType
    max_steps: int | None
    auto_reset: bool
    store_agent_state: str
    compact: bool
    trust_policy: bool
    worker_group: None = None

    def __init__(self, env: EnvBase, acting: Acting, batches: BatchMaker) -> None:
        self.env, self._acting, self._batches = env, acting, batches
        self._sole_use = SoleUse(env)

    # -- what it is -----------------------------------------------------------------------------------------------

    @property
    def policy(self) -> Any:
        """What acts; None for random actions."""
        return self._acting.policy

    @property
    def policy_version(self) -> int:
        """How often the policy was updated."""
        return self._acting.version

    @policy_version.setter
    def policy_version(self, version: int) -> None:
        # Workers count the updates of their caller.
        self._acting.version = version

    @property
    def steps_of_batch(self) -> int:
        """Steps of the batch that was collected last."""
        return self._batches.steps_of_batch

    @property
    def holds_first_step(self) -> bool:
        """Whether the first step of the next batch has been taken."""
        return self._batches.holds_first_step

    def stats(self) -> dict[str, float]:
        """See :class:`IteratingCollector`."""
        return {**super().stats(), "episodes": self._batches.episodes}

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.env!r}, frames_per_batch={self.frames_per_batch}, "
            f"total_frames={self.total_frames}, frames={self._frames})"
        )

    # -- batches --------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self.closed:
            raise ClosedError(f"{type(self).__name__} is shut down: make a new one.")

    @exclusive("rollout")
    def rollout(self) -> TensorDictBase:
        """Collect one batch as it comes out of the environment: neither counted, split nor processed."""
        self._check_open()
        return self._made(self._is_random)

    def _made(self, random: bool) -> TensorDictBase:
        if self._requests is not None:
            self._requests.forget()
        self._begin_anew_if_used(goes_on=not self.reset_at_each_iter)
        try:
            with set_exploration_type(self.exploration_type), self._sole_use:
                return self._batches.collect(random, anew=self.reset_at_each_iter)
        except BaseException:
            self._batches.forget_root()
            raise

    def _begin_anew_if_used(self, *, goes_on: bool = True) -> None:
        """Forget the running episodes if others have used the environment since the last batch.

        Args:
            goes_on: whether what follows would continue them; a warning says that it does not.
        """
        if not (self._batches.goes_on and self._sole_use.is_broken):
            return
        self._batches.forget_root()
        if self._delivery.whole is not None:
            self._delivery.whole.drop_running()
        if goes_on:
            warnings.warn(
                f"Something else reset or stepped the environment of this {type(self).__name__} since its last data, "
                f"so its episodes cannot be continued and new trajectories begin. {OWN_ENV}",
                stacklevel=5,
            )

    def _collected(self) -> tuple[TensorDictBase, int]:
        self._batch_lost = True  # until the loop has the batch
        batch = self.rollout()
        return batch, self.steps_of_batch * self.n_env

    def _begin_all_anew(self) -> None:
        self._batches.forget_root()

    def counted(self, *, random: bool) -> TensorDictBase:
        """Collect one batch as it comes out of the environment, and count it.

        Args:
            random: take random actions; the policy is not called.
        """
        self._check_open()
        batch = self._made(random)
        self._frames += self.steps_of_batch * self.n_env
        self._iterations += 1
        self._batch_lost = False
        return batch

    @property
    def _is_random(self) -> bool:
        """Whether the next batch is of random actions."""
        done = self._frames if self.replay_buffer is None else getattr(self.replay_buffer, "write_count", self._frames)
        return bool(done < self.init_random_frames)

    def prepare(self) -> Composite | None:
        """Let the policy take the first step of the first batch, unless it has, and say what a batch holds.

        Returns:
            The spec of a whole batch; None where its data has no fixed place.
        """
        self._begin_anew_if_used()
        with set_exploration_type(self.exploration_type), self._sole_use:
            return self._batches.prepare(False)

    def fake_tensordict(self) -> TensorDictBase:
        """Return zeros in the place of what is yielded for a batch: same entries, shapes and dtypes.

        Before the first batch this takes its first step, which the batch then contains: what a policy writes is known
        when it has acted. With ``init_random_frames`` that step, and thus what is returned, is of random actions.
        """
        self._check_open()
        if self._requests is not None:
            self._requests.forget()
        self._begin_anew_if_used()
        with set_exploration_type(self.exploration_type), self._sole_use:
            batch = self._batches.fake(self._is_random)
        if self.split_trajs:
            batch = split_trajectories(batch, prefix="collector")
        return batch if self.postproc is None else self.postproc(batch)

    # -- requests -------------------------------------------------------------------------------------------------

    @property
    def act(self) -> Callable[[TensorDictBase], TensorDictBase]:
        """The policy as rows ``[k]`` are given to it, or the random actions in its place."""
        return self._acting.random if self._acting.in_requests is None else self._acting.in_requests

    @property
    def agent_declarations(self) -> AgentDeclarations:
        """The infos and the recurrent state that the policy declares."""
        return AgentDeclarations.of(self.policy)

    @property
    def env_info_spec(self) -> Composite:
        """The infos that the environment takes at a reset."""
        return self.env.env_info_spec

    @property
    def sole_use(self) -> SoleUse:
        """The context in which the collector steps its environment, and notices other users."""
        return self._sole_use

    def acting(self) -> Any:
        """Return the context in which a request lets the policy act; the next batch then begins new episodes."""
        self._batches.forget_root()
        return set_exploration_type(self.exploration_type)

    # -- episodes, seeds, weights ---------------------------------------------------------------------------------

    @exclusive("reset")
    def reset(self, index: Any = None, **kwargs: Any) -> None:
        """Begin new episodes.

        Args:
            index: which rows of the batch of environments; all where None.
            **kwargs: given to ``env.reset``.
        """
        self._check_open()
        if self._requests is not None:
            self._requests.forget()
        self._begin_anew_if_used(goes_on=index is not None)
        with self._sole_use:
            replaced = self._batches.reset(index, kwargs)
        whole = self._delivery.whole
        if whole is not None and replaced is None:
            whole.drop_all()
        elif whole is not None:
            whole.drop_running(replaced)

    @exclusive("set_seed")
    def set_seed(self, seed: int | None, static_seed: bool = False) -> int | None:
        """Seed the environment, from its next reset on, random actions, from the next batch on, and torch.

        The same seed gives the same data in this process, from one worker, and from ``execute(n_steps=...)``; therefore
        torch's random numbers are seeded too, of which the policy draws.

        Args:
            seed: a whole number >= 0, or None to seed from the operating system.
            static_seed: give all rows the same seed.

        Returns:
            The seed for whatever comes next.

        Raises:
            ClosedError: after ``shutdown``.
        """
        self._check_open()
        if seed is not None:
            torch.manual_seed(seed)
        following = self.env.set_seed(seed, static_seed=static_seed)
        self._acting.draw_anew()
        self._restart_requests()
        return following

    def seed_policy(self, seed: int) -> None:
        """Seed what the policy draws: torch's random numbers, and its own through ``policy.seed(number)``."""
        self._acting.seed(seed)

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
        attributes: Mapping[str, Any] | None = None,
        **unknown: Any,
    ) -> None:
        """Take over new weights before the next batch, and count the policy version up.

        A policy that acts itself, which is any policy but one with a copy on ``policy_device``, has its weights and
        attributes already; then this only counts, as it does for random actions.

        Args:
            policy_or_weights: a module or other policy, a TensorDict of parameters, or a state dict. None: those of the
                policy given.
            weights: the same by another name.
            policy: the same by another name.
            policy_weights: the same by the name that older programs have for it.
            weights_dict: ``{"policy": weights}``.
            model_id: ``"policy"``, the only model that there is.
            worker_ids: None: there are no workers.
            attributes: values for attributes of the policy, such as ``{"eps": 0.1}`` or ``{"module.eps": 0.1}``: set in
                the policy given and in its copy.
            **unknown: refused, with the nearest of the names above.

        Raises:
            PolicyError: the weights do not fit, or the policy has no such attribute.
            NotSupported: another model, or workers; attributes of a policy that was recorded as CUDA graphs.
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
        if attributes and isinstance(self._acting.in_requests, CudaGraphModule):
            raise NotSupported(
                "CUDA graphs keep the attributes with which a policy was recorded: make a new collector."
            )
        self._acting.weights.update(given, attributes)
        self._acting.version += 1

    # -- state ----------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """What ``load_state_dict`` needs to go on elsewhere: weights, the state of transforms, and counts.

        Running episodes are not part of it; new ones begin.
        """
        return {
            "policy_state_dict": self._acting.weights.state_dict(),
            "env_state_dict": dict(self.env.state_dict()),
            "iter": self._iterations,
            "frames": self._frames,
            "episodes": self._batches.episodes,
            "policy_version": self._acting.version,
            "trajectories": self._batches.ids.begun,
        }

    @exclusive("load_state_dict")
    def load_state_dict(self, state_dict: dict[str, Any], *, strict: bool = True) -> None:
        """Take over what ``state_dict`` returned, and begin new episodes with the next batch.

        Args:
            state_dict: from a collector of the same policy and environment.
            strict: refuse weights that do not fit.
        """
        if state_dict["policy_state_dict"] or strict:
            self._acting.weights.load_state_dict(state_dict["policy_state_dict"], strict=strict)
        self.env.load_state_dict(state_dict["env_state_dict"], strict=strict)
        self._iterations, self._frames = state_dict["iter"], state_dict["frames"]
        self._acting.version = state_dict.get("policy_version", 0)
        self._batches.episodes = state_dict.get("episodes", 0)
        self._batches.forget_episodes(state_dict.get("trajectories", 0))

    def shutdown(self, timeout: float | None = None, close_env: bool = True, raise_on_error: bool = True) -> None:
        """End the thread that ``start`` began, and close the environment. Calling it again does nothing.

        Args:
            timeout: seconds to wait for the thread.
            close_env: False leaves the environment open, for who gave it.
            raise_on_error: False passes over what the thread or closing the environment raises.

        Raises:
            StateError: another thread is in the collector and does not come back within ``timeout``, or 5 s.
        """
        if self.closed:
            return
        try:
            try:
                self._end_background(timeout)
            finally:
                self.closed = True
                with self.in_use.alone("shutdown", PATIENCE if timeout is None else timeout) as alone:
                    if not alone:
                        self.closed = False
                        self.in_use.check("shutdown")
                    self._batches.close()
                    self._acting.draw_anew()
                    if close_env:
                        self.env.close(raise_if_closed=False)
        except Exception:
            if raise_on_error:
                raise
