"""Plugin hooks of the namespace ``torchrl:``.

Importing this module imports neither TorchRL nor torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from steppe.registry import hookimpl


@hookimpl
def steppe_make_env(name: str, kwargs: dict[str, Any]) -> Any:
    """Make an environment of TorchRL by the name of its class, with the arguments of that class."""
    from .imported_env import import_env
    from .names_of_envs import env_class

    return import_env(env_class(name), **kwargs)


@hookimpl
def steppe_env_names() -> Iterable[str]:
    """List the environments that come with TorchRL and need no arguments."""
    from .names_of_envs import env_names

    return env_names()
