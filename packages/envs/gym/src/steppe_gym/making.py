"""Making environments by name, with errors that say what to do."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from steppe.errors import EnvNotFound, LibraryMissing, NotSupported
from steppe.registry import env_not_found

from .compat import Adapter
from .names import PROVIDERS, available_names, known_names, provider_of, register_provider, renamed
from .own_batch import OwnBatch
from .pixels import with_pixels
from .skipping import with_frame_skip

__all__ = ["make_batch", "make_single", "repeats_actions"]

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
    if render_mode is not None:
        _choose_headless_rendering()
    with _explained(adapter, name, namespace, list_names):
        return adapter.make(name, disable_env_checker=disable_env_checker, render_mode=render_mode, **kwargs)


def repeats_actions(adapter: Adapter, name: str) -> bool:
    """Whether the environment of this name repeats actions itself, as its argument ``frameskip`` says."""
    if not isinstance(name, str):
        return False
    try:
        _register(adapter, name)
        spec = adapter.submodule("envs.registration").spec(name)
    except Exception:  # what is wrong with the name is said where the environment is made
        return False
    return "frameskip" in (getattr(spec, "kwargs", None) or getattr(spec, "_kwargs", None) or {})


def make_batch(
    adapter: Adapter,
    name: str,
    single: Callable[..., Any],
    num_envs: int,
    *,
    classes: Mapping[str, Any],
    namespace: str = "gym",
    list_names: Callable[[], list[str]] = available_names,
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
        namespace: the namespace that errors speak of.
        list_names: what there is in it.
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
        with _explained(adapter, name, namespace, list_names):
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
    """Import what registers a name, which the library knows nothing of before."""
    module = name.rpartition(":")[0].partition(".")[0]
    if module:
        # The library itself imports it; what it says where there is none differs by version.
        if module not in sys.modules and importlib.util.find_spec(module) is None:
            raise LibraryMissing(
                f"The environment {name!r} is registered by the module {module!r}, which is not installed."
            )
        return
    if name in known_names(adapter.module):
        return
    provider = provider_of(name)
    if provider is None:
        for each in PROVIDERS:
            register_provider(each)
    elif not register_provider(provider) and adapter.library == "gymnasium":
        raise LibraryMissing(
            f"The environment {name!r} is in the package {provider.install}, which is not installed: "
            f"pip install {provider.install}"
        )


def _choose_headless_rendering() -> None:
    """Have MuJoCo render without a display where there is none, unless the user has said how.

    It reads the variable when it is imported, which is mostly when the environment is made.
    """
    if sys.platform == "linux" and not {"DISPLAY", "WAYLAND_DISPLAY"} & set(os.environ):
        os.environ["MUJOCO_GL"] = os.environ.get("MUJOCO_GL") or "egl"


@contextmanager
def _explained(adapter: Adapter, name: str, namespace: str, list_names: Callable[[], list[str]]) -> Iterator[None]:
    """Make an environment inside: an error of the library's becomes one that the user can act on."""
    if not isinstance(name, str):
        found = type(name).__name__
        raise TypeError(f"An environment is made by its id, a string, not by {found}. GymWrapper(env) wraps one.")
    _register(adapter, name)
    try:
        yield
    except Exception as error:
        if _is_unknown(error):
            newer = renamed(name.rpartition(":")[2], list_names())
            if newer is not None and newer != name.rpartition(":")[2]:
                raise EnvNotFound(
                    f"{adapter.library} {adapter.version} has no environment {name!r}; it has {newer!r}: "
                    f"make_env('{namespace}:{newer}')."
                ) from None
            if not isinstance(error, ImportError):
                raise env_not_found(namespace, name, names=list_names()) from None
        missing = _missing_module(error)
        if missing is not None:
            raise LibraryMissing(
                f"The environment {name!r} needs {missing}, which is not installed: "
                f"pip install '{adapter.library}[{_extra_for(adapter, missing)}]'"
            ) from None
        if isinstance(error, ImportError) and "pip install" in str(error):
            raise LibraryMissing(f"The environment {name!r} cannot be made. {error}") from None
        if "vector entry point" in str(error):
            raise NotSupported(
                f"{name!r} has no vector environment of its own: vectorization_mode 'sync' and 'async' make one of it."
            ) from None
        raise


def _is_unknown(error: Exception) -> bool:
    """Whether an error says that there is no such environment, or none any more."""
    kinds, text = {cls.__name__ for cls in type(error).__mro__}, str(error)
    if isinstance(error, ImportError):
        return "moved" in text and _missing_module(error) is None
    return bool(kinds & set(_UNKNOWN)) or ("Error" in kinds and ("deprecated env" in text or "alformed env" in text))


def _missing_module(error: BaseException) -> str | None:
    """The package whose absence an error is about, if it is one of the library's extras."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ModuleNotFoundError) and seen.name is not None:
            root = seen.name.partition(".")[0]
            if root in _EXTRAS:
                return root
        seen = seen.__cause__ or seen.__context__
    if isinstance(error, AttributeError) and "envs.box2d" in str(error):
        return "Box2D"  # gym before 0.22 leaves its classes out where Box2D is missing
    if type(error).__name__ == "DependencyNotInstalled":
        text = str(error).lower()
        return next((module for module, extra in _EXTRAS.items() if module.lower() in text or extra in text), None)
    return None


def _extra_for(adapter: Adapter, module: str) -> str:
    extra = _EXTRAS[module]
    if extra == "classic-control" and adapter.library == "gym":
        return "classic_control"
    return extra
