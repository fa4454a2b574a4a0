"""GymEnv: an environment of gym or gymnasium by its name."""

from __future__ import annotations

import functools
from contextlib import nullcontext
from typing import Any

from steppe.envs import MadeByName
from steppe.versions import set_gym_backend

from .compat import Adapter, adapter_for
from .making import make_batch, make_single, repeats_actions
from .names import available_names
from .skipping import checked_frame_skip
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


class GymEnv(MadeByName, GymWrapper):
    """Make an environment of gym or gymnasium by its name, and wrap it.

    The library is the one that ``set_gym_backend`` chose: gymnasium where nobody chose and it is installed.

    >>> env = GymEnv("Pendulum-v1", frame_skip=2)
    >>> env.rollout(3)["observation"].shape
    torch.Size([3, 3])

    Args:
        env_name: the id, as the library knows it: ``"CartPole-v1"``, ``"ALE/Pong-v5"``, ``"my.module:Env-v0"``.
        num_envs: 0 makes one environment; more makes the library's vector environment, a batch ``[num_envs]``.
        num_workers: more than 1 makes a :class:`~steppe.batched.ParallelEnv` of this many such environments instead;
            with ``num_envs``, of so many batches.
        backend: the library to make it with, as ``set_gym_backend`` takes it; that in force where None.
        categorical_action_encoding: discrete values as integers instead of one-hot rows.
        frame_skip: how many times an action is repeated. An environment that does so itself (those of ALE, four times
            by default) is told the number; None leaves it as its library has it.
        from_pixels: render a frame at each step and add it as ``"pixels"``, ``[H, W, 3]`` uint8.
        pixels_only: leave the library's own observation out where there are pixels.
        device: where data comes out and goes in.
        vectorization_mode: with ``num_envs``: ``"sync"``, ``"async"``, or ``"vector_entry_point"`` for the
            environment's own batch. None takes ``"sync"``; in versions whose vector environments lose observations or
            steps (gym before 0.22, gymnasium 1.0) the batch is stepped by this package.
        vector_kwargs: with ``num_envs``: for the library's vector environment, such as ``{"autoreset_mode": ...}``.
        disable_env_checker: False runs the library's own checker around the environment. None runs none: what the
            environment returns is checked against its spaces anyway.
        **kwargs: for the library's ``make``; those of :class:`GymWrapper` (``missing_obs_value``, ...) and of
            :class:`steppe.envs.EnvBase` (``auto_reset``, ...) go there.

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
        num_workers: int | None = None,
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
        made_of = {
            "env_name": env_name,
            "num_envs": num_envs,
            "backend": backend,
            "frame_skip": frame_skip,
            "from_pixels": from_pixels,
            "pixels_only": pixels_only,
            "disable_env_checker": disable_env_checker,
            **kwargs,
        }
        env, repeats = self._make(**made_of)
        super().__init__(
            env,
            categorical_action_encoding=categorical_action_encoding,
            frame_skip=repeats,
            from_pixels=from_pixels and not num_envs,
            pixels_only=pixels_only,
            device=device,
            **own,
        )
        self._remember(made_of, repeats)

    def _make(
        self,
        env_name: str,
        num_envs: int | None,
        backend: Any,
        frame_skip: int | None,
        from_pixels: bool,
        pixels_only: bool,
        **kwargs: Any,
    ) -> tuple[Any, int | None]:
        """Make the library's environment; returns it, and how often its wrapper repeats an action."""
        with nullcontext() if backend is None else set_gym_backend(backend):
            adapter = adapter_for()
        if from_pixels:
            kwargs.setdefault("render_mode", "rgb_array")
        speaking: dict[str, Any] = {"namespace": self.namespace, "list_names": self._list_names}
        if frame_skip is not None and repeats_actions(adapter, env_name):
            # ALE's games repeat actions themselves, four times unless they are told otherwise.
            if "frameskip" in kwargs:
                raise TypeError(
                    f"{env_name!r} repeats actions itself, frameskip={kwargs['frameskip']!r} times; frame_skip="
                    f"{frame_skip!r} says the same in another way: give one of them."
                )
            checked_frame_skip(frame_skip)
            kwargs["frameskip"], frame_skip = frame_skip, None
        checker = kwargs.pop("disable_env_checker", None)
        single = functools.partial(make_single, adapter, env_name, disable_env_checker=checker, **speaking)
        if not num_envs:
            return single(**kwargs), frame_skip
        batch = make_batch(
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
        return batch, None

    def rebuild_with_kwargs(self, **kwargs: Any) -> None:
        made_of = {**self._constructor_kwargs, **kwargs}
        old = self._env
        env, repeats = self._make(**made_of)
        pixels = made_of["from_pixels"] and not made_of["num_envs"]
        self._take_another(env, from_pixels=pixels, pixels_only=made_of["pixels_only"])
        self._remember(made_of, repeats)
        old.close()

    rebuild_with_kwargs.__doc__ = GymWrapper.rebuild_with_kwargs.__doc__

    def _remember(self, made_of: dict[str, Any], repeats: int | None) -> None:
        self.__dict__["_constructor_kwargs"] = made_of
        self.__dict__["name"] = self.__dict__["env_name"] = made_of["env_name"]
        self.frame_skip = made_of["frame_skip"] or 1
        self.wrapper_frame_skip = None if repeats == made_of["frame_skip"] else 1

    @classmethod
    def _list_names(cls) -> list[str]:
        """The names that errors suggest from."""
        return available_names()

    @classmethod
    def _vector_classes(cls, adapter: Adapter) -> dict[str, Any]:
        """The library's vector environments by ``vectorization_mode``."""
        vector = adapter.submodule("vector")
        return {"sync": vector.SyncVectorEnv, "async": vector.AsyncVectorEnv}
