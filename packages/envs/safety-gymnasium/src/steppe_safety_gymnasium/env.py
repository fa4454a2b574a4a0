"""SafetyGymnasiumEnv: environments of Safety-Gymnasium, whose steps have a cost."""

from __future__ import annotations

from typing import Any

from steppe.envs import MadeByName, base_arguments
from steppe.errors import ArgumentError
from steppe.registry import AvailableEnvs, env_not_found
from steppe.specs import Unbounded
from steppe_gym import GymWrapper
from steppe_gym_like import default_info_dict_reader

from .names import env_names

__all__ = ["SafetyGymnasiumEnv", "SafetyGymnasiumWrapper"]


class CostInInfo:
    """An environment of Safety-Gymnasium with the steps of gymnasium: the cost is in the info.

    Args:
        env: the environment, whose ``step`` returns six values.
        frame_skip: number of times that each action is taken. Rewards and costs are added up.
    """

    def __init__(self, env: Any, frame_skip: int = 1) -> None:
        self.env, self.frame_skip = env, frame_skip

    def __getattr__(self, name: str) -> Any:
        if name == "env":  # while it is unpickled
            raise AttributeError(name)
        return getattr(self.env, name)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step; return five values."""
        total = total_cost = 0.0
        for _ in range(self.frame_skip):
            observation, reward, cost, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            total_cost += float(cost)
            if terminated or truncated:
                break
        return observation, total, bool(terminated), bool(truncated), {**info, "cost": total_cost}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Reset the environment."""
        return self.env.reset(seed=seed, options=options)


class SafetyGymnasiumWrapper(GymWrapper):
    """Wrap an environment of Safety-Gymnasium, ``safety_gymnasium.make(...)``.

    ``"cost"`` is ``[1]`` float32, an entry of the observations: 0 at a reset, and in ``next`` the cost of the step. All
    other entries are those of :class:`steppe_gym.GymWrapper`.

    >>> import safety_gymnasium
    >>> from steppe_safety_gymnasium import SafetyGymnasiumWrapper
    >>> env = SafetyGymnasiumWrapper(safety_gymnasium.make("SafetyPointGoal1-v0"))
    >>> env.rollout(3)["next", "cost"].shape
    torch.Size([3, 1])

    Args:
        env: the environment.
        frame_skip: number of times that each action is taken. Rewards and costs are added up.
        **kwargs: see :class:`steppe_gym.GymWrapper`.
    """

    available_envs = AvailableEnvs(env_names)
    libname = "safety-gymnasium"
    git_url = "https://github.com/PKU-Alignment/safety-gymnasium"

    def __init__(self, env: Any, *, frame_skip: int | None = None, **kwargs: Any) -> None:
        if frame_skip is not None and (not isinstance(frame_skip, int) or frame_skip < 1):
            raise ArgumentError(f"frame_skip must be a whole number >= 1, found {frame_skip!r}.")
        super().__init__(CostInInfo(env, frame_skip or 1), **kwargs)
        self.set_info_dict_reader(default_info_dict_reader(["cost"], spec={"cost": Unbounded((1,))}))

    @property
    def lib(self) -> Any:
        """The module ``safety_gymnasium``."""
        import safety_gymnasium

        return safety_gymnasium


class SafetyGymnasiumEnv(MadeByName, SafetyGymnasiumWrapper):
    """Make an environment of Safety-Gymnasium by its name; see :class:`SafetyGymnasiumWrapper` for the data.

    >>> from steppe_safety_gymnasium import SafetyGymnasiumEnv
    >>> SafetyGymnasiumEnv("SafetyPointGoal1-v0").rollout(3)["next", "cost"].shape
    torch.Size([3, 1])

    Args:
        env_name: the id, such as ``"SafetyPointGoal1-v0"``.
        num_workers: a number above 1 makes a :class:`~steppe.ParallelEnv` of this many environments instead.
        categorical_action_encoding: discrete values are integers instead of one-hot vectors.
        frame_skip: see :class:`SafetyGymnasiumWrapper`.
        from_pixels: render a frame in each step and add it as ``"pixels"``, ``[H, W, 3]`` uint8.
        pixels_only: with ``from_pixels``, leave out the observation of the library.
        device: device of the data.
        **kwargs: for :class:`steppe.envs.EnvBase`; all others go to ``safety_gymnasium.make``.

    Raises:
        EnvNotFound: Safety-Gymnasium has no such environment.
    """

    def __init__(
        self,
        env_name: str,
        *,
        num_workers: int | None = None,
        categorical_action_encoding: bool = False,
        frame_skip: int | None = None,
        from_pixels: bool = False,
        pixels_only: bool = True,
        device: Any = None,
        **kwargs: Any,
    ) -> None:
        # Only ids of its own have a cost; the library asserts this.
        if env_name not in (names := env_names()):
            raise env_not_found("safety", env_name, names=names)
        base_kwargs = base_arguments(kwargs)
        if from_pixels:
            kwargs.setdefault("render_mode", "rgb_array")
        import safety_gymnasium

        super().__init__(
            safety_gymnasium.make(env_name, **kwargs),
            frame_skip=frame_skip,
            categorical_action_encoding=categorical_action_encoding,
            from_pixels=from_pixels,
            pixels_only=pixels_only,
            device=device,
            **base_kwargs,
        )
        self.__dict__["env_name"] = env_name
