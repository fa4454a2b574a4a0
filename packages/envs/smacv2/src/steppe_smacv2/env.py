"""SMACv2Env: make battles of SMACv2 by the names of their maps."""

from __future__ import annotations

import copy
import random
from typing import Any

import numpy as np
import torch

from steppe.envs import base_arguments
from steppe.registry import env_not_found

from .names import map_names
from .wrapper import SMACv2Wrapper

__all__ = ["SMACv2Env", "SMACv2Wrapper"]


class SMACv2Env(SMACv2Wrapper):
    """Make a battle of SMACv2 by the name of its map.

    See :class:`SMACv2Wrapper` for the data.

    >>> from steppe_smacv2 import SMACv2Env
    >>> env = SMACv2Env("3m")  # three marines against three
    >>> env.rollout(3)["agents", "action_mask"].shape  # random actions respect the masks
    torch.Size([3, 3, 9])

    Args:
        map_name: a name of ``SMACv2Env.available_envs``. Maps ``"10gen_..."`` need a ``capability_config``.
        capability_config: how teams and positions are drawn for each episode, as SMACv2 takes it. It is copied.
        seed: seed of StarCraft and of the draws. ``None``: a random one.
        categorical_actions: see :class:`SMACv2Wrapper`.
        device: device of the data.
        **kwargs: for :class:`steppe.EnvBase`; all others go to ``StarCraft2Env``: ``difficulty``, ``reward_sparse``,
            ``conic_fov``, ``obs_own_pos``, ...

    ``set_seed`` makes a new battle, because StarCraft takes a seed only when it is launched, and seeds the generators
    that draw teams and positions. Attacks that may fail (``capability_config["attack"]``) cannot be seeded.

    Raises:
        EnvNotFound: there is no such map.
    """

    def __init__(
        self,
        map_name: str,
        capability_config: dict[str, Any] | None = None,
        seed: int | None = None,
        categorical_actions: bool = True,
        *,
        device: torch.device | str | int | None = None,
        **kwargs: Any,
    ) -> None:
        if map_name not in (names := map_names()):
            raise env_not_found("smacv2", map_name, names=names)
        base_kwargs = base_arguments(kwargs)
        settings = {"map_name": map_name, "capability_config": capability_config, **kwargs}
        super().__init__(_make(settings, seed), categorical_actions, device=device, **base_kwargs)
        self.__dict__["_settings"] = settings
        if seed is not None:
            self.__dict__["_shuffling"] = random.Random(seed).getstate()

    def _set_seed(self, seed: int | None) -> None:
        value = int(np.random.default_rng().integers(2**31)) if seed is None else int(seed) % 2**31
        self._env.close()
        state = self.__dict__
        self.wrap_library(_make(self._settings, value))
        state["_available"] = None
        state["_shuffling"] = random.Random(value).getstate()


def _make(settings: dict[str, Any], seed: int | None) -> Any:
    from smacv2.env import StarCraft2Env, StarCraftCapabilityEnvWrapper

    settings = {**settings, "seed": seed}
    if settings["capability_config"] is None:
        del settings["capability_config"]
        return StarCraft2Env(**settings)
    # The library writes into the configuration.
    env = StarCraftCapabilityEnvWrapper(
        **{**settings, "capability_config": copy.deepcopy(settings["capability_config"])}
    )
    if seed is not None:
        seeds = np.random.SeedSequence(seed)
        for distribution in env.env_key_to_distribution_map.values():
            _seed_generators(distribution, seeds)
    return env


def _seed_generators(distribution: Any, seeds: np.random.SeedSequence) -> None:
    """Seed the generator of a distribution, and those of the distributions inside it."""
    for name, value in vars(distribution).items():
        if isinstance(value, np.random.Generator):
            setattr(distribution, name, np.random.default_rng(seeds.spawn(1)[0]))
        elif hasattr(value, "generate") or hasattr(value, "rng"):
            _seed_generators(value, seeds)
