"""from_torchrl: specs and environments of TorchRL for steppe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, overload

from torchrl.data import TensorSpec
from torchrl.envs import EnvBase as TorchRLEnvBase

from steppe.specs import Spec

from .imported_env import ImportedEnv, import_env
from .specs import spec_from_torchrl

__all__ = ["from_torchrl"]

_AnyEnv: TypeAlias = "TorchRLEnvBase | Callable[[], TorchRLEnvBase]"


@overload
def from_torchrl(source: None) -> None: ...


@overload
def from_torchrl(source: Spec | TensorSpec) -> Spec: ...


@overload
def from_torchrl(source: _AnyEnv, **kwargs: Any) -> ImportedEnv: ...


def from_torchrl(source: Any, **kwargs: Any) -> Any:
    """Convert a spec or an environment of TorchRL to one of steppe.

    Use it for the specs of an environment, a transform or a policy written with TorchRL's classes, and for
    environments that have not been ported::

        self.action_spec = from_torchrl(action_spec)
        env = ParallelEnv(8, lambda: from_torchrl(PendulumEnv()))

    ``make_env("torchrl:PendulumEnv")`` makes an environment of ``torchrl.envs`` by its name.

    >>> from steppe_torchrl import from_torchrl
    >>> from torchrl.data import Bounded
    >>> from torchrl.envs import PendulumEnv
    >>> from_torchrl(Bounded(-1.0, 1.0, shape=(2,)))
    Bounded(low=-1, high=1, shape=(2,), dtype=float32, domain='continuous', device='cpu')
    >>> from_torchrl(PendulumEnv()).rollout(3)["next", "reward"].shape
    torch.Size([3, 1])

    Args:
        source: a spec of ``torchrl.data``, an environment of TorchRL, or a function that makes one. A spec of steppe
            and None are returned unchanged.
        **kwargs: arguments of the function.

    Returns:
        For a spec: an independent, unlocked spec of the class of the same name, with equal shape, dtype, device, domain
        and mask. For an environment: an :class:`~steppe_torchrl.ImportedEnv`, which owns and closes it.

    Raises:
        SpecError: ``source`` is none of these, or steppe has no class for a spec.
        TypeError: the function does not make an environment of TorchRL.
    """
    if isinstance(source, TorchRLEnvBase) or (callable(source) and not isinstance(source, (Spec, TensorSpec))):
        return import_env(source, **kwargs)
    return spec_from_torchrl(source)
