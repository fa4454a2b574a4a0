"""A collector in this process: batches, requests, seeds, weights and state of what was made for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from tensordict import TensorDictBase

from steppe.collectors import arguments
from steppe.collectors.acting import Acting
from steppe.collectors.batch_maker import BatchMaker
from steppe.collectors.iteration import IteratingCollector
from steppe.collectors.lanes import Lanes
from steppe.collectors.requests import Requests, spec_of_row
from steppe.collectors.runners import LocalRunner
from steppe.collectors.trajectories import split_trajectories
from steppe.envs import EnvBase, ExplorationType, set_exploration_type
from steppe.errors import ClosedError, PolicyError
from steppe.specs import Composite

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

    def __init__(self, env: EnvBase, acting: Acting, batches: BatchMaker) -> None:
        self.env, self._acting, self._batches = env, acting, batches

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

    def rollout(self) -> TensorDictBase:
        """Collect one batch as it comes out of the environment: neither counted, split nor processed."""
        self._check_open()
        if self._requests is not None:
            self._requests.forget()
        with set_exploration_type(self.exploration_type):
            return self._batches.collect(self._is_random, anew=self.reset_at_each_iter)

    def _collected(self) -> tuple[TensorDictBase, int]:
        batch = self.rollout()
        return batch, self.steps_of_batch * self.n_env

    def counted(self) -> TensorDictBase:
        """Collect one batch as it comes out of the environment, and count it."""
        batch, frames = self._collected()
        self._frames += frames
        self._iterations += 1
        return batch

    @property
    def _is_random(self) -> bool:
        """Whether the next batch is of random actions."""
        done = self._frames if self.replay_buffer is None else getattr(self.replay_buffer, "write_count", self._frames)
        return bool(done < self.init_random_frames)

    def prepare(self) -> Composite | None:
        """Take the first step of the first batch, unless that has been taken, and say what a batch holds.

        Returns:
            The spec of a whole batch; None where its data has no fixed place.
        """
        with set_exploration_type(self.exploration_type):
            return self._batches.prepare(self._is_random)

    def fake_tensordict(self) -> TensorDictBase:
        """Return zeros in the place of what is yielded for a batch: same entries, shapes and dtypes.

        The policy is called once, on zeros.
        """
        batch = self._batches.fake()
        if self.split_trajs:
            batch = split_trajectories(batch, prefix="collector")
        return batch if self.postproc is None else self.postproc(batch)

    # -- requests -------------------------------------------------------------------------------------------------

    def _new_requests(self) -> Requests:
        self._check_open()
        acting = self._acting
        lanes = Lanes(
            self.env,
            acting.random if acting.in_requests is None else acting.in_requests,
            acting.facts,
            max_steps=self.max_steps,
            auto_reset=self.auto_reset,
            store_agent_state=self.store_agent_state,
            compact=self.compact,
        )
        return Requests(
            LocalRunner(lanes, self.acting, lambda: acting.version), acting.facts, spec_of_row(self.env.env_info_spec)
        )

    def acting(self) -> Any:
        """What is in force while the policy acts: a context."""
        # Who iterates after a request begins anew.
        self._batches.forget_root()
        return set_exploration_type(self.exploration_type)

    # -- episodes, seeds, weights ---------------------------------------------------------------------------------

    def reset(self, index: Any = None, **kwargs: Any) -> None:
        """Begin new episodes.

        Args:
            index: which rows of the batch of environments; all where None.
            **kwargs: given to ``env.reset``.
        """
        self._check_open()
        if self._requests is not None:
            self._requests.forget()
        replaced = self._batches.reset(index, kwargs)
        whole = self._delivery.whole
        if whole is not None and replaced is None:
            whole.drop_all()
        elif whole is not None:
            whole.drop_running(replaced)

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
        self._requests = None
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
        self._acting.weights.update(given)
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

    def load_state_dict(self, state_dict: dict[str, Any], *, strict: bool = True) -> None:
        """Take over what ``state_dict`` returned, and begin new episodes with the next batch.

        Args:
            state_dict: from a collector of the same policy and environment.
            strict: refuse weights that do not fit.
        """
        policy = self._acting.policy
        if state_dict["policy_state_dict"] or strict:
            if isinstance(policy, torch.nn.Module):
                policy.load_state_dict(state_dict["policy_state_dict"], strict=strict)
            elif state_dict["policy_state_dict"]:
                raise PolicyError("The state has weights, and this collector's policy has none.")
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
        """
        if self.closed:
            return
        try:
            try:
                self._end_background(timeout)
            finally:
                self.closed = True
                self._batches.close()
                self._acting.draw_anew()
                if close_env:
                    self.env.close(raise_if_closed=False)
        except Exception:
            if raise_on_error:
                raise
