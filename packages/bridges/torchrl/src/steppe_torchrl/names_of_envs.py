"""The classes of environments of ``torchrl.envs``, by name."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

import torchrl.envs
from torchrl.envs import EnvBase as TorchRLEnvBase

from steppe import env_not_found

__all__ = ["env_class", "env_names"]

# Modules of TorchRL's own environments; the others wrap libraries that steppe has packages for.
_OWN = "torchrl.envs.custom."


def env_class(name: str) -> Any:
    """Return the class of an id: ``PendulumEnv`` of ``torchrl.envs``, or ``package.module:Class`` of other code.

    Raises:
        EnvNotFound: there is no such class.
        ImportError: the module cannot be imported.
    """
    module, _, attribute = name.rpartition(":")
    home = import_module(module) if module else torchrl.envs
    found = getattr(home, attribute, None)
    if not (inspect.isclass(found) and issubclass(found, TorchRLEnvBase)):
        raise env_not_found("torchrl", name)
    return found


def env_names() -> list[str]:
    """Return the names of TorchRL's own environments that can be made without arguments."""
    return sorted(
        name
        for name, found in _classes().items()
        if found.__module__.startswith(_OWN) and not inspect.isabstract(found) and not _required(found)
    )


def _classes() -> dict[str, Any]:
    found = {name: getattr(torchrl.envs, name) for name in dir(torchrl.envs)}
    return {
        name: value for name, value in found.items() if inspect.isclass(value) and issubclass(value, TorchRLEnvBase)
    }


def _required(found: Any) -> list[str]:
    """Return the arguments that a class needs."""
    parameters = inspect.signature(found.__init__).parameters.values()
    return [
        each.name
        for each in list(parameters)[1:]
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
