"""The generations of the API of gym and gymnasium, one adapter each.

========================  =========================================================================================
gym <0.22                 ``env.seed(s)``, ``reset() -> obs``, ``step -> (obs, reward, done, info)``
gym 0.22 to 0.25          ``reset(seed=s) -> obs``, ``step -> (obs, reward, done, info)`` unless asked for five
gym 0.26, gymnasium       ``reset(seed=s) -> (obs, info)``, ``step -> (obs, reward, terminated, truncated, info)``
========================  =========================================================================================

An adapter makes all of them the last one. Which one an environment has is decided when the environment is made, by
``implement_for``, and kept.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from steppe.errors import SpecError
from steppe.versions import gym_backend, implement_for, library_version

__all__ = ["Adapter", "FiveTuple", "SeedKeyword", "SeedMethod", "StableBaselines", "adapter_for"]

Step = Callable[[Any], "tuple[Any, Any, Any, Any, Any]"]


def not_five(found: Any) -> SpecError:
    """The error of a step that did not return five values."""
    old = ", as gym did before 0.26" if isinstance(found, tuple) and len(found) == 4 else ""
    return SpecError(
        f"step returned {_many(found)}{old}, where five are wanted: return observation, reward, terminated, truncated, "
        "info. An episode that is over is terminated where the task ended it, and truncated where the time was up."
    )


def _many(found: Any) -> str:
    return f"{len(found)} values" if isinstance(found, tuple) else f"one value ({type(found).__name__})"


class FiveTuple:
    """gym 0.26 and every gymnasium.

    Attributes:
        library: ``"gymnasium"`` or ``"gym"``.
        module: the library itself.
    """

    #: Whether the actions of a vector environment are a sequence with one for each row, whatever the space.
    vector_actions_are_rows = False
    #: Whether ``env.seed`` seeds, rather than ``reset(seed=...)``.
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
        """The library's version, as PEP 440 orders them."""
        return library_version(self.library)

    def submodule(self, name: str) -> ModuleType:
        """A module inside the library."""
        return importlib.import_module(f"{self.library}.{name}")

    # -- making ---------------------------------------------------------------------------------------------------

    def make(self, name: str, *, disable_env_checker: bool | None, render_mode: str | None, **kwargs: Any) -> Any:
        """Make a single environment.

        Args:
            name: the id, as the library knows it.
            disable_env_checker: None runs none: what the environment returns is checked against its spaces anyway, and
                the checker of gym does not run with numpy 2.
            render_mode: as newer versions name it; older ones render whatever is asked of ``render``.
            **kwargs: for the library's ``make``.
        """
        kwargs.update(self.checker_arguments(disable_env_checker))
        kwargs.update(self.render_arguments(render_mode))
        return self.module.make(name, **kwargs)

    def checker_arguments(self, disable: bool | None) -> dict[str, Any]:
        """The argument of ``make`` about the environment checker, in versions that have one."""
        return {"disable_env_checker": True if disable is None else disable}

    def render_arguments(self, render_mode: str | None) -> dict[str, Any]:
        """The argument of ``make`` about rendering, in versions that have one."""
        return {} if render_mode is None else {"render_mode": render_mode}

    # -- one environment ------------------------------------------------------------------------------------------

    def reset(self, env: Any, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        """Begin an episode.

        Returns:
            ``(observation, info)``.
        """
        if seed is None and options is None:
            found = env.reset()
        elif options is None:
            found = env.reset(seed=seed)
        else:
            found = env.reset(seed=seed, options=options)
        return self.sort_reset(found)

    def stepper(self, env: Any) -> Step:
        """The function that takes one step and returns five values."""
        step: Step = env.step
        return step

    def sort_step(self, outputs: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Bring what ``step`` returned to ``(observation, reward, terminated, truncated, info)``."""
        if not isinstance(outputs, tuple) or len(outputs) != 5:
            raise not_five(outputs)
        return outputs

    def unsort_step(self, found: tuple[Any, Any, Any, Any, Any]) -> Any:
        """The way back: what a wrapper of the library's own kind returns."""
        return found

    def unsort_reset(self, found: tuple[Any, Any]) -> Any:
        """The way back: what an environment of the library's own kind returns."""
        return found

    @property
    def loses_steps_of_batches(self) -> bool:
        """Whether the library's vector environments begin each episode with a step that is no transition."""
        return self.library == "gymnasium" and self.version.release[:2] == (1, 0)

    def sort_reset(self, outputs: Any) -> tuple[Any, Any]:
        """Bring what ``reset`` returned to ``(observation, info)``."""
        if not isinstance(outputs, tuple) or len(outputs) != 2:
            raise SpecError(
                f"reset returned {_many(outputs)}, where {self.library} wants two: return observation, info (a dict)."
            )
        return outputs

    def frame(self, env: Any) -> Any:
        """Render one frame: ``[H, W, 3]`` uint8."""
        return env.render()

    def render(self, env: Any, mode: str | None, **kwargs: Any) -> Any:
        """Call the library's ``render``."""
        return env.render(**kwargs)


class SeedKeyword(FiveTuple):
    """gym 0.22 to 0.25: ``reset`` takes the seed, ``step`` returns four values, infos carry the time limit."""

    def checker_arguments(self, disable: bool | None) -> dict[str, Any]:
        return super().checker_arguments(disable) if self._since("0.24") else {}

    def render_arguments(self, render_mode: str | None) -> dict[str, Any]:
        if render_mode is None or not self._since("0.25"):
            return {}
        # 0.25 returns a list of all frames since the last call for "rgb_array".
        return {"render_mode": "single_rgb_array" if render_mode == "rgb_array" else render_mode}

    def reset(self, env: Any, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        given = {name: value for name, value in (("seed", seed), ("options", options)) if value is not None}
        accepted = _reset_arguments(env)
        if "seed" in given and accepted is not None and "seed" not in accepted:
            env.seed(given.pop("seed"))
        return self.sort_reset(env.reset(**given))

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
        return observation, reward, bool(done) and not truncated, truncated, info

    def unsort_step(self, found: tuple[Any, Any, Any, Any, Any]) -> Any:
        observation, reward, terminated, truncated, info = found
        if terminated or truncated:
            info["TimeLimit.truncated"] = truncated
        return observation, reward, terminated or truncated, info

    def unsort_reset(self, found: tuple[Any, Any]) -> Any:
        return found[0]

    def sort_reset(self, outputs: Any) -> tuple[Any, Any]:
        # Newer environments run under older libraries too, and return their info.
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
    """gym before 0.22: ``env.seed`` seeds."""

    vector_actions_are_rows = True
    seeds_by_method = True
    loses_steps_of_batches = True

    def reset(self, env: Any, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        if seed is not None:
            env.seed(seed)
        return self.sort_reset(env.reset() if options is None else env.reset(options=options))


class StableBaselines(SeedMethod):
    """The vector environments of Stable-Baselines3: the old API, with the spaces of the new library."""

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
    """The adapter of the library that answers here and now.

    Raises:
        BackendError: neither library is installed.
        NoImplementation: its version is outside what this package knows.
    """
    with warnings.catch_warnings():
        # Importing gym under numpy 2 says so in a warning, besides a notice on stderr.
        warnings.simplefilter("ignore")
        gym_backend()  # says how to install one where there is none
        found: Adapter = _adapter()
        return found


def _reset_arguments(env: Any) -> set[str] | None:
    """What the innermost environment's ``reset`` accepts; None where it accepts anything."""
    parameters = inspect.signature(getattr(env, "unwrapped", env).reset).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return None
    return set(parameters)


def _truncated_rows(info: Any, n: int) -> np.ndarray:
    """Which rows of a vector environment hit their time limit: one info each, or a dict of arrays since 0.24."""
    if isinstance(info, dict):
        return np.asarray(info.get("TimeLimit.truncated", np.zeros(n, bool)), bool)
    return np.array([bool(row.get("TimeLimit.truncated", False)) for row in info])
