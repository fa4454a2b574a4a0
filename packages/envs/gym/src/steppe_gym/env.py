"""GymEnv: make environments of gym and gymnasium by name."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from steppe.envs import MadeByName
from steppe.versions import set_gym_backend

from .compat import Adapter, adapter_for
from .frame_skip import checked_frame_skip
from .making import make_batch, make_single, repeats_actions
from .names import available_names
from .wrapper import GymWrapper

if TYPE_CHECKING:
    import torch

__all__ = ["GymEnv"]

# Keyword arguments of the base classes. All others go to the library.
_BASE_ARGUMENTS = (
    "batch_size",
    "run_type_checks",
    "allow_done_after_reset",
    "spec_locked",
    "auto_reset",
    "auto_reset_replace",
    "missing_obs_value",
    "convert_actions_to_numpy",
    "native_autoreset",
    "env_info",
    "env_info_to",
)


class GymEnv(MadeByName, GymWrapper):
    """Make an environment of gym or gymnasium by its name.

    ``set_gym_backend`` chooses the library. gymnasium is the default if it is installed.

    >>> from steppe import GymEnv
    >>> env = GymEnv("Pendulum-v1", frame_skip=2)
    >>> env.rollout(3)["observation"].shape
    torch.Size([3, 3])

    Args:
        env_name: the id in the library: ``"CartPole-v1"``, ``"ALE/Pong-v5"``, ``"my.module:Env-v0"``.
        num_envs: 0 makes one environment. A number above 0 makes the library's vector environment, a batch
            ``[num_envs]``.
        num_workers: a number above 1 makes a :class:`~steppe.batched.ParallelEnv` of this many environments (with
            ``num_envs``: batches) instead.
        backend: the library, as in ``set_gym_backend``. ``None``: the current backend.
        categorical_action_encoding: discrete values are integers instead of one-hot vectors.
        frame_skip: number of times that each action is repeated. Environments that repeat actions themselves (ALE, four
            times by default) receive this number. ``None``: the default of the environment.
        from_pixels: render a frame in each step and add it as ``"pixels"``, ``[H, W, 3]`` uint8.
        pixels_only: with ``from_pixels``, leave out the observation of the library.
        device: device of the data.
        vectorization_mode: with ``num_envs``: ``"sync"``, ``"async"``, or ``"vector_entry_point"`` for the
            environment's own vector environment. ``None`` means ``"sync"``; in versions whose vector environments lose
            observations or steps (gym before 0.22, gymnasium 1.0), steppe steps the environments itself.
        vector_kwargs: with ``num_envs``: arguments of the library's vector environment, such as
            ``{"autoreset_mode": ...}``.
        disable_env_checker: False runs the library's own checker. ``None`` runs none: steppe validates returned values
            against the spaces itself.
        library_kwargs: arguments of the library's ``make`` whose names this class uses itself, such as ``{"env_name":
            ...}``.
        **kwargs: arguments of the library's ``make``, of :class:`GymWrapper` (``env_info``, ``env_info_to``,
            ``missing_obs_value``, ...) and of :class:`steppe.envs.EnvBase` (``auto_reset``, ...).

    Raises:
        EnvNotFound: the library has no such environment.
        LibraryMissing: the environment needs a package that is not installed.
    """

    #: The namespace for error texts.
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
        device: torch.device | str | int | None = None,
        disable_env_checker: bool | None = None,
        library_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        base_kwargs = {key: kwargs.pop(key) for key in _BASE_ARGUMENTS if key in kwargs}
        make_kwargs = {
            "env_name": env_name,
            "num_envs": num_envs,
            "backend": backend,
            "frame_skip": frame_skip,
            "from_pixels": from_pixels,
            "pixels_only": pixels_only,
            "disable_env_checker": disable_env_checker,
            "library_kwargs": library_kwargs,
            **kwargs,
        }
        env, wrapper_skip = self._make(**make_kwargs)
        super().__init__(
            env,
            categorical_action_encoding=categorical_action_encoding,
            frame_skip=wrapper_skip,
            from_pixels=from_pixels and not num_envs,
            pixels_only=pixels_only,
            device=device,
            **base_kwargs,
        )
        self._remember(make_kwargs, wrapper_skip)

    def _make(
        self,
        env_name: str,
        num_envs: int | None,
        backend: Any,
        frame_skip: int | None,
        from_pixels: bool,
        pixels_only: bool,
        disable_env_checker: bool | None,
        library_kwargs: Mapping[str, Any] | None,
        **kwargs: Any,
    ) -> tuple[Any, int | None]:
        """Make the environment of the library.

        Returns the environment, and how often the wrapper repeats actions.
        """
        with nullcontext() if backend is None else set_gym_backend(backend):
            adapter = adapter_for()
        kwargs.update(library_kwargs or {})
        if from_pixels:
            kwargs.setdefault("render_mode", "rgb_array")
        for_errors: dict[str, Any] = {"namespace": self.namespace, "list_names": self._list_names}
        if frame_skip is not None and repeats_actions(adapter, env_name):
            # Games of ALE repeat actions themselves, four times by default.
            if "frameskip" in kwargs:
                raise TypeError(
                    f"{env_name!r} repeats actions itself: frameskip={kwargs['frameskip']!r} and frame_skip="
                    f"{frame_skip!r} both set the number of repetitions. Pass only one of them."
                )
            checked_frame_skip(frame_skip)
            kwargs["frameskip"], frame_skip = frame_skip, None

        def single(arguments: Mapping[str, Any]) -> Any:
            return make_single(adapter, env_name, arguments, disable_env_checker=disable_env_checker, **for_errors)

        if not num_envs:
            return single(kwargs), frame_skip
        batch = make_batch(
            adapter,
            env_name,
            single,
            num_envs,
            kwargs,
            classes=self._vector_classes(adapter),
            from_pixels=from_pixels,
            pixels_only=pixels_only,
            frame_skip=frame_skip,
            **for_errors,
        )
        return batch, None

    def rebuild_with_kwargs(self, **kwargs: Any) -> None:
        make_kwargs = {**self._constructor_kwargs, **kwargs}
        old = self._env
        env, wrapper_skip = self._make(**make_kwargs)
        pixels = make_kwargs["from_pixels"] and not make_kwargs["num_envs"]
        self._replace_env(env, from_pixels=pixels, pixels_only=make_kwargs["pixels_only"])
        self._remember(make_kwargs, wrapper_skip)
        old.close()

    rebuild_with_kwargs.__doc__ = GymWrapper.rebuild_with_kwargs.__doc__

    def _remember(self, make_kwargs: dict[str, Any], wrapper_skip: int | None) -> None:
        self.__dict__["_constructor_kwargs"] = make_kwargs
        self.__dict__["name"] = self.__dict__["env_name"] = make_kwargs["env_name"]
        self.frame_skip = make_kwargs["frame_skip"] or 1
        self.wrapper_frame_skip = None if wrapper_skip == make_kwargs["frame_skip"] else 1

    @classmethod
    def _list_names(cls) -> list[str]:
        """List the names that errors may suggest."""
        return available_names()

    @classmethod
    def _vector_classes(cls, adapter: Adapter) -> dict[str, Any]:
        """Return the library's vector environment classes by ``vectorization_mode``."""
        vector = adapter.submodule("vector")
        return {"sync": vector.SyncVectorEnv, "async": vector.AsyncVectorEnv}
