"""GymEnv: an environment of gym or gymnasium by its name."""

from __future__ import annotations

import functools
from contextlib import nullcontext
from typing import Any

from steppe.batched import ParallelEnv
from steppe.versions import set_gym_backend

from .compat import Adapter, adapter_for
from .making import make_batch, make_single
from .names import available_names
from .wrapper import GymWrapper

__all__ = ["GymEnv"]

# What EnvBase takes; everything else in GymEnv's keyword arguments is the library's.
_OWN = (
    "batch_size",
    "run_type_checks",
    "allow_done_after_reset",
    "spec_locked",
    "auto_reset",
    "auto_reset_replace",
    "missing_obs_value",
    "convert_actions_to_numpy",
    "native_autoreset",
)


class GymEnv(GymWrapper):
    """Make an environment of gym or gymnasium by its name, and wrap it.

    The library is the one that ``set_gym_backend`` chose: gymnasium where nobody chose and it is installed.

    >>> env = GymEnv("Pendulum-v1", frame_skip=2)
    >>> env.rollout(3)["observation"].shape
    torch.Size([3, 3])

    Args:
        env_name: the id, as the library knows it: ``"CartPole-v1"``, ``"ALE/Pong-v5"``, ``"my.module:Env-v0"``.
        num_envs: 0 makes one environment; more makes the library's vector environment, a batch ``[num_envs]``.
        num_workers: more than 1 makes a :class:`~steppe.batched.ParallelEnv` of this many such environments instead.
        backend: the library to make it with, as ``set_gym_backend`` takes it; that in force where None.
        categorical_action_encoding: discrete values as integers instead of one-hot rows.
        frame_skip: how many times an action is repeated.
        from_pixels: render a frame at each step and add it as ``"pixels"``, ``[H, W, 3]`` uint8.
        pixels_only: leave the library's own observation out where there are pixels.
        device: where data comes out and goes in.
        vectorization_mode: with ``num_envs``: ``"sync"``, ``"async"``, or ``"vector_entry_point"`` for the
            environment's own batch. None takes ``"sync"``; in versions whose vector environments lose observations or
            steps (gym before 0.22, gymnasium 1.0) the batch is stepped by this package.
        vector_kwargs: with ``num_envs``: for the library's vector environment, such as ``{"autoreset_mode": ...}``.
        disable_env_checker: False runs the library's own checker around the environment. None runs none: what the
            environment returns is checked against its spaces anyway.
        **kwargs: for the library's ``make``; those of :class:`steppe.envs.EnvBase` (``auto_reset``, ...) go there.

    Raises:
        EnvNotFound: the library has no such environment.
        LibraryMissing: the environment needs a package that is not installed.
    """

    #: The namespace that errors speak of.
    namespace = "gym"

    def __init__(
        self,
        env_name: str,
        num_envs: int | None = 0,
        *,
        num_workers: int = 1,
        backend: Any = None,
        categorical_action_encoding: bool = False,
        frame_skip: int | None = None,
        from_pixels: bool = False,
        pixels_only: bool = True,
        device: Any = None,
        disable_env_checker: bool | None = None,
        **kwargs: Any,
    ) -> None:
        own = {key: kwargs.pop(key) for key in _OWN if key in kwargs}
        with nullcontext() if backend is None else set_gym_backend(backend):
            adapter = adapter_for()
        if from_pixels:
            kwargs.setdefault("render_mode", "rgb_array")
        speaking = {"namespace": self.namespace, "list_names": self._list_names}
        single = functools.partial(make_single, adapter, env_name, disable_env_checker=disable_env_checker, **speaking)
        if num_envs:
            env = make_batch(
                adapter,
                env_name,
                single,
                num_envs,
                classes=self._vector_classes(adapter),
                from_pixels=from_pixels,
                pixels_only=pixels_only,
                frame_skip=frame_skip,
                **speaking,
                **kwargs,
            )
        else:
            env = single(**kwargs)
        super().__init__(
            env,
            categorical_action_encoding=categorical_action_encoding,
            frame_skip=None if num_envs else frame_skip,
            from_pixels=from_pixels and not num_envs,
            pixels_only=pixels_only,
            device=device,
            **own,
        )
        self.__dict__["name"] = self.__dict__["env_name"] = env_name

    def __new__(cls, *args: Any, num_workers: int = 1, **kwargs: Any) -> Any:
        """Make the object, or of several workers a batch of environments."""
        if num_workers == 1:
            return super().__new__(cls)
        return ParallelEnv(num_workers, functools.partial(cls, *args, **kwargs))

    @classmethod
    def _list_names(cls) -> list[str]:
        """The names that errors suggest from."""
        return available_names()

    @classmethod
    def _vector_classes(cls, adapter: Adapter) -> dict[str, Any]:
        """The library's vector environments by ``vectorization_mode``."""
        vector = adapter.submodule("vector")
        return {"sync": vector.SyncVectorEnv, "async": vector.AsyncVectorEnv}
