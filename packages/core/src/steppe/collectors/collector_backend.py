"""CollectorBackend: the interface of a collector to the processes that run its policy in its environments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from tensordict import TensorDictBase

from steppe.collectors.agent_hook import AgentDeclarations
from steppe.envs import DoneGroup
from steppe.errors import NotSupported
from steppe.specs import Composite

if TYPE_CHECKING:
    from steppe.collectors.engine import Collector

__all__ = ["CollectorBackend"]


class CollectorBackend(ABC):
    """Collect batches for one collector, in this process or in worker processes.

    Args:
        collector: the collector that this is for.

    Attributes:
        frames_per_batch: frames in each batch.
        env_batch_size: the batch size of the environment of a worker, or of this process.
        parts_of_batch: text for the warning that the number was rounded up: ``"50 steps of 8 rows"``.
        iterates: whether iterating yields batches: ``frames_per_batch=`` was given, or the schedule has a default.
        done_groups: the levels of the data that have done entries, the root first.
        agent_declarations: the infos and the recurrent state that the policy declares.
        num_workers: how many worker processes collect; 0 if this process does.
        batch_lost: whether the environments may have gone on without the caller having their data. Trajectories end
            there, so that none has a gap.
    """

    frames_per_batch: int
    env_batch_size: torch.Size
    parts_of_batch: str
    iterates: bool = False
    done_groups: list[DoneGroup]
    agent_declarations: AgentDeclarations
    num_workers: int = 0
    batch_lost: bool = False

    def __init__(self, collector: Collector) -> None:
        self._collector, self.in_use = collector, collector.in_use

    @property
    @abstractmethod
    def env_info_spec(self) -> Composite:
        """The infos that an environment takes at a reset."""

    @property
    @abstractmethod
    def policy_version(self) -> int:
        """How often the policy was updated."""

    @abstractmethod
    def check_open(self) -> None:
        """Raise ClosedError if nothing more can be collected."""

    @abstractmethod
    def collect(self, random_frames: int) -> tuple[TensorDictBase | None, int]:
        """Collect a batch.

        Args:
            random_frames: how many of the frames from here on are of random actions, in whole batches, for which the
                policy is not called; 0 or less: none.

        Returns:
            The batch, which the caller may keep, or None if workers have written it to the replay buffer themselves;
            and how many frames it has.
        """

    @abstractmethod
    def number_trajectories(self, first: int, distance: int) -> None:
        """Give the next trajectories the ids ``first``, ``first + distance``, and so on.

        Collectors whose batches are joined interleave their ids, so that no id is used twice.
        """

    def settle(self, timeout: float | None = None) -> int:
        """Wait until workers that write to a replay buffer themselves have finished their batches.

        Args:
            timeout: seconds to wait at most; None: no limit.

        Returns:
            How many frames they have written that no ``collect`` has returned.
        """
        return 0

    @abstractmethod
    def begin_anew(self) -> None:
        """Begin new episodes with the next batch, because the last one never reached the caller."""

    @abstractmethod
    def reset(self, kwargs: dict[str, Any]) -> None:
        """Begin new episodes in all rows.

        Args:
            kwargs: arguments of ``env.reset``.
        """

    @abstractmethod
    def set_seed(self, seed: int | Sequence[int] | None, static_seed: bool) -> int | None:
        """Seed environments, random actions and torch; returns the seed for whatever comes next.

        Args:
            seed: the first seed; or a list with a seed for each worker, or for this process.
            static_seed: see ``Collector.set_seed``.
        """

    @abstractmethod
    def seed_policies(self, seeds: Sequence[int]) -> None:
        """Seed the random numbers that the policy draws, in each worker or in this process."""

    @abstractmethod
    def call_policy(self, name: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Call a method of each copy of the policy, and return the results."""

    def call_envs(self, name: str, call: tuple[Any, Any] | None) -> list[Any]:
        """Read an attribute of each environment, or call it with ``(args, kwargs)``; returns a list of the results."""
        raise NotSupported(f"{type(self).__name__} does not reach attributes of environments.")

    def set_in_envs(self, name: str, values: list[object]) -> None:
        """Set an attribute of each environment, each to its own of these values."""
        raise NotSupported(f"{type(self).__name__} does not reach attributes of environments.")

    @abstractmethod
    def update_weights(self, weights: Any, attributes: Mapping[str, Any] | None) -> None:
        """Take over weights and attributes before the next batch, and count the policy version up."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return what ``load_state_dict`` needs, without the counts of the collector."""

    @abstractmethod
    def load_state_dict(self, state_dict: dict[str, Any], *, strict: bool) -> None:
        """Take over what ``state_dict`` returned, and begin new episodes.

        Args:
            state_dict: from a backend of the same class.
            strict: refuse weights that do not fit.
        """

    @abstractmethod
    def shutdown(self, timeout: float, close_env: bool) -> None:
        """Release everything; see ``Collector.shutdown``."""

    #: Ends the wait of another thread for a batch; None if nothing can.
    kill: Callable[[], None] | None = None

    @abstractmethod
    def abandon(self) -> None:
        """Release everything that the backend has made, after an error in the constructor of the collector."""
