"""Acting: calls the policy of a collector on its device, or draws random actions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from tensordict import TensorDictBase

from steppe.collectors.planning import planned
from steppe.collectors.weights import Weights
from steppe.envs import EnvBase, RandomActions, as_policy, called_with, on_device, policy_name, with_written
from steppe.errors import PolicyError, SteppeError

__all__ = ["Acting", "first_call"]

_Act = Callable[[TensorDictBase], TensorDictBase]


class Acting:
    """The policy of a collector in this process, or random actions.

    Args:
        name: of the collector, for errors.
        env: the environment that takes the actions.
        policy: the caller's policy; None for random actions.
        device: where the policy acts; None for the device of its weights.
        trusted: the policy takes and returns a TensorDict, so no adapter is needed.

    Attributes:
        trusted: see above.
        weights: the weights of the policy.
        version: how many times the policy was updated.
        in_requests: calls the policy with rows; None without a policy.
    """

    def __init__(self, name: str, env: EnvBase, policy: Any, *, device: torch.device | None, trusted: bool) -> None:
        self._name, self.env, self._device, self.trusted = name, env, device, trusted
        self.weights = Weights(policy, device)
        self.version = 0
        self.in_requests: _Act | None = None if policy is None else self._adapted()
        self._random: RandomActions | None = None
        self._has_acted = False  # whether the first call of the policy in a batch has succeeded

    def _adapted(self) -> _Act:
        """Return the policy as a function of TensorDicts on the device of the environment."""
        policy = self.weights.policy
        act = policy if self.trusted else as_policy(policy, self.env)
        policy_device, env_device = self.weights.device or self._device, self.env.device
        # With policy_device=, the policy may read the device of its TensorDict, so that is set even if the environment
        # has none.
        needs_no_device = env_device or (torch.device("cpu") if self._device is None else None)
        if policy_device is not None and policy_device != needs_no_device:
            act = on_device(act, policy_device, env_device or torch.device("cpu"))
        return act

    @property
    def policy(self) -> Any:
        """The policy that is called: the caller's, or its copy on another device; None for random actions."""
        return self.weights.policy

    @property
    def random(self) -> RandomActions:
        """The stream of random actions."""
        if self._random is None:
            self._random = RandomActions(self.env)
        return self._random

    def draw_anew(self) -> None:
        """Restart the stream of random actions, after the environment was seeded."""
        self._random = None

    def compile(self, compile_policy: bool | Mapping[str, Any] | None) -> None:
        """Apply ``torch.compile`` to the call of the policy.

        Args:
            compile_policy: True, or keyword arguments of ``torch.compile``; None or False: do not compile.
        """
        act: Any = self.in_requests  # torch.compile has a type of its own
        if act is not None and compile_policy is not None and compile_policy is not False:
            settings = dict(compile_policy) if isinstance(compile_policy, Mapping) else {}
            settings.pop("warmup", None)  # TorchRL's number of calls before it compiles
            self.in_requests = torch.compile(act, **settings)

    def in_batch(self, random: bool) -> _Act:
        """Return the function that chooses the actions of the next batch.

        Args:
            random: take random actions without calling the policy.
        """
        if random or self.in_requests is None:
            return self.random
        act = planned(self.in_requests)
        if self._has_acted:
            return act

        def checking_first(root: TensorDictBase) -> TensorDictBase:
            if self._has_acted:
                return act(root)
            root = first_call(self._name, self.policy, act, root, trusted=self.trusted)
            self._has_acted = True
            return root

        return checking_first

    def seed(self, number: int) -> None:
        """Seed torch, and the policy itself if it has a method ``seed``."""
        torch.manual_seed(number)
        seed_policy = getattr(self.policy, "seed", None)
        if callable(seed_policy):
            seed_policy(number)


def first_call(name: str, policy: object, act: _Act, root: TensorDictBase, *, trusted: bool) -> TensorDictBase:
    """Call a policy for the first time, with errors that name the policy and its input.

    Args:
        name: of the collector, for errors.
        policy: the caller's policy, for errors.
        act: calls the policy.
        root: data from the environment.
        trusted: do not convert errors of the policy to PolicyError.

    Returns:
        ``root``, updated with the output of the policy.

    Raises:
        PolicyError: the policy raised an error, or returned something else than a TensorDict.
    """
    try:
        acted = act(root)
    except SteppeError:
        raise
    except Exception as error:
        if trusted:
            raise
        raise PolicyError(
            f"{name}: the policy {policy_name(policy)} does not act on what the environment gives it: "
            f"{type(error).__name__}: {error}. It was called with {called_with(policy, root)}."
        ) from error
    return with_written(root, acted)
