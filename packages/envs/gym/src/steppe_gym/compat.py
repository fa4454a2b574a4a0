"""Adapters: one class for each generation of the API of gym and gymnasium.

========================  =========================================================================================
gym <0.22                 ``env.seed(s)``, ``reset() -> obs``, ``step -> (obs, reward, done, info)``
gym 0.22 to 0.25          ``reset(seed=s) -> obs``, ``step -> (obs, reward, done, info)`` unless asked for five
gym 0.26, gymnasium       ``reset(seed=s) -> (obs, info)``, ``step -> (obs, reward, terminated, truncated, info)``
========================  =========================================================================================

Each adapter converts its API to the last one. ``implement_for`` chooses the adapter of an environment when the
environment is made, and the environment keeps it.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import warnings
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from steppe.errors import SpecError
from steppe.versions import gym_backend, implement_for, library_version

__all__ = ["Adapter", "FiveTuple", "SeedKeyword", "SeedMethod", "StableBaselines", "adapter_for"]

Step = Callable[[Any], "tuple[Any, Any, Any, Any, Any]"]


def not_five(returned: Any) -> SpecError:
    """Make the error for a ``step`` that did not return five values."""
    old = ", as gym did before 0.26" if isinstance(returned, tuple) and len(returned) == 4 else ""
    return SpecError(
        f"step must return five values, returned {_describe(returned)}{old}: return observation, reward, terminated, "
        "truncated, info. terminated: the task ended the episode. truncated: a time limit ended it."
    )


def _describe(returned: Any) -> str:
    return f"{len(returned)} values" if isinstance(returned, tuple) else f"one value ({type(returned).__name__})"


class FiveTuple:
    """Adapter of gym 0.26 and all versions of gymnasium.

    Attributes:
        library: ``"gymnasium"`` or ``"gym"``.
        module: the module of the library.
    """

    #: Whether a vector environment takes a sequence of actions, one for each row, instead of batched arrays.
    vector_actions_are_rows = False
    #: Whether ``env.seed`` sets the seed instead of ``reset(seed=...)``.
    seeds_by_method = False

    def __init__(self) -> None:
        self.module: ModuleType = gym_backend()
        self.library: str = self.module.__name__

    def __getstate__(self) -> dict[str, Any]:
        return {"library": self.library}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.library = state["library"]
        self.module = importlib.import_module(self.library)

    @functools.cached_property
    def version(self) -> Any:
        """The version of the library, comparable as PEP 440 defines."""
        return library_version(self.library)

    def submodule(self, name: str) -> ModuleType:
        """Import a module of the library."""
        return importlib.import_module(f"{self.library}.{name}")

    # -- making ---------------------------------------------------------------------------------------------------

    def make(self, name: str, arguments: Mapping[str, Any], *, disable_env_checker: bool | None) -> Any:
        """Make a single environment.

        Args:
            name: the id in the library.
            arguments: arguments of the library's ``make``. Versions without render modes ignore ``render_mode``.
            disable_env_checker: ``None`` runs no checker: steppe validates returned values against the spaces itself,
                and the checker of gym does not work with numpy 2.
        """
        kwargs = {**arguments, **self.checker_arguments(disable_env_checker)}
        kwargs.update(self.render_arguments(kwargs.pop("render_mode", None)))
        return self.module.make(name, **kwargs)

    def checker_arguments(self, disable: bool | None) -> dict[str, Any]:
        """Return the argument of ``make`` for the environment checker.

        Versions without the checker get no argument.
        """
        return {"disable_env_checker": True if disable is None else disable}

    def render_arguments(self, render_mode: str | None) -> dict[str, Any]:
        """Return the argument of ``make`` for the render mode, in versions that have one."""
        return {} if render_mode is None else {"render_mode": render_mode}

    # -- one environment ------------------------------------------------------------------------------------------

    def reset(self, env: Any, seed: int | None = None, options: dict[str, object] | None = None) -> tuple[Any, Any]:
        """Reset an environment; return ``(observation, info)``."""
        if seed is None and options is None:
            result = env.reset()
        elif options is None:
            result = env.reset(seed=seed)
        else:
            result = env.reset(seed=seed, options=options)
        return self.sort_reset(result)

    def stepper(self, env: Any) -> Step:
        """Return a function that steps the environment and returns five values."""
        step: Step = env.step
        return step

    def sort_step(self, outputs: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Convert the result of ``step`` to five values.

        They are ``(observation, reward, terminated, truncated, info)``.
        """
        if not isinstance(outputs, tuple) or len(outputs) != 5:
            raise not_five(outputs)
        return outputs

    def unsort_step(self, result: tuple[Any, Any, Any, Any, Any]) -> Any:
        """Convert five values to the result of a ``step`` with the API of the library."""
        return result

    def unsort_reset(self, result: tuple[Any, Any]) -> Any:
        """Convert ``(observation, info)`` to the library's result of ``reset``."""
        return result

    @property
    def loses_steps_of_batches(self) -> bool:
        """Whether vector environments insert a step that is not a transition.

        Such libraries insert it before each episode.
        """
        return self.library == "gymnasium" and self.version.release[:2] == (1, 0)

    def sort_reset(self, outputs: Any) -> tuple[Any, Any]:
        """Convert the result of ``reset`` to ``(observation, info)``."""
        if not isinstance(outputs, tuple) or len(outputs) != 2:
            older = " Or pass apply_api_compatibility=True, if the environment has the API before 0.26."
            raise SpecError(
                f"reset must return two values in {self.library}, returned {_describe(outputs)}: return observation, "
                f"info (a dict).{older if self.library == 'gym' else ''}"
            )
        return outputs

    def frame(self, env: Any) -> Any:
        """Render one frame, ``[H, W, 3]`` uint8."""
        return env.render()

    def render(self, env: Any, mode: str | None, **kwargs: Any) -> Any:
        """Call the library's ``render``."""
        return env.render(**kwargs)


class SeedKeyword(FiveTuple):
    """Adapter of gym 0.22 to 0.25.

    ``reset`` takes a seed, ``step`` returns four values, and infos contain the time limit.
    """

    def checker_arguments(self, disable: bool | None) -> dict[str, Any]:
        return super().checker_arguments(disable) if self._since("0.24") else {}

    def render_arguments(self, render_mode: str | None) -> dict[str, Any]:
        if render_mode is None or not self._since("0.25"):
            return {}
        # For "rgb_array", gym 0.25 returns a list of all frames since the last call.
        return {"render_mode": "single_rgb_array" if render_mode == "rgb_array" else render_mode}

    def reset(self, env: Any, seed: int | None = None, options: dict[str, object] | None = None) -> tuple[Any, Any]:
        reset_kwargs = {name: value for name, value in (("seed", seed), ("options", options)) if value is not None}
        accepted = _reset_arguments(env)
        if "seed" in reset_kwargs and accepted is not None and "seed" not in accepted:
            env.seed(reset_kwargs.pop("seed"))
        return self.sort_reset(env.reset(**reset_kwargs))

    def stepper(self, env: Any) -> Step:
        step = env.step
        return lambda action: self.sort_step(step(action))

    def sort_step(self, outputs: Any) -> tuple[Any, Any, Any, Any, Any]:
        if len(outputs) == 5:
            return outputs  # type: ignore[no-any-return]
        observation, reward, done, info = outputs
        if isinstance(done, np.ndarray):
            truncated = done & _truncated_rows(info, len(done))
            return observation, reward, done & ~truncated, truncated, info
        truncated = bool(done) and bool(info.get("TimeLimit.truncated", False))
        # Values that are not flags are returned unchanged; a later check refuses them and names the environment.
        return observation, reward, False if truncated else done, truncated, info

    def unsort_step(self, result: tuple[Any, Any, Any, Any, Any]) -> Any:
        observation, reward, terminated, truncated, info = result
        if terminated or truncated:
            info["TimeLimit.truncated"] = truncated
        return observation, reward, terminated or truncated, info

    def unsort_reset(self, result: tuple[Any, Any]) -> Any:
        return result[0]

    def sort_reset(self, outputs: Any) -> tuple[Any, Any]:
        # Environments written for the newer API also run under older libraries, and return their info.
        if isinstance(outputs, tuple) and len(outputs) == 2 and isinstance(outputs[1], dict):
            return outputs
        return outputs, {}

    def frame(self, env: Any) -> Any:
        if not self._since("0.25"):
            return env.render(mode="rgb_array")
        if getattr(env, "render_mode", None) is None:
            return env.render(mode="rgb_array")
        frame = env.render()
        return frame[-1] if isinstance(frame, list) else frame

    def render(self, env: Any, mode: str | None, **kwargs: Any) -> Any:
        if mode is not None and getattr(env, "render_mode", None) is None:
            kwargs.setdefault("mode", mode)
        return env.render(**kwargs)

    def _since(self, version: str) -> bool:
        return bool(self.version >= type(self.version)(version))


class SeedMethod(SeedKeyword):
    """Adapter of gym before 0.22, where ``env.seed`` sets the seed."""

    vector_actions_are_rows = True
    seeds_by_method = True
    loses_steps_of_batches = True

    def reset(self, env: Any, seed: int | None = None, options: dict[str, object] | None = None) -> tuple[Any, Any]:
        if seed is not None:
            env.seed(seed)
        return self.sort_reset(env.reset() if options is None else env.reset(options=options))


class StableBaselines(SeedMethod):
    """Adapter of vector environments of Stable-Baselines3.

    They have the API of old gym versions, and the spaces of gymnasium.
    """

    vector_actions_are_rows = False


Adapter = FiveTuple


@implement_for("gym", "0.13", "0.22")
def _adapter() -> Adapter:
    return SeedMethod()


@implement_for("gym", "0.22", "0.26")  # type: ignore[no-redef]
def _adapter() -> Adapter:
    return SeedKeyword()


@implement_for("gym", "0.26")  # type: ignore[no-redef]
def _adapter() -> Adapter:
    return FiveTuple()


@implement_for("gymnasium", "0.26")  # type: ignore[no-redef]
def _adapter() -> Adapter:
    return FiveTuple()


def adapter_for() -> Adapter:
    """Return the adapter of the current backend.

    Raises:
        BackendError: neither gym nor gymnasium is installed.
        NoImplementation: the version of the library is not supported.
    """
    with warnings.catch_warnings():
        # Importing gym with numpy 2 emits a warning, besides a notice on stderr.
        warnings.simplefilter("ignore")
        gym_backend()  # if neither library is installed, this raises the error that says how to install one
        adapter: Adapter = _adapter()
        return adapter


def _reset_arguments(env: Any) -> set[str] | None:
    """Return the parameters of the innermost environment's ``reset``.

    Returns None if it has ``**kwargs``.
    """
    parameters = inspect.signature(getattr(env, "unwrapped", env).reset).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return None
    return set(parameters)


def _truncated_rows(info: Any, n: int) -> np.ndarray:
    """Return which rows of a vector environment hit their time limit.

    Args:
        info: a dict of arrays (since gym 0.24) or a list with the info of each row.
        n: number of rows.
    """
    if isinstance(info, dict):
        return np.asarray(info.get("TimeLimit.truncated", np.zeros(n, bool)), bool)
    return np.array([bool(row.get("TimeLimit.truncated", False)) for row in info])
