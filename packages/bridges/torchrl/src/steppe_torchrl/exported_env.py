"""ExportedEnv: an environment of steppe as an environment of TorchRL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase, is_tensorclass
from torchrl.data import (
    Categorical,
    Composite,
    MultiOneHot,
    OneHot,
    StackedComposite,
    check_no_exclusive_keys,
    consolidate_spec,
)
from torchrl.envs import EnvBase as TorchRLEnvBase

from steppe.envs import EnvBase, declared_keys, without_private
from steppe.errors import SpecError
from steppe.registry import make_env
from steppe.specs import is_memory

from .specs import to_torchrl
from .unequal_rows import padded

__all__ = ["ExportedEnv", "as_torchrl"]

# Where the specs of an environment are: the attribute of the environment that holds the Composite of each kind.
_SPECS = {
    "output_spec": ("full_observation_spec", "full_reward_spec", "full_done_spec"),
    "input_spec": ("full_action_spec", "full_state_spec"),
}

# TorchRL follows these attributes to the environments that its own classes wrap.
_NOT_FORWARDED = ("base_env", "transform")


def as_torchrl(env: EnvBase | str | Callable[[], EnvBase], **kwargs: Any) -> ExportedEnv:
    """Return an environment of steppe as an environment of TorchRL.

    TorchRL's transforms, batches, collectors and ``check_env_specs`` accept the result::

        env = as_torchrl(ParallelEnv(8, "gym:CartPole-v1"))
        collector = torchrl.collectors.Collector(env, policy, frames_per_batch=1024, total_frames=100_000)

    >>> from steppe import ParallelEnv
    >>> from steppe_torchrl import as_torchrl
    >>> from torchrl.envs import EnvBase
    >>> with ParallelEnv(2, "gym:CartPole-v1") as env:
    ...     exported = as_torchrl(env)  # for the collectors and transforms of TorchRL
    ...     isinstance(exported, EnvBase), exported.rollout(5, break_when_any_done=False)["observation"].shape
    (True, torch.Size([2, 5, 4]))

    Args:
        env: an environment, an id (``"gym:CartPole-v1"``), or a function that makes an environment.
            ``functools.partial(as_torchrl, "gym:CartPole-v1")`` is a factory for TorchRL's ``ParallelEnv``.
        **kwargs: arguments of ``make_env`` if ``env`` is an id, otherwise of the function.

    Returns:
        An :class:`ExportedEnv` with the same batch size, specs, data and seeds. It owns ``env``, and closes it.

    Raises:
        SpecError: TorchRL has no spec of the class of an entry; the text names the entry.
        TypeError: ``env`` is none of these, or there are ``kwargs`` for an environment.
    """
    if isinstance(env, str):
        env = make_env(env, **kwargs)
    elif isinstance(env, EnvBase):
        if kwargs:
            raise TypeError(f"as_torchrl takes arguments for an id or a function, not for an environment: {kwargs}.")
    elif callable(env):
        env = env(**kwargs)
    if not isinstance(env, EnvBase):
        raise TypeError(
            f"as_torchrl takes an environment of steppe, an id or a function that makes one, found "
            f"{type(env).__name__}."
        )
    kind = _DrawingEnv if env.chooses_random_actions else ExportedEnv
    return kind(env)


class ExportedEnv(TorchRLEnvBase):  # type: ignore[misc]
    """An environment of steppe with the interface of TorchRL; made by :func:`as_torchrl`.

    Data, masks (``"_reset"``, ``"_step"``) and seeds mean the same in both libraries and are passed through. Actions
    are validated as in steppe. After each reset and step, the masks of :attr:`steppe.envs.EnvBase.action_masks` in the
    data become the masks of the action spec, as in TorchRL's wrappers, so that random actions respect them.

    Attributes that TorchRL's environments lack are those of the environment of steppe.

    >>> from steppe import make_env
    >>> from steppe_torchrl import ExportedEnv, as_torchrl
    >>> from torchrl.envs import StepCounter, TransformedEnv
    >>> env = as_torchrl(make_env("gym:CartPole-v1"))
    >>> isinstance(env, ExportedEnv), TransformedEnv(env, StepCounter()).rollout(3)["step_count"].flatten()
    (True, tensor([0, 1, 2]))

    Attributes:
        env: the environment of steppe.
    """

    def __init__(self, env: EnvBase) -> None:
        super().__init__(
            device=env.device, batch_size=env.batch_size, allow_done_after_reset=env.allow_done_after_reset
        )
        env.settle_reward_spec()
        self.env = env
        # TorchRL keeps the first in the class, where the environment that is made last would set it for all.
        self._batch_locked = env.batch_locked
        self._supports_set_state = env.supports_set_state
        self._unequal_rows = False
        self._convert_specs()
        self._declared = declared_keys(env)
        # Known after the first reset.
        self._memory: TensorDictBase | None = None
        self._classes: list[tuple[str, ...]] | None = None

    def _convert_specs(self) -> None:
        for side, kinds in _SPECS.items():
            composite = getattr(self, side)
            composite.unlock_(recurse=True)
            for kind in kinds:
                own = getattr(self.env, kind).clone()
                for key in filter(is_memory, list(own.keys(True, True))):
                    del own[key]
                spec = to_torchrl(own).to(self.device)
                if isinstance(spec, StackedComposite):
                    raise SpecError(_rows_differ(self.env, kind))
                if not check_no_exclusive_keys(spec):
                    spec, self._unequal_rows = consolidate_spec(spec), True
                composite[kind] = spec

    # -- data ---------------------------------------------------------------------------------------------------------

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        return self._exported(self.env.reset(None if tensordict is None else self._root(tensordict), **kwargs))

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        data = self._root(tensordict)
        tensordict.pop("_step", None)  # it is for this step only, and must not reach the next root
        return self._exported(self.env.step(data).get("next"))

    def step_and_maybe_reset(self, tensordict: TensorDictBase) -> tuple[TensorDictBase, TensorDictBase]:
        """Take one step, and reset the rows that ended; a batch over workers does both in one round trip."""
        if self._post_step_mdp_hooks is not None or "_step" in tensordict.keys() or self._is_compiled:
            return super().step_and_maybe_reset(tensordict)  # type: ignore[no-any-return]
        if tensordict.device != self.device:
            tensordict = tensordict.to(self.device)
        self._assert_tensordict_shape(tensordict)
        data, root = self.env.step_and_maybe_reset(self._root(tensordict))
        tensordict.set("next", self._exported(data.get("next")))
        return tensordict, self._exported(root)

    @property
    def _is_compiled(self) -> bool:
        return vars(self).get("_compiled_step_and_maybe_reset") is not None

    def _root(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Return a copy of data, with the memory of transforms."""
        data = tensordict.copy()
        if self._memory is not None and self._memory.batch_size == data.batch_size:
            for key in self._memory.keys(include_nested=True, leaves_only=True):
                if data.get(key, None) is None:
                    data.set(key, self._memory.get(key))
        return data

    def _exported(self, data: TensorDictBase) -> TensorDictBase:
        """Return data without private entries, which no spec describes, and update the masks of actions.

        The memory of transforms (stacked frames, for example) is kept for the next step.
        """
        for action, mask in self.env.action_masks.items():
            self._update_mask(action, data.get(mask, None))
        if self._classes is None or self._memory is not None:
            memory = [key for key in data.keys(include_nested=True, leaves_only=True) if is_memory(key)]
            self._memory = data.select(*memory) if memory else None
        data = without_private(data, self._declared)
        if self._classes is None:
            self._classes = list(_unexpected_classes(data, self.output_spec["full_observation_spec"]))
        for key in self._classes:
            data.set(key, data.get(key).to_tensordict())
        if self._unequal_rows:
            for spec in self.output_spec.values():
                data = padded(data, spec)
        return data

    def _update_mask(self, action: NestedKey, mask: torch.Tensor | None) -> None:
        spec = self.input_spec["full_action_spec"][action]
        # Masks of combinations of choices, and of any batch size, have no place in a spec of TorchRL.
        if isinstance(spec, (OneHot, MultiOneHot)):
            expected = tuple(spec.shape)
        elif isinstance(spec, Categorical):
            expected = (*spec.shape, int(spec.n))
        else:
            return
        if mask is None or tuple(mask.shape) != expected:
            return
        # TorchRL cannot draw from a row that allows nothing: the actions of an agent that has ended are not used.
        spec.update_mask(mask | ~mask.any(-1, keepdim=True))

    # -- seeds, actions, devices, end of life -------------------------------------------------------------------------

    def _set_seed(self, seed: int | None) -> None:
        self.env.set_seed(seed)

    def set_seed(self, seed: int | None = None, static_seed: bool = False) -> int | None:
        """Seed the environment; see :meth:`steppe.envs.EnvBase.set_seed`, whose result this method returns."""
        return self.env.set_seed(seed, static_seed)

    def to(self, device: Any) -> Any:
        """Move the environment to a device; return it."""
        self.env.to(device)
        return super().to(device)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the state of the environment of steppe."""
        return self.env.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Load the state of the environment of steppe."""
        return self.env.load_state_dict(*args, **kwargs)

    @property
    def is_closed(self) -> bool:
        """Whether the environment of steppe is closed."""
        return self.env.is_closed

    @is_closed.setter
    def is_closed(self, value: bool) -> None:
        if value:
            self.env.close(raise_if_closed=False)

    def close(self, *, raise_if_closed: bool = True) -> None:
        """Close the environment of steppe."""
        self.env.close(raise_if_closed=raise_if_closed)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            modules = vars(self).get("_modules", {})
            if name.startswith("_") or name in _NOT_FORWARDED or "env" not in modules:
                raise
        return getattr(modules["env"], name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.env!r})"


class _DrawingEnv(ExportedEnv):
    """An environment whose class draws its own random actions."""

    def rand_action(self, tensordict: TensorDictBase | None = None) -> TensorDictBase:
        """Write random actions into ``tensordict``; return it."""
        return self.env.rand_action(tensordict)


def _rows_differ(env: EnvBase, kind: str) -> str:
    spec = getattr(env, kind)
    parts = [{key: tuple(leaf.shape) for key, leaf in part.items(True, True)} for part in spec.unbind(0)]
    differing = sorted({key for part in parts for key in part if part.get(key) != parts[0].get(key)} | set(), key=str)
    shapes = [part.get(differing[0], "no entry") for part in parts] if differing else []
    return (
        f"as_torchrl: the environments of this {type(env).__name__} have different entries in {kind}: {differing}, "
        f"with the shapes {shapes}. TorchRL needs one spec for all: pad the entries in them, or export them "
        "one by one."
    )


def _unexpected_classes(data: Any, spec: Any) -> Iterator[tuple[str, ...]]:
    """Yield the keys of tensorclasses that the spec describes as TensorDicts, because TorchRL indexes those."""
    if not isinstance(spec, Composite):  # rows of a stack may have different entries
        return
    for name, entry in spec.items():
        value = data.get(name, None) if isinstance(entry, Composite) else None
        if value is not None and is_tensorclass(value) and entry.data_cls is None:
            yield (name,)
        elif value is not None:
            yield from ((name, *key) for key in _unexpected_classes(value, entry))
