"""What others make of an environment: workers of a batch, an id of gym's, the data of a collector."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from steppe.errors import NotSupported

__all__ = ["Uses"]


class Uses:
    """The part of :class:`~steppe.envs.EnvBase` that hands environments on."""

    # -- batches --------------------------------------------------------------------------------------------------

    @classmethod
    def make_parallel(cls, create_env_fn: Any, *, num_envs: int = 1, **kwargs: Any) -> Any:
        """Return ``ParallelEnv(num_envs, create_env_fn, **kwargs)``; see :class:`~steppe.batched.ParallelEnv`."""
        from steppe.batched import ParallelEnv

        return ParallelEnv(num_envs, create_env_fn, **kwargs)

    def configure_parallel(self, **kwargs: Any) -> Any:
        """Change how the workers of a :class:`~steppe.batched.ParallelEnv` run, before they start.

        Raises:
            NotSupported: there are no workers.
        """
        raise NotSupported(
            f"{type(self).__name__} has no workers to configure. Give {sorted(kwargs) or 'such arguments'} to "
            "ParallelEnv."
        )

    # -- other libraries ------------------------------------------------------------------------------------------

    @classmethod
    def register_gym(
        cls,
        id: str,
        *,
        entry_point: str | Callable[..., Any] | None = None,
        transform: Any = None,
        **kwargs: Any,
    ) -> None:
        """Let ``gymnasium.make(id)`` (or gym's) make environments of this class.

        >>> PendulumEnv.register_gym("Swing-v0", max_episode_steps=200)  # doctest: +SKIP

        Args:
            id: what the library's ``make`` will know it by.
            entry_point: what makes the environment instead of this class: an id of steppe's, or a callable.
            transform: appended to the environment, a clone for each.
            **kwargs: ``backend``, ``info_keys``, ``to_numpy``, ``max_episode_steps``, ``reward_threshold`` and
                ``nondeterministic``, see ``steppe_gym.register_gym``; others are for the environment.

        Raises:
            PluginNotFound: steppe-gym is not installed.
        """
        from steppe.registry import make_env, register_with_library

        made = cls if entry_point is None else entry_point
        if transform is None:
            register_with_library("gym", id, made, **kwargs)
            return

        def transformed(**given: Any) -> Any:
            env = make_env(made, **given) if isinstance(made, str) else made(**given)
            return env.append_transform(transform.clone() if hasattr(transform, "clone") else transform)

        register_with_library("gym", id, transformed, **kwargs)

    # -- collectors -----------------------------------------------------------------------------------------------

    def register_collector(self, collector: Any) -> None:
        """Remember, weakly, the collector that steps this environment, for transforms that ask it something."""
        self.__dict__["_collector"] = weakref.ref(collector)

    @property
    def collector(self) -> Any:
        """The collector that steps this environment, or None."""
        reference = self.__dict__.get("_collector")
        return None if reference is None else reference()
