"""EnvMetaData: specs and sample data of an environment, for processes that do not have the environment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDictBase

from steppe.envs import EnvBase
from steppe.specs import Composite

__all__ = ["EnvMetaData", "get_env_metadata"]


@dataclass
class EnvMetaData:
    """Specs and sample data of an environment, picklable.

    ``specs`` and ``tensordict`` have ``expand``, ``clone``, ``to`` and an index.

    >>> import pickle
    >>> from steppe import make_env
    >>> from steppe_torchrl import EnvMetaData
    >>> data = EnvMetaData.metadata_from_env(make_env("gym:CartPole-v1"))
    >>> data.env_str, data.tensordict["observation"].shape
    ('GymEnv(CartPole-v1)', torch.Size([4]))
    >>> pickle.loads(pickle.dumps(data)).specs.expand(8).batch_size
    torch.Size([8])

    Attributes:
        tensordict: zeros for one step, root and ``next``, of batch size ``batch_size``.
        specs: ``input_spec`` and ``output_spec``.
        batch_size: leading dimensions.
        env_str: the ``repr`` of the environment.
        device: the device of its data, or None.
        batch_locked: whether data must have ``batch_size``.
        supports_set_state: whether ``reset(td, set_state=True)`` begins at the state in ``td``.
        device_map: the device of each entry of the sample, by its key; they may differ if ``device`` is None.
    """

    tensordict: TensorDictBase
    specs: Composite
    batch_size: torch.Size
    env_str: str
    device: torch.device | None
    batch_locked: bool
    supports_set_state: bool = False
    device_map: dict[Any, torch.device] | None = None

    def __post_init__(self) -> None:
        if self.device_map is None:
            self.device_map = {
                key: value.device
                for key, value in self.tensordict.items(include_nested=True, leaves_only=True)
                if isinstance(value, torch.Tensor)
            }

    @classmethod
    def metadata_from_env(cls, env: EnvBase) -> EnvMetaData:
        """Return the metadata of an environment."""
        return cls(
            tensordict=env.fake_tensordict(),
            specs=env.specs,
            batch_size=env.batch_size,
            env_str=repr(env),
            device=env.device,
            batch_locked=env.batch_locked,
            supports_set_state=env.supports_set_state,
        )


def get_env_metadata(
    env_or_creator: EnvBase | Callable[..., EnvBase],
    kwargs: dict[str, Any] | None = None,
) -> EnvMetaData:
    """Return the metadata of an environment, or of the one that a function makes.

    >>> from steppe import GymEnv
    >>> from steppe_torchrl import get_env_metadata
    >>> get_env_metadata(GymEnv, {"env_name": "Pendulum-v1"}).specs["input_spec", "full_action_spec", "action"].shape
    torch.Size([1])

    Args:
        env_or_creator: an environment, or a function that makes one, which is closed again.
        kwargs: arguments for the function.
    """
    if not isinstance(env_or_creator, EnvBase):
        with env_or_creator(**(kwargs or {})) as env:
            return EnvMetaData.metadata_from_env(env)
    return EnvMetaData.metadata_from_env(env_or_creator)
