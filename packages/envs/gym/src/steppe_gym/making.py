"""Make environments of gym and gymnasium by name, single or vector."""

from __future__ import annotations

import difflib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from steppe.errors import ArgumentError, EnvNotFound, LibraryMissing, NotSupported
from steppe.registry import env_not_found
from steppe.systems import render_without_display

from .compat import Adapter
from .frame_skip import with_frame_skip
from .names import PROVIDERS, available_names, known_names, provider_of, register_provider, renamed
from .pixels import with_pixels
from .sequential_batch import SequentialBatch

__all__ = ["make_batch", "make_single", "repeats_actions"]

# Modules that environments of the two libraries import, and the extra that installs each.
_EXTRAS = {
    "Box2D": "box2d",
    "mujoco_py": "mujoco_py",
    "mujoco": "mujoco",
    "pygame": "classic-control",
    "cv2": "other",
    "atari_py": "atari",
    "jax": "jax",
}
# Arguments of GymEnv that the library does not have.
_OWN_ARGUMENTS = ("backend", "categorical_action_encoding", "device", "frame_skip", "from_pixels", "pixels_only")
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
    arguments: Mapping[str, Any],
    *,
    namespace: str = "gym",
    list_names: Callable[[], list[str]] = available_names,
    disable_env_checker: bool | None = None,
) -> Any:
    """Make one environment of the library.

    Args:
        adapter: the adapter of the library.
        name: the id.
        arguments: arguments of the library's ``make``; a dict, because an environment may use any name for its own.
        namespace: the namespace for error texts.
        list_names: function that lists the names of the namespace.
        disable_env_checker: see ``GymEnv``.

    Raises:
        EnvNotFound: unknown name. The text suggests similar names, or the version that replaced it.
        LibraryMissing: a package that the environment needs is not installed.
        NotSupported: the library registers only a vector environment under this name.
    """
    if arguments.get("render_mode") is not None:
        render_without_display()
    with _explained(adapter, name, namespace, list_names):
        return adapter.make(name, arguments, disable_env_checker=disable_env_checker)


def repeats_actions(adapter: Adapter, name: str) -> bool:
    """Whether the environment of this name repeats actions itself.

    Such an environment has an argument ``frameskip``.
    """
    if not isinstance(name, str):
        return False
    try:
        _register(adapter, name)
        spec = adapter.submodule("envs.registration").spec(name)
    except Exception:  # errors about the name are raised when the environment is made
        return False
    return "frameskip" in (getattr(spec, "kwargs", None) or getattr(spec, "_kwargs", None) or {})


def make_batch(
    adapter: Adapter,
    name: str,
    single: Callable[[Mapping[str, Any]], Any],
    num_envs: int,
    arguments: Mapping[str, Any],
    *,
    classes: Mapping[str, Any],
    namespace: str = "gym",
    list_names: Callable[[], list[str]] = available_names,
    from_pixels: bool = False,
    pixels_only: bool = True,
    frame_skip: int | None = None,
) -> Any:
    """Make a vector environment.

    Args:
        adapter: the adapter of the library.
        name: the id.
        single: function that makes one environment from the arguments of the library's ``make``.
        num_envs: number of environments.
        arguments: arguments of the library's ``make``; ``vectorization_mode`` and ``vector_kwargs`` of ``GymEnv``.
        classes: the classes of vector environments, by ``vectorization_mode``.
        namespace: the namespace for error texts.
        list_names: function that lists the names of the namespace.
        from_pixels: see ``GymEnv``.
        pixels_only: see ``GymEnv``.
        frame_skip: see ``GymEnv``.

    Raises:
        NotSupported: unknown ``vectorization_mode``, or not available in this version of the library.
    """
    if isinstance(num_envs, bool) or not isinstance(num_envs, int) or num_envs < 0:
        raise ArgumentError(f"num_envs must be an integer >= 0, found {num_envs!r}.")
    kwargs = dict(arguments)
    vectorization_mode = kwargs.pop("vectorization_mode", None)
    vector_kwargs = kwargs.pop("vector_kwargs", None) or {}
    if vectorization_mode == "vector_entry_point":
        if not hasattr(adapter.module, "make_vec") or from_pixels or frame_skip:
            raise NotSupported(
                f"{adapter.library} {adapter.version} does not support vectorization_mode='vector_entry_point' for "
                f"{name!r} with these arguments. Use 'sync' or 'async', which work for any environment."
            )
        with _explained(adapter, name, namespace, list_names):
            return adapter.module.make_vec(
                name, num_envs, vectorization_mode=vectorization_mode, vector_kwargs=dict(vector_kwargs), **kwargs
            )

    def make_one() -> Any:
        env = single(kwargs)
        if frame_skip is not None:
            env = with_frame_skip(env, adapter, frame_skip)
        return with_pixels(env, adapter, pixels_only=pixels_only) if from_pixels else env

    if vectorization_mode is None and adapter.loses_steps_of_batches:
        return SequentialBatch([make_one] * num_envs, adapter)
    vector_class = classes.get(vectorization_mode or "sync")
    if vector_class is None:
        modes = ", ".join(map(repr, classes))
        raise NotSupported(f"vectorization_mode must be {modes} or 'vector_entry_point', found {vectorization_mode!r}.")
    return vector_class([make_one] * num_envs, **vector_kwargs)


def _register(adapter: Adapter, name: str) -> None:
    """Import the module or package that registers a name."""
    module = name.rpartition(":")[0].partition(".")[0]
    if module:
        # The library imports the module itself, but its error for a missing module differs by version.
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
        return
    problem = register_provider(provider)
    if problem is not None and adapter.library == "gymnasium":
        raise LibraryMissing(f"The environment {name!r} is in the package {provider.install}, {problem}")


@contextmanager
def _explained(adapter: Adapter, name: str, namespace: str, list_names: Callable[[], list[str]]) -> Iterator[None]:
    """Context that replaces errors of the library by errors with a fix."""
    if not isinstance(name, str):
        type_name = type(name).__name__
        raise TypeError(
            f"GymEnv takes the id of an environment, a string, found {type_name}. To wrap an environment, call "
            "GymWrapper(env)."
        )
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
        if "entry_point is not specified" in str(error):
            raise NotSupported(
                f"{adapter.library} has {name!r} only as a vector environment: make_env('{namespace}:{name}', "
                "num_envs=..., vectorization_mode='vector_entry_point')."
            ) from None
        missing = _missing_module(error)
        newer = renamed(name, list_names()) if missing == "mujoco_py" else None
        if newer not in (None, name):
            raise LibraryMissing(
                f"The environment {name!r} needs mujoco_py, which is not installed. {newer!r} needs mujoco instead: "
                f"make_env('{namespace}:{newer}')."
            ) from None
        if missing is not None:
            raise LibraryMissing(
                f"The environment {name!r} needs {missing}, which is not installed: "
                f"pip install '{adapter.library}[{_extra_for(adapter, missing)}]'"
            ) from None
        if isinstance(error, ImportError) and "pip install" in str(error):
            raise LibraryMissing(f"The environment {name!r} cannot be made. {error}") from None
        near = _near_argument(error)
        if near is not None:
            raise TypeError(f"{error}. Did you mean {near!r}, an argument of GymEnv?") from None
        if "vector entry point" in str(error):
            raise NotSupported(
                f"{name!r} has no vector entry point. Use vectorization_mode='sync' or 'async'."
            ) from None
        raise


def _is_unknown(error: Exception) -> bool:
    """Whether an error means that the environment does not exist, or no longer exists."""
    kinds, text = {cls.__name__ for cls in type(error).__mro__}, str(error)
    if isinstance(error, ImportError):
        return "moved" in text and _missing_module(error) is None
    return bool(kinds & set(_UNKNOWN)) or ("Error" in kinds and ("deprecated env" in text or "alformed env" in text))


def _near_argument(error: Exception) -> str | None:
    """Return the argument of GymEnv that an argument unknown to the library resembles."""
    unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error)) if isinstance(error, TypeError) else None
    near = difflib.get_close_matches(unknown[1], _OWN_ARGUMENTS, 1) if unknown else []
    return near[0] if near else None


def _missing_module(error: BaseException) -> str | None:
    """Return the missing package that caused an error.

    Returns None if no extra of the library has the package.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ModuleNotFoundError) and cause.name is not None:
            root = cause.name.partition(".")[0]
            if root in _EXTRAS:
                return root
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, AttributeError) and "envs.box2d" in str(error):
        return "Box2D"  # without Box2D, gym before 0.22 does not define these classes
    if type(error).__name__ == "DependencyNotInstalled":
        text = str(error).lower()
        return next((module for module, extra in _EXTRAS.items() if module.lower() in text or extra in text), None)
    return None


def _extra_for(adapter: Adapter, module: str) -> str:
    extra = _EXTRAS[module]
    if extra == "classic-control" and adapter.library == "gym":
        return "classic_control"
    return extra
