"""Making environments by name, with errors that say what to do."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from steppe.errors import EnvNotFound, LibraryMissing, NotSupported
from steppe.registry import env_not_found

from .compat import Adapter
from .names import available_names, known_names, provider_of, register_provider, renamed
from .own_batch import OwnBatch
from .pixels import with_pixels
from .skipping import with_frame_skip

__all__ = ["make_batch", "make_single"]

# What the environments of the two libraries import, and the extra that brings it.
_EXTRAS = {
    "Box2D": "box2d",
    "mujoco_py": "mujoco_py",
    "mujoco": "mujoco",
    "pygame": "classic-control",
    "cv2": "other",
    "atari_py": "atari",
    "jax": "jax",
}
_UNKNOWN = (
    "UnregisteredEnv",
    "NamespaceNotFound",
    "NameNotFound",
    "VersionNotFound",
    "DeprecatedEnv",
)


def make_single(
    adapter: Adapter,
    name: str,
    *,
    namespace: str = "gym",
    list_names: Callable[[], list[str]] = available_names,
    disable_env_checker: bool | None = None,
    render_mode: str | None = None,
    **kwargs: Any,
) -> Any:
    """Make one environment of the library.

    Args:
        adapter: how the library is talked to.
        name: the id.
        namespace: the namespace that errors speak of.
        list_names: what there is in it.
        disable_env_checker: see ``GymEnv``.
        render_mode: see ``GymEnv``.
        **kwargs: for the library's ``make``.

    Raises:
        EnvNotFound: there is none of this name; the text names the nearest, or the version that replaced it.
        LibraryMissing: something that the environment imports is not installed.
    """
    _register(adapter, name)
    if render_mode is not None:
        _choose_headless_rendering()
    try:
        return adapter.make(name, disable_env_checker=disable_env_checker, render_mode=render_mode, **kwargs)
    except Exception as error:
        _explain(adapter, name, error, namespace, list_names)


def make_batch(
    adapter: Adapter,
    name: str,
    single: Callable[..., Any],
    num_envs: int,
    *,
    classes: Mapping[str, Any],
    from_pixels: bool = False,
    pixels_only: bool = True,
    frame_skip: int | None = None,
    vectorization_mode: str | None = None,
    vector_kwargs: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> Any:
    """Make a vector environment.

    Args:
        adapter: how the library is talked to.
        name: the id.
        single: makes one environment.
        num_envs: how many.
        classes: the classes of vector environments by ``vectorization_mode``.
        from_pixels: see ``GymEnv``.
        pixels_only: see ``GymEnv``.
        frame_skip: see ``GymEnv``.
        vectorization_mode: see ``GymEnv``.
        vector_kwargs: for the constructor of the library's vector environment.
        **kwargs: for the library's ``make``.

    Raises:
        NotSupported: an unknown ``vectorization_mode``, or one that this version of the library lacks.
    """
    if isinstance(num_envs, bool) or not isinstance(num_envs, int) or num_envs < 0:
        raise ValueError(f"num_envs is a whole number >= 0, found {num_envs!r}.")
    if vectorization_mode == "vector_entry_point":
        if not hasattr(adapter.module, "make_vec") or from_pixels or frame_skip:
            raise NotSupported(
                f"{adapter.library} {adapter.version} makes no batch of {name!r} by vectorization_mode="
                "'vector_entry_point' with these arguments; 'sync' and 'async' make one of any environment."
            )
        return adapter.module.make_vec(
            name, num_envs, vectorization_mode=vectorization_mode, vector_kwargs=dict(vector_kwargs or {}), **kwargs
        )

    def one() -> Any:
        env = single(**kwargs)
        if frame_skip is not None:
            env = with_frame_skip(env, adapter, frame_skip)
        return with_pixels(env, adapter, pixels_only=pixels_only) if from_pixels else env

    if vectorization_mode is None and adapter.loses_steps_of_batches:
        return OwnBatch([one] * num_envs, adapter)
    chosen = classes.get(vectorization_mode or "sync")
    if chosen is None:
        raise NotSupported(
            f"vectorization_mode is 'sync', 'async' or 'vector_entry_point', found {vectorization_mode!r}."
        )
    return chosen([one] * num_envs, **(vector_kwargs or {}))


def _register(adapter: Adapter, name: str) -> None:
    """Import the package that registers a name, which the library knows nothing of before."""
    provider = provider_of(name)
    if provider is None or name in known_names(adapter.module):
        return
    if not register_provider(provider) and adapter.library == "gymnasium":
        raise LibraryMissing(
            f"The environment {name!r} is in the package {provider.install}, which is not installed: "
            f"pip install {provider.install}"
        )


def _choose_headless_rendering() -> None:
    """Have MuJoCo render without a display where there is none, unless the user has said how.

    It reads the variable when it is imported, which is mostly when the environment is made.
    """
    if sys.platform == "linux" and not {"DISPLAY", "WAYLAND_DISPLAY"} & set(os.environ):
        os.environ.setdefault("MUJOCO_GL", "egl")


def _explain(
    adapter: Adapter, name: str, error: Exception, namespace: str, list_names: Callable[[], list[str]]
) -> NoReturn:
    """Raise what the user can act on in place of the library's error, or the error itself."""
    kinds = {cls.__name__ for cls in type(error).__mro__}
    plain = name.partition(":")[2] or name
    missing = _missing_module(error)
    gone = isinstance(error, ImportError) and missing is None and "moved" in str(error)
    if kinds & set(_UNKNOWN) or (kinds & {"Error"} and "deprecated env" in str(error)) or gone:
        newer = renamed(plain, list_names())
        if newer is not None and newer != plain:
            raise EnvNotFound(
                f"{adapter.library} {adapter.version} has no environment {name!r}; it has {newer!r}: "
                f"make_env('{namespace}:{newer}')."
            ) from None
        if ":" not in name and not gone:
            raise env_not_found(namespace, name, names=list_names()) from None
    if missing is not None:
        raise LibraryMissing(
            f"The environment {name!r} needs {missing}, which is not installed: "
            f"pip install '{adapter.library}[{_extra_for(adapter, missing)}]'"
        ) from error
    raise error


def _missing_module(error: BaseException) -> str | None:
    """The package whose absence an error is about, if it is one of the library's extras."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ModuleNotFoundError) and seen.name is not None:
            root = seen.name.partition(".")[0]
            if root in _EXTRAS:
                return root
        seen = seen.__cause__ or seen.__context__
    if type(error).__name__ == "DependencyNotInstalled":
        text = str(error).lower()
        return next((module for module, extra in _EXTRAS.items() if module.lower() in text or extra in text), None)
    return None


def _extra_for(adapter: Adapter, module: str) -> str:
    extra = _EXTRAS[module]
    if extra == "classic-control" and adapter.library == "gym":
        return "classic_control"
    return extra
