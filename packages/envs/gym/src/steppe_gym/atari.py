"""``atari_preprocessing``: the usual preparation of Atari games, equal to gymnasium's wrappers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase

import steppe
from steppe.errors import ArgumentError, NotSupported
from steppe.specs import Bounded, Composite
from steppe.transforms import Compose, SteppingTransform

from .wrapper import GymWrapper

__all__ = ["AtariScreens", "atari_preprocessing"]

#: Steps the game once with an action; returns reward, terminated and truncated.
_StepGame = Callable[[], tuple[float, bool, bool]]


def atari_preprocessing(
    *,
    noop_max: int = 30,
    frame_skip: int = 4,
    screen_size: int = 84,
    terminal_on_life_loss: bool = False,
    grayscale: bool = True,
    scale: bool = False,
    stack: int = 4,
) -> Compose:
    """Return the transforms that prepare an Atari game, as one Compose for one environment.

    Observations and rewards equal those of gymnasium's ``AtariPreprocessing`` with ``FrameStackObservation`` behind it,
    bit for bit, for the same seed. The game must not repeat actions itself: make it with ``frameskip=1``. In a batch,
    put the transforms inside, so that workers run them and send stacks of uint8::

        def make():
            return TransformedEnv(make_env("gym:ALE/Pong-v5", frameskip=1), atari_preprocessing())

        batch = ParallelEnv(8, make)

    >>> from steppe import TransformedEnv, atari_preprocessing, make_env
    >>> env = TransformedEnv(make_env("gym:ALE/Pong-v5", frameskip=1), atari_preprocessing())
    >>> env.rollout(3)["pixels"].shape
    torch.Size([3, 4, 84, 84])

    Args:
        noop_max: after a reset, do nothing for 1 to ``noop_max`` frames; 0 for none.
        frame_skip: repeat each action so often, and show the maximum of the last two frames.
        screen_size: rows and columns of the result, resized by OpenCV's area mean.
        terminal_on_life_loss: end the episode when a life is lost.
        grayscale: show brightness, ``[stack, size, size]``; otherwise colours, ``[stack, size, size, 3]``.
        scale: divide by 255, to float32. Integers take a quarter of the memory.
        stack: number of observations in a stack, the oldest first.

    Raises:
        ArgumentError: a number is out of its range.
        ImportError: OpenCV or steppe-time is not installed; ``pip install 'steppe-gym[atari]'``.
    """
    screens = AtariScreens(noop_max, frame_skip, screen_size, terminal_on_life_loss, grayscale, scale)
    return Compose(screens, steppe.CatFrames(_whole("stack", stack, 1), dim=-3 if grayscale else -4))


def _whole(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ArgumentError(f"atari_preprocessing: {name} must be a whole number >= {least}, found {value!r}.")
    return value


class AtariScreens(SteppingTransform):
    """Repeat actions of an Atari game and show the maximum of the last two screens, resized.

    :func:`atari_preprocessing` returns it with a stack of frames behind it and describes the arguments.

    >>> from steppe import TransformedEnv, make_env
    >>> from steppe_gym import AtariScreens
    >>> env = TransformedEnv(make_env("gym:ALE/Pong-v5", frameskip=1), AtariScreens(noop_max=0))
    >>> env.reset()["pixels"].shape
    torch.Size([1, 84, 84])
    """

    writes_done = True
    keeps_nothing = True

    # The game is in the emulator, not in the data: so is what a step shows of the frames before it. The last screen is
    # not resized; the last step of an episode may show it.
    _screen: np.ndarray[Any, Any] | None = None
    _lives = 0
    _alone: tuple[GymWrapper | None] | None = None
    _unwrapped: Any = None
    _derived = (*SteppingTransform._derived, "_screen", "_lives", "_alone", "_unwrapped")

    def __init__(
        self,
        noop_max: int = 30,
        frame_skip: int = 4,
        screen_size: int = 84,
        terminal_on_life_loss: bool = False,
        grayscale: bool = True,
        scale: bool = False,
    ) -> None:
        try:
            import cv2  # noqa: F401
        except ImportError as error:
            raise ImportError(
                "atari_preprocessing resizes screens with OpenCV, which is not installed: "
                "pip install 'steppe-gym[atari]'"
            ) from error
        super().__init__(in_keys=["pixels"], out_keys=["pixels"])
        self.noop_max = _whole("noop_max", noop_max, 0)
        self.frame_skip = _whole("frame_skip", frame_skip, 1)
        self.screen_size = _whole("screen_size", screen_size, 1)
        self.terminal_on_life_loss = bool(terminal_on_life_loss)
        self.grayscale, self.scale = bool(grayscale), bool(scale)

    # -- specs -----------------------------------------------------------------------------------------------------

    def _check(self, observation_spec: Composite) -> None:
        """Raise an error unless the environment is a single game that shows images."""
        if observation_spec.shape:
            raise NotSupported(
                "atari_preprocessing() works in a single game. In a batch, put it inside: "
                "ParallelEnv(8, lambda: TransformedEnv(make_env('gym:ALE/Pong-v5', frameskip=1), "
                "atari_preprocessing()))"
            )
        game = self._game
        if getattr(game, "ale", None) is None or "pixels" not in observation_spec:
            raise NotSupported(
                f"atari_preprocessing() needs a game of ALE with images, such as 'gym:ALE/Pong-v5', found {game!r}."
            )
        if self.frame_skip > 1 and game._frameskip != 1:
            raise ArgumentError(
                f"atari_preprocessing(frame_skip={self.frame_skip}) repeats actions, and the game repeats them "
                f"{game._frameskip} times itself. Make it with frameskip=1: make_env('gym:ALE/Pong-v5', frameskip=1)."
            )

    def transform_observation_spec(self, observation_spec: Composite) -> Composite:
        self._check(observation_spec)
        shape = (1, self.screen_size, self.screen_size, *(() if self.grayscale else (3,)))
        dtype, high = (torch.float32, 1.0) if self.scale else (torch.uint8, 255)
        observation_spec["pixels"] = Bounded(0, high, shape, dtype=dtype, device=observation_spec["pixels"].device)
        return observation_spec

    # -- steps -----------------------------------------------------------------------------------------------------

    @property
    def _game(self) -> Any:
        """The game of the library, without wrappers."""
        if self._unwrapped is None:
            env = self.env
            self._unwrapped = getattr(getattr(env, "base_env", env), "unwrapped", None)
        return self._unwrapped

    @property
    def _stepped(self) -> GymWrapper | None:
        """The environment of the library, if frames after the first step it alone, without TensorDicts.

        Nothing else may see these frames: no transform before this one, no entry but the screen, no reader of infos.
        """
        if self._alone is None:
            env = self.env.base_env
            alone = (
                isinstance(env, GymWrapper)
                and not len(self.env.transform)
                and not env.overridden_methods
                and not env.info_dict_reader
                and set(env.full_observation_spec.keys(include_nested=True, leaves_only=True)) == {"pixels"}
                and list(env.action_keys) == ["action"]
            )
            self._alone = (env if alone else None,)
        return self._alone[0]

    def _read(self) -> np.ndarray[Any, Any]:
        ale = self._game.ale
        screen: np.ndarray[Any, Any] = ale.getScreenGrayscale() if self.grayscale else ale.getScreenRGB()
        return screen

    def _show(self, data: TensorDictBase, screen: np.ndarray[Any, Any]) -> TensorDictBase:
        import cv2

        self._screen = screen
        small = cv2.resize(screen, (self.screen_size, self.screen_size), interpolation=cv2.INTER_AREA)
        image = np.asarray(small, np.float32) / 255.0 if self.scale else small
        return data.set("pixels", torch.from_numpy(image).unsqueeze(0))

    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        following = next_tensordict
        game = self._stepped
        step = self._step_env(tensordict, following) if game is None else _step_game(game, tensordict)
        # gymnasium keeps the screens of the step before if the episode ends before the last two frames.
        earlier = late = self._read() if self._screen is None else self._screen
        total = 0.0
        reward, terminated, truncated = (following.get(name).item() for name in ("reward", "terminated", "truncated"))
        for frame in range(self.frame_skip):
            if frame:
                reward, terminated, truncated = step()
            total += float(reward)
            if self.terminal_on_life_loss:
                left = self._game.ale.lives()
                terminated, self._lives = bool(terminated) or left < self._lives, left
            if terminated or truncated:
                break
            if frame == self.frame_skip - 2:
                earlier = self._read()
            elif frame == self.frame_skip - 1:
                late = self._read()
        following.get("reward").fill_(total)
        if terminated or truncated:
            flags = {"terminated": bool(terminated), "truncated": bool(truncated), "done": True}
            for name, value in flags.items():
                following.get(name).fill_(value)
        return self._show(following, np.maximum(earlier, late) if self.frame_skip > 1 else late)

    def _step_env(self, tensordict: TensorDictBase, following: TensorDictBase) -> _StepGame:
        """Return a function that steps the transforms before this one too, and updates ``following``."""
        env, root = self.env, tensordict

        def step() -> tuple[float, bool, bool]:
            nonlocal root
            action = root.select(*env.action_keys)
            root = env.step_mdp(root.set("next", following)).update(action)
            result = env.step(root).get("next")
            following.update(result)
            return result.get("reward").item(), result.get("terminated").item(), result.get("truncated").item()

        return step

    def _reset(self, tensordict: TensorDictBase | None, tensordict_reset: TensorDictBase) -> TensorDictBase:
        env, data = self.env, tensordict_reset.copy()  # a step adds entries to its argument
        noops = int(self._game.np_random.integers(1, self.noop_max + 1)) if self.noop_max else 0
        for _ in range(noops):
            data = env.step_mdp(env.step(data.update(self._noop())))
            if env.any_done(data):
                data = env.reset()
        keys = tensordict_reset.keys(include_nested=True, leaves_only=True)
        shown = tensordict_reset.update(data.select(*keys, strict=False))
        self._lives = self._game.ale.lives()
        return self._show(shown, self._read())

    def _noop(self) -> TensorDictBase:
        spec = self.env.full_action_spec
        noop: TensorDictBase = spec.zero()
        for key in self.env.action_keys:
            if spec[key].choice_form == "one_hot":
                noop.get(key)[..., 0] = 1
        return noop

    def _repr_keys(self) -> Any:
        return ("noop_max", "frame_skip", "screen_size", "terminal_on_life_loss", "grayscale", "scale")


def _step_game(game: GymWrapper, tensordict: TensorDictBase) -> _StepGame:
    """Return a function that steps the library's environment with the action of the root."""
    action = game.read_action(tensordict.get("action"))
    env = _bare(game._env)
    if env is None:
        step = game._stepper()
        return lambda: step(action)[1:4]
    # The environment would also read the screen in colours, which takes as long as the frame itself.
    ale, index = env.ale, env._action_set[action]
    return lambda: (ale.act(index, 1.0), ale.game_over(with_truncation=False), ale.game_truncated())


def _bare(env: Any) -> Any:
    """Return the game of ALE, if no wrapper around it does anything in a step; otherwise None."""
    while type(env).__name__ in ("OrderEnforcing", "PassiveEnvChecker"):
        env = env.env
    plain = type(env).__module__.startswith("ale_py.") and type(env).__name__ == "AtariEnv"
    return env if plain and not env.continuous and env._frameskip == 1 else None
