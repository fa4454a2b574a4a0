"""given_envs: environments that a caller has made, as factories."""

from __future__ import annotations

from functools import partial
from typing import Any

from steppe.envs import EnvBase
from steppe.errors import SpecError

__all__ = ["given_envs"]


def given_envs(makers: list[Any]) -> list[Any]:
    """Replace environments in a list by factories that return them.

    Raises:
        SpecError: the list has the same environment twice, so two rows would step it.
    """
    envs = [maker for maker in makers if isinstance(maker, EnvBase)]
    if len({id(env) for env in envs}) < len(envs):
        raise SpecError("The list has the same environment twice. Pass a function that makes each environment.")
    return [partial(_itself, maker) if isinstance(maker, EnvBase) else maker for maker in makers]


def _itself(env: EnvBase) -> EnvBase:
    return env
