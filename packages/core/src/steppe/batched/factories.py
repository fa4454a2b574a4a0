"""Factories of environments: ids, callables, EnvCreators and lists of them become callables for workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from steppe.arguments import ignored_argument
from steppe.envs import EnvBase
from steppe.errors import ArgumentError
from steppe.registry import env_factory

__all__ = ["EnvCreator", "as_factory", "each_of", "env_creator", "factories_of"]


class EnvCreator:
    """A factory with its arguments.

    Args:
        create_env_fn: a callable that makes an environment, or an id.
        create_env_kwargs: keyword arguments for it.
        share_memory: an argument of TorchRL, without an effect and with a warning: workers do not share the state of an
            environment.
        **kwargs: more keyword arguments for it.
    """

    def __init__(
        self,
        create_env_fn: Any,
        create_env_kwargs: dict[str, Any] | None = None,
        share_memory: bool | None = None,
        **kwargs: Any,
    ) -> None:
        if share_memory is not None:
            ignored_argument("EnvCreator", "share_memory", "each worker has its own environment and its state")
        if create_env_kwargs is not None and not isinstance(create_env_kwargs, Mapping):
            raise ArgumentError(
                "EnvCreator takes one function; create_env_kwargs is a dict of its keyword arguments, found "
                f"{create_env_kwargs!r}."
            )
        self.create_env_fn = create_env_fn
        self.create_env_kwargs = {**(create_env_kwargs or {}), **kwargs}

    def make_variant(self, **kwargs: Any) -> EnvCreator:
        """Return a copy of this factory with some arguments changed."""
        return EnvCreator(self.create_env_fn, {**self.create_env_kwargs, **kwargs})

    def state_dict(self) -> dict[str, Any]:
        """Return the state of an environment that is made for this and closed."""
        with self() as env:
            return dict(env.state_dict())

    def __call__(self, **kwargs: Any) -> Any:
        """Make an environment."""
        return _with_arguments(self.create_env_fn, {**self.create_env_kwargs, **kwargs})()

    def __repr__(self) -> str:
        return f"EnvCreator({self.create_env_fn!r}, {self.create_env_kwargs!r})"


def env_creator(function: Callable[..., Any]) -> EnvCreator:
    """Decorate a function that makes an environment: it becomes an :class:`EnvCreator`."""
    return EnvCreator(function)


def as_factory(value: Any) -> Callable[..., Any]:
    """Turn an id into a factory; take a callable as it is."""
    if isinstance(value, str):
        return env_factory(value)
    if isinstance(value, EnvBase):
        raise ArgumentError(
            f"A batch needs a factory, found an environment, {value!r}. Pass a function that makes one: lambda: make()."
        )
    if not callable(value):
        raise ArgumentError(f"A factory is an id or a callable, found {type(value).__name__}.")
    make: Callable[..., Any] = value
    return make


def each_of(create_env_fn: Any, n: int, kwargs: Any) -> tuple[list[Any], list[dict[str, Any]]]:
    """Return the factory and the arguments of each of ``n`` environments, from one for all or a list."""
    functions = list(create_env_fn) if isinstance(create_env_fn, (list, tuple)) else [create_env_fn] * n
    if len(functions) != n:
        raise ArgumentError(f"{n} environments need {n} factories, found {len(functions)}.")
    arguments = list(kwargs) if isinstance(kwargs, (list, tuple)) else [kwargs] * n
    if len(arguments) != n:
        raise ArgumentError(f"{n} environments need {n} create_env_kwargs, found {len(arguments)}.")
    return functions, [dict(kwargs or {}) for kwargs in arguments]


def factories_of(functions: list[Any], arguments: list[dict[str, Any]]) -> list[Callable[[], Any]]:
    """Return a callable without arguments for each environment."""
    return [_with_arguments(function, kwargs) for function, kwargs in zip(functions, arguments, strict=True)]


def _with_arguments(function: Any, kwargs: dict[str, Any]) -> Callable[[], Any]:
    if isinstance(function, str):
        return env_factory(function, **kwargs)
    made = as_factory(function)
    return partial(made, **kwargs) if kwargs else made
