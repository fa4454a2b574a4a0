"""Methods and attributes of TorchRL's classes that the classes of steppe lack.

:func:`add_methods` adds them, when a program imports :mod:`steppe_torchrl.names`. None replaces a method of steppe.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

from tensordict import TensorDict

from steppe import (
    Collector,
    Compose,
    DataCollectorBase,
    EnvBase,
    EnvCreator,
    InitTracker,
    Spec,
    StepCounter,
    Transform,
    TransformedEnv,
)
from steppe.errors import LibraryMissing

from .env_metadata import EnvMetaData, get_env_metadata

__all__ = ["add_methods"]


def _auto_specs_(self: EnvBase, policy: Any, **kwargs: Any) -> EnvBase:
    """Infer the specs of the environment from two steps; see ``steppe_testing.auto_specs_``."""
    try:
        kit = import_module("steppe_testing")
    except ImportError:
        raise LibraryMissing("auto_specs_ is in steppe-testing: pip install 'steppe[testing]'.") from None
    return kit.auto_specs_(self, policy, **kwargs)  # type: ignore[no-any-return]


def _empty_transform(self: TransformedEnv) -> None:
    """Remove all transforms."""
    self.transform = Compose()


def _init(self: Transform, tensordict: Any) -> None:
    """Do nothing: specs and the first reset prepare a transform."""


def _keys(name: str | None, attribute: str = "") -> property:
    """Return a property that lists an entry at each level with done entries; the root before there is an environment.

    Args:
        name: the name of the entry.
        attribute: the attribute of the transform that holds the name.
    """

    def keys(self: Any) -> list[Any]:
        entry = getattr(self, attribute) if name is None else name
        parent = self.parent
        return [entry] if parent is None else [group.key(entry) for group in parent.done_groups]

    keys.__doc__ = f"The keys of {name or attribute}, one for each level with done entries."
    return property(keys)


def _all_keys(name: str) -> property:
    """Return a property that lists the keys of a done entry in all levels of the environment that have it."""

    def keys(self: Any) -> list[Any]:
        parent = self.parent
        return [] if parent is None else [group.key(name) for group in parent.done_groups if name in group.names]

    keys.__doc__ = f"The keys of {name} in the environment."
    return property(keys)


def _full_done_spec(self: StepCounter) -> Any:
    """The done spec of the environment before the transform; None without an environment."""
    return None if self.parent is None else self.parent.full_done_spec


def _rollout(self: Any) -> Any:
    """Collect and return the next batch."""
    return self.next()


def _policy_weights(self: Any) -> Any:
    """The weights of the policy; an empty TensorDict without a module."""
    return TensorDict.from_module(self.policy) if hasattr(self.policy, "parameters") else TensorDict()


def _get_policy_version(self: Any) -> int:
    """Return the version of the weights of the policy."""
    return int(self.policy_version)


def _get_distant_attr(self: Any, attr: str) -> Any:
    """Return an attribute by its path, such as ``"env.batch_size"``."""
    return operator.attrgetter(attr)(self)


def _getattr_env(self: Any, attr: str) -> Any:
    """Return an attribute of the environment by its path."""
    return operator.attrgetter(attr)(self.env)


def _getattr_policy(self: Any, attr: str) -> Any:
    """Return an attribute of the policy by its path."""
    return operator.attrgetter(attr)(self.policy)


def _getattr_rb(self: Any, attr: str) -> Any:
    """Return an attribute of the replay buffer by its path."""
    return operator.attrgetter(attr)(self.replay_buffer)


def _get_model(self: Any, model_id: str = "policy") -> Any:
    """Return the policy, which is the only model of a collector."""
    if model_id != "policy":
        raise ValueError(f"A collector has one model, 'policy', found {model_id!r}.")
    return self.policy


def _init_(self: EnvCreator) -> EnvCreator:
    """Return the creator itself: it makes no environment in advance."""
    return self


def _meta_data(self: EnvCreator) -> EnvMetaData:
    """Specs, batch size, device and keys of an environment. Each access makes an environment and closes it."""
    return get_env_metadata(self)


def _ndimension(self: Spec) -> int:
    """Return the number of dimensions of the shape."""
    return self.ndim


def _metadata(change: Callable[..., Any]) -> Callable[..., EnvMetaData]:
    """Return a method that changes the sample and the specs of metadata."""

    def method(self: EnvMetaData, *args: Any) -> EnvMetaData:
        data, specs = change(self.tensordict, *args), change(self.specs, *args)
        return replace(self, tensordict=data, specs=specs, batch_size=data.batch_size, device=data.device)

    return method


def _expanded(value: Any, *size: Any) -> Any:
    sizes = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
    return value.expand(*sizes, *value.batch_size)


# By class: what is added to it.
_ADDED: dict[type, dict[str, Any]] = {
    # TorchRL checks the first step of an environment and then sets `validated`, and so does steppe, by itself.
    EnvBase: {"auto_specs_": _auto_specs_, "validated": True},
    TransformedEnv: {"empty_transform": _empty_transform},
    Transform: {"init": _init},
    StepCounter: {
        "step_count_keys": _keys(None, "step_count_key"),
        "truncated_keys": _keys(None, "truncated_key"),
        "terminated_keys": _keys("terminated"),
        "done_keys": _keys("done"),
        "reset_keys": _keys("_reset"),
        "all_done_keys": _all_keys("done"),
        "all_truncated_keys": _all_keys("truncated"),
        "full_done_spec": property(_full_done_spec),
    },
    InitTracker: {"init_keys": _keys(None, "init_key"), "reset_keys": _keys("_reset")},
    Spec: {"ndimension": _ndimension},
    DataCollectorBase: {
        "rollout": _rollout,
        "policy_weights": property(_policy_weights),
        "get_policy_version": _get_policy_version,
        "get_distant_attr": _get_distant_attr,
    },
    Collector: {
        "getattr_env": _getattr_env,
        "getattr_policy": _getattr_policy,
        "get_model": _get_model,
        "getattr_rb": _getattr_rb,
    },
    EnvCreator: {"init_": _init_, "meta_data": property(_meta_data)},
    EnvMetaData: {
        "expand": _metadata(_expanded),
        "clone": _metadata(lambda value: value.clone()),
        "to": _metadata(lambda value, device: value.to(device)),
        "__getitem__": _metadata(lambda value, index: value[index]),
    },
}


def add_methods() -> None:
    """Add the methods and attributes that are missing. A second call does nothing."""
    for cls, added in _ADDED.items():
        for name, value in added.items():
            if not hasattr(cls, name):
                setattr(cls, name, value)
