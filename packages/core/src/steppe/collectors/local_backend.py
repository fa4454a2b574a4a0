"""LocalBackend: a collector's environment and policy in this process."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch
from tensordict import TensorDictBase

from steppe.batched import Dispatched
from steppe.collectors import collector_arguments as arguments
from steppe.collectors.acting import Acting
from steppe.collectors.agent_hook import AgentDeclarations, agent_stepper
from steppe.collectors.batch_maker import BatchMaker
from steppe.collectors.batch_metadata import BatchMetadata
from steppe.collectors.collector_backend import CollectorBackend
from steppe.collectors.planning import planned
from steppe.collectors.sole_use import OWN_ENV, SoleUse
from steppe.envs import EnvBase, set_exploration_type
from steppe.errors import ClosedError, SpecError
from steppe.specs import Composite
from steppe.transforms import StepCounter, TransformedEnv, transforms_for_policy
from steppe.workers import exclusive

if TYPE_CHECKING:
    from steppe.collectors.engine import Collector

__all__ = ["LocalBackend"]


class LocalBackend(CollectorBackend):
    """One environment, or a batch of them, and a policy, both in the process of the collector.

    Args:
        collector: the collector that this is for.
        create_env_fn: makes the environment; or an environment.
        policy: the policy; None for random actions.
        settings: the arguments of the collector.

    Attributes:
        env: the environment; ``shutdown`` closes it.
        sole_use: the context in which the environment is stepped, which notices other users.
    """

    def __init__(self, collector: Collector, create_env_fn: Any, policy: Any, settings: Mapping[str, Any]) -> None:
        super().__init__(collector)
        name = type(collector).__name__
        self.iterates = settings["frames_per_batch"] is not None
        frames = arguments.whole_number("frames_per_batch", settings["frames_per_batch"]) if self.iterates else 1
        made, is_ours = arguments.make(create_env_fn, settings["create_env_kwargs"], name)
        self._made = made if is_ours else None
        try:
            env = self.env = _prepared(made, policy, collector.max_frames_per_traj, settings)
            env.register_collector(collector)
            groups = self.done_groups = env.done_groups
            interruptor = settings["interruptor"]
            stopped = None if interruptor is None else interruptor.collection_stopped
            metadata = BatchMetadata(collector, env, masks=stopped is not None)
            device, trusted = _device(settings["policy_device"], settings["device"]), bool(settings["trust_policy"])
            acting = self._acting = Acting(name, env, policy, device=device, trusted=trusted)
            acting.compile(settings["compile_policy"])
            if hasattr(policy, "register_collector"):
                policy.register_collector(collector)
            self.agent_declarations = AgentDeclarations.of(acting.policy)
            keeps_states = settings["store_agent_state"] == "all"
            agent = agent_stepper(name, env, acting.policy, groups, keeps_states=keeps_states)
            self.env_batch_size, rows = env.batch_size, env.numel()
            steps = -(-frames // rows)
            self.frames_per_batch, self.parts_of_batch = steps * rows, f"{steps} steps of {rows} environments"
            same = bool(settings["return_same_td"])
            self.batches = BatchMaker(env, acting, agent, metadata, steps=steps, stopped=stopped, same=same)
            self.sole_use = SoleUse(env)
        except BaseException:
            self.abandon()
            raise

    # -- attributes for the collector and steppe-agents -----------------------------------------------------------

    @property
    def policy(self) -> Any:
        """The policy; None for random actions."""
        return self._acting.policy

    @property
    def act(self) -> Callable[[TensorDictBase], TensorDictBase]:
        """The policy as it is called with rows ``[k]``, or the random actions in its place."""
        return self._acting.random if self._acting.in_requests is None else planned(self._acting.in_requests)

    @property
    def env_info_spec(self) -> Composite:
        return self.env.env_info_spec

    @property
    def policy_version(self) -> int:
        return self._acting.version

    @policy_version.setter
    def policy_version(self, version: int) -> None:
        # A worker has the version of its caller.
        self._acting.version = version

    def acting(self) -> AbstractContextManager[Any]:
        """Return the context in which a request lets the policy act; the next batch then begins new episodes."""
        self.batches.forget_root()
        return set_exploration_type(self._collector.exploration_type)

    # -- batches --------------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        if self._collector.closed:
            raise ClosedError(f"{type(self._collector).__name__} is shut down: make a new one.")

    @exclusive("rollout")
    def collect(self, random_frames: int) -> tuple[TensorDictBase, int]:
        self.batch_lost = True
        anew = self._collector.reset_at_each_iter
        self._begin_anew_if_used(goes_on=not anew)
        try:
            with set_exploration_type(self._collector.exploration_type), self.sole_use:
                batch = self.batches.collect(random_frames > 0, anew=anew)
        except BaseException:
            self.batches.forget_root()
            raise
        return batch, self.batches.steps_of_batch * self.env.numel()

    def _begin_anew_if_used(self, *, goes_on: bool = True) -> None:
        """Drop the running episodes if others have used the environment since the last batch.

        Args:
            goes_on: whether the next batch would continue them; a warning says that it does not.
        """
        if not (self.batches.goes_on and self.sole_use.is_broken):
            return
        self.batches.forget_root()
        self._collector.drop_running_trajectories()
        if goes_on:
            warnings.warn(
                f"Something else reset or stepped the environment of this {type(self._collector).__name__} since its "
                f"last data, so its episodes cannot be continued and new trajectories begin. {OWN_ENV}",
                stacklevel=5,
            )

    def number_trajectories(self, first: int, distance: int) -> None:
        self.batches.ids.numbers = first, distance

    def begin_anew(self) -> None:
        self.batches.forget_root()

    def prepare(self) -> Composite | None:
        """Let the policy take the first step of the first batch, unless it has, and say what a batch holds.

        Returns:
            The spec of a whole batch; None if its data has no fixed layout.
        """
        self._begin_anew_if_used()
        with set_exploration_type(self._collector.exploration_type), self.sole_use:
            return self.batches.prepare()

    # -- episodes, seeds, weights ---------------------------------------------------------------------------------

    def reset(self, kwargs: dict[str, Any]) -> None:
        self._begin_anew_if_used(goes_on=False)
        with self.sole_use:
            self.batches.reset(kwargs)

    def set_seed(self, seed: int | Sequence[int] | None, static_seed: bool) -> int | None:
        if isinstance(seed, Sequence):
            (seed,) = seed
        if seed is not None:
            torch.manual_seed(seed)
        following = self.env.set_seed(seed, static_seed=static_seed)
        self._acting.draw_anew()
        return following

    def seed_policies(self, seeds: Sequence[int]) -> None:
        self._acting.seed(seeds[0])

    def call_policy(self, name: str, *args: Any, **kwargs: Any) -> list[Any]:
        return [getattr(self.policy, name)(*args, **kwargs)]

    def call_envs(self, name: str, call: tuple[Any, Any] | None) -> list[Any]:
        attribute = getattr(self.env, name)
        value = attribute if call is None else attribute(*call[0], **call[1])
        return list(value) if isinstance(attribute, Dispatched) else [value]

    def set_in_envs(self, name: str, values: list[object]) -> None:
        setattr(self.env, name, values if isinstance(getattr(self.env, name), Dispatched) else values[0])

    def update_weights(self, weights: Any, attributes: Mapping[str, Any] | None) -> None:
        self._acting.weights.update(weights, attributes)
        self._acting.version += 1

    def state_dict(self) -> dict[str, Any]:
        return {
            "policy_state_dict": self._acting.weights.state_dict(),
            "env_state_dict": dict(self.env.state_dict()),
            "policy_version": self._acting.version,
            "trajectories": self.batches.ids.begun,
        }

    def load_state_dict(self, state_dict: dict[str, Any], *, strict: bool) -> None:
        if state_dict["policy_state_dict"] or strict:
            self._acting.weights.load_state_dict(state_dict["policy_state_dict"], strict=strict)
        self.env.load_state_dict(state_dict["env_state_dict"], strict=strict)
        self._acting.version = state_dict.get("policy_version", 0)
        self.batches.ids.begun = state_dict.get("trajectories", 0)
        self.batches.forget_root()

    def shutdown(self, timeout: float, close_env: bool) -> None:
        self.batches.close()
        self._acting.draw_anew()
        if close_env:
            self.env.close(raise_if_closed=False)

    def abandon(self) -> None:
        if self._made is not None:
            self._made.close(raise_if_closed=False)


def _prepared(env: EnvBase, policy: Any, limit: int, settings: Mapping[str, Any]) -> EnvBase:
    """Return the environment with a limit of steps (0: none) and the transforms of the policy, on its device."""
    if limit and any((key if isinstance(key, str) else key[-1]) == "step_count" for key in env.observation_keys):
        raise SpecError(
            "max_frames_per_traj adds a StepCounter, and the environment has a 'step_count' already: give its "
            "StepCounter max_steps= instead."
        )
    if limit:
        env = TransformedEnv(env, StepCounter(max_steps=limit))
    if settings["auto_register_policy_transforms"]:
        for transform in transforms_for_policy(policy, env):
            env = env.append_transform(transform)
    device = _device(settings["env_device"], settings["device"])
    return env if device is None else env.to(device)


def _device(own: Any, default: Any) -> torch.device | None:
    device = own if own is not None else default
    return None if device is None else torch.device(device)
