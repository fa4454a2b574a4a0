"""ImportedEnv: an environment of TorchRL as an environment of steppe."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from tensordict import TensorDictBase
from torchrl.envs import ActionMask, TransformedEnv
from torchrl.envs import EnvBase as TorchRLEnvBase

from steppe.envs import EnvBase, system_seed
from steppe.errors import SpecError

from .specs import spec_from_torchrl
from .unequal_rows import padded, unpadded, unpadded_spec

__all__ = ["ImportedEnv", "import_env"]

_SPECS = ("full_observation_spec", "full_action_spec", "full_state_spec", "full_reward_spec", "full_done_spec")


def import_env(env: TorchRLEnvBase | Callable[[], TorchRLEnvBase], **kwargs: Any) -> ImportedEnv:
    """Return an environment of TorchRL as an environment of steppe; see :func:`steppe_torchrl.from_torchrl`.

    Args:
        env: the environment, or a function that makes one.
        **kwargs: arguments of the function.
    """
    if not isinstance(env, TorchRLEnvBase):
        env = env(**kwargs)
    if not isinstance(env, TorchRLEnvBase):
        raise TypeError(f"from_torchrl: expected a function that makes an environment of TorchRL, found {env!r}.")
    drawing = type(_base(env)[0]).rand_action is not TorchRLEnvBase.rand_action
    return (_DrawingEnv if drawing else ImportedEnv)(env)


def _base(env: TorchRLEnvBase) -> tuple[TorchRLEnvBase, dict[Any, Any]]:
    """Return the environment without its transforms, and the masks of actions that they read, by action."""
    masks: dict[Any, Any] = {}
    while isinstance(env, TransformedEnv):
        for transform in env.transform.modules():
            if isinstance(transform, ActionMask):
                action, mask = transform.in_keys
                masks.setdefault(action, mask)
        env = env.base_env
    return env, masks


class ImportedEnv(EnvBase):
    """An environment of TorchRL with the interface of steppe; made by ``from_torchrl`` and ``make_env("torchrl:...")``.

    It is stepped on TensorDicts. Data, masks and seeds mean the same in both libraries and are passed through.

    Attributes that environments of steppe lack are those of the environment of TorchRL.

    >>> from steppe import SerialEnv, make_env
    >>> from steppe_torchrl import ImportedEnv
    >>> isinstance(make_env("torchrl:PendulumEnv"), ImportedEnv)
    True
    >>> SerialEnv(2, "torchrl:PendulumEnv").rollout(3, break_when_any_done=False).shape
    torch.Size([2, 3])

    Attributes:
        env: the environment of TorchRL.

    Raises:
        SpecError: steppe has no spec of the class of an entry; the text names it.
    """

    def __init__(self, env: TorchRLEnvBase) -> None:
        super().__init__(
            device=env.device,
            batch_size=env.batch_size,
            allow_done_after_reset=vars(env).get("_allow_done_after_reset", False),
        )
        self.env = env
        self._batch_locked = env.batch_locked
        self._supports_set_state = bool(getattr(env, "_supports_set_state", False))
        self._unequal = []
        for kind in _SPECS:
            consolidated = _converted(env, kind)
            spec = unpadded_spec(consolidated)
            setattr(self, kind, spec)
            if spec != consolidated:
                self._unequal.append((kind, consolidated))
        self.action_masks = self._masks()

    def _masks(self) -> dict[Any, Any]:
        """Return the entries that TorchRL's wrappers and ``ActionMask`` write into the masks of action specs."""
        masks = _base(self.env)[1]
        observations = set(self.observation_keys)
        for action in self.action_keys:
            beside = (*action[:-1], "action_mask") if isinstance(action, tuple) else "action_mask"
            if beside in observations:
                masks.setdefault(action, beside)
        return {action: mask for action, mask in masks.items() if mask in observations}

    # -- data ---------------------------------------------------------------------------------------------------------

    def _for_torchrl(self, data: TensorDictBase) -> TensorDictBase:
        """Return a copy of data, with the empty entries that TorchRL needs in stacks of unequal rows."""
        out = data.copy()
        for kind, _ in self._unequal:
            out = padded(out, getattr(self.env, kind))
        return out

    def _from_torchrl(self, data: TensorDictBase) -> TensorDictBase:
        for kind, consolidated in self._unequal:
            data = unpadded(data, getattr(self, kind), consolidated)
        return data

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        data = None if tensordict is None else self._for_torchrl(tensordict)
        if self._supports_set_state:
            # TorchRL would begin at a state that data from the last step happens to hold.
            kwargs.setdefault("set_state", False)
        with warnings.catch_warnings():
            # TorchRL warns if rows that are not reset lack their done entries, which steppe merges itself.
            warnings.filterwarnings("ignore", "A partial `'_reset'` key")
            return self._from_torchrl(self.env.reset(data, **kwargs))

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        return self._from_torchrl(self.env.step(self._for_torchrl(tensordict)).get("next"))

    # -- seeds, devices, end of life ----------------------------------------------------------------------------------

    def _set_seed(self, seed: int | None) -> None:
        self.env.set_seed(system_seed() if seed is None else seed)

    def set_seed(self, seed: int | None = None, static_seed: bool = False) -> int | None:
        """Seed the environment and its random actions.

        Returns:
            What ``set_seed`` of the environment of TorchRL returns: the seed for the next environment.
        """
        self.seed_actions(seed)
        following: int | None = self.env.set_seed(system_seed() if seed is None else seed, static_seed)
        return None if seed is None else following

    def to(self, device: Any) -> Any:  # type: ignore[override]
        """Move the environment to a device; return it."""
        self.env = self.env.to(device)
        return super().to(device)

    def close(self, *, raise_if_closed: bool = False) -> None:
        """Close the environment of TorchRL; a second call does nothing."""
        if not self.is_closed and not self.env.is_closed:
            self.env.close()
        super().close(raise_if_closed=raise_if_closed)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            modules = vars(self).get("_modules", {})
            if name.startswith("_") or "env" not in modules:
                raise
        return getattr(modules["env"], name)


class _DrawingEnv(ImportedEnv):
    """An environment whose class draws its own random actions."""

    def rand_action(self, tensordict: TensorDictBase | None = None) -> TensorDictBase:
        """Write random actions into ``tensordict``; return it."""
        drawn: TensorDictBase = self.env.rand_action(tensordict)
        return drawn


def _converted(env: TorchRLEnvBase, kind: str) -> Any:
    try:
        spec = spec_from_torchrl(getattr(env, kind))
    except SpecError as error:
        raise SpecError(f"{type(env).__name__}.{kind}: {error}") from error
    # The specs of TorchRL's batches are on a device even if the batch has none.
    return spec.clear_device_() if env.device is None else spec
