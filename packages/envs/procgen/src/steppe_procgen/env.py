"""ProcgenEnv: batches of the games of Procgen."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase

from steppe.envs import ActionRule, EnvBase, RowLayout, base_arguments, missing_action, no_layout_reason, step_mask
from steppe.errors import ArgumentError, NotSupported
from steppe.registry import AvailableEnvs, env_not_found
from steppe.specs import Binary, Bounded, Categorical, Composite, OneHot, Spec, Unbounded
from steppe.storage import build_td

from .games import Games
from .games_writer import GamesWriter, write_begun, write_step
from .names import env_names

__all__ = ["ProcgenEnv", "ProcgenWrapper"]

_FLAGS = ("done", "terminated", "truncated")


class ProcgenWrapper(EnvBase):
    """Wrap a batch of games, ``procgen.ProcgenEnv(num_envs, name)`` or ``procgen.ProcgenGym3Env``.

    ====================  ===========================================================================================
    Key                   Value, for n games
    ====================  ===========================================================================================
    ``"observation"``     ``[n, 3, 64, 64]`` uint8
    ``"level_seed"``      ``[n, 1]`` int32: the level that is played, of ``next`` too
    ``"level_complete"``  ``[n, 1]`` bool: in ``next`` of a last step, whether the level was solved
    ``"action"``          ``[n]`` int64, one of 15; one-hot rows with ``categorical_action_encoding=False``
    ``"reward"``          ``[n, 1]`` float32
    ``"done"``            ``[n, 1]`` bool, with ``"terminated"`` and ``"truncated"`` (always False: the library does
                          not tell a time limit from another end)
    ====================  ===========================================================================================

    Procgen resets games by itself, in the step in which they end, and overwrites their last images. The last
    observation of an episode, ``("next", "observation")`` where done is True, is therefore zero, never the first image
    of the next episode. That image is returned by the reset that follows.

    A reset in the middle of an episode, and a step of some games alone, save the states of the other games and restore
    them, which takes milliseconds.

    >>> from procgen import ProcgenEnv
    >>> from steppe_procgen import ProcgenWrapper
    >>> env = ProcgenWrapper(ProcgenEnv(num_envs=2, env_name="coinrun"))
    >>> env.rollout(3)["observation"].shape
    torch.Size([2, 3, 3, 64, 64])

    Args:
        env: the environment of Procgen.
        categorical_action_encoding: actions are integers instead of one-hot rows.
        **kwargs: for :class:`steppe.envs.EnvBase`.
    """

    git_url = "https://github.com/openai/procgen"
    libname = "procgen"
    available_envs = AvailableEnvs(env_names)

    def __init__(self, env: Any, *, categorical_action_encoding: bool = True, **kwargs: Any) -> None:
        games = Games(env)
        size = kwargs.pop("batch_size", None)
        if size is not None and tuple(torch.Size([size] if isinstance(size, int) else size)) != (games.n,):
            raise ArgumentError(f"The batch size of {games.n} games is [{games.n}], found batch_size={size!r}.")
        super().__init__(batch_size=(games.n,), **kwargs)
        state = self.__dict__
        state["_env"], state["_games"] = env, games
        state["categorical_action_encoding"] = categorical_action_encoding
        self._make_specs()

    def _make_specs(self) -> None:
        n = self.batch_size[0]
        observation = Composite(
            observation=Bounded(0, 255, shape=(n, 3, 64, 64), dtype=torch.uint8),
            level_seed=Unbounded(shape=(n, 1), dtype=torch.int32),
            level_complete=Binary(shape=(n, 1), dtype=torch.bool),
            shape=(n,),
        )
        choices = len(self._games.gym3.get_combos())
        action: Spec = Categorical(choices) if self.categorical_action_encoding else OneHot(choices)
        flags = {name: Binary(shape=(n, 1), dtype=torch.bool) for name in _FLAGS}
        self.observation_spec = observation.to(self.device)
        self.action_spec = action.expand(n, *action.shape).to(self.device)
        self.reward_spec = Unbounded(shape=(n, 1)).to(self.device)
        self.done_spec = Composite(flags, shape=(n,)).to(self.device)
        self.__dict__["_action_rule"] = ActionRule("action", self.full_action_spec["action"], batch_dims=1)

    # -- rows -----------------------------------------------------------------------------------------------------

    def no_rows_reason(self) -> str | None:
        """Return why the games are not stepped on rows, or None if they are."""
        reason: str | None = no_layout_reason(self)
        return reason

    def make_row_writer(self) -> GamesWriter:
        """Make the row writer of all games."""
        return GamesWriter(self._games, RowLayout.of(self), one_hot=not self.categorical_action_encoding)

    # -- TensorDicts ----------------------------------------------------------------------------------------------

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        if kwargs:
            raise TypeError(f"{type(self).__name__}.reset does not take {sorted(kwargs)}.")
        mask = None if tensordict is None else tensordict.get("_reset", None)
        n = self.batch_size[0]
        rows = list(range(n)) if mask is None else mask.reshape(n).nonzero()[:, 0].tolist()
        out = self._new_rows(with_reward=False)
        write_begun(self._games.reset(rows), out, rows)
        return self._data(out, np.zeros(n, bool))

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        requested = tensordict.get("action", None)
        if requested is None:
            raise missing_action(tensordict, "action")
        action = self._action_rule.fit(requested, self.batch_size).detach().cpu().numpy()
        mask = tensordict.get("_step", None)
        rows = None if mask is None else step_mask(tensordict, mask).reshape(-1).nonzero()[:, 0].tolist()
        frame = self._games.step(action if self.categorical_action_encoding else action.argmax(-1), rows)
        out = self._new_rows(with_reward=True)
        write_step(frame, out, slice(None) if rows is None else rows)
        return self._data(out, frame.ended)

    def _new_rows(self, *, with_reward: bool) -> dict[Any, np.ndarray]:
        n = self.batch_size[0]
        out: dict[Any, np.ndarray] = {
            "observation": np.zeros((n, 3, 64, 64), np.uint8),
            "level_seed": np.zeros((n, 1), np.int32),
            "level_complete": np.zeros((n, 1), bool),
        }
        return {**out, "reward": np.zeros((n, 1), np.float32)} if with_reward else out

    def _data(self, out: dict[Any, np.ndarray], ended: np.ndarray) -> TensorDictBase:
        flags = ended[:, None]
        arrays = {**out, "done": flags.copy(), "terminated": flags.copy(), "truncated": np.zeros_like(flags)}
        data = build_td({key: torch.from_numpy(value) for key, value in arrays.items()}, self.batch_size)
        return data if self.device is None else data.to(self.device)

    # -- the library ----------------------------------------------------------------------------------------------

    def _set_seed(self, seed: int | None) -> None:
        raise NotSupported(
            "Procgen seeds its games only when they are made, and these were made outside of steppe. Use ProcgenEnv, "
            "which makes new games with the seed."
        )

    @property
    def lib(self) -> Any:
        """The module ``procgen``."""
        import procgen

        return procgen

    def render(self, row: int = 0) -> np.ndarray[Any, Any]:
        """Return the image of one game.

        It is ``[512, 512, 3]`` uint8 with ``render_mode="rgb_array"``, otherwise the observation ``[64, 64, 3]``.
        """
        info = self._games.gym3.get_info()[row]
        frame: np.ndarray[Any, Any] = info["rgb"] if "rgb" in info else self._games.gym3.observe()[1]["rgb"][row]
        return np.array(frame)

    def close(self, *, raise_if_closed: bool = False) -> None:
        """Close the games and their threads."""
        was_closed = self.is_closed
        super().close(raise_if_closed=raise_if_closed)
        if not was_closed:
            self._games.gym3.close()

    def __getstate__(self) -> dict[str, Any]:
        raise NotSupported("Games of Procgen cannot be pickled: pass a factory, and make them in the process.")


class ProcgenEnv(ProcgenWrapper):
    """Make a batch of games of Procgen by name; see :class:`ProcgenWrapper` for the data.

    >>> from steppe_procgen import ProcgenEnv
    >>> ProcgenEnv("coinrun", num_envs=4, seed=0).rollout(5)["next", "reward"].shape
    torch.Size([4, 5, 1])

    Args:
        env_name: a name of ``ProcgenEnv.available_envs``.
        num_envs: number of games.
        seed: seed of the games; :meth:`set_seed` makes new ones with another seed.
        categorical_action_encoding: see :class:`ProcgenWrapper`.
        **kwargs: for :class:`steppe.envs.EnvBase`; all others go to Procgen: ``num_levels``, ``start_level``,
            ``distribution_mode``, ``use_sequential_levels``, ``render_mode``, ...

    Raises:
        EnvNotFound: Procgen has no such game.
        ArgumentError: an argument that Procgen refuses.
    """

    def __init__(
        self,
        env_name: str,
        *,
        num_envs: int = 1,
        seed: int | None = None,
        categorical_action_encoding: bool = True,
        **kwargs: Any,
    ) -> None:
        if isinstance(num_envs, bool) or not isinstance(num_envs, int) or num_envs < 1:
            raise ArgumentError(f"num_envs must be an integer >= 1, found {num_envs!r}.")
        # The library ends the process for an unknown name.
        if env_name not in env_names():
            raise env_not_found("procgen", env_name, names=env_names())
        base_kwargs = base_arguments(kwargs)
        if seed is not None:
            kwargs["rand_seed"] = seed % 2**31
        super().__init__(
            _make(env_name, num_envs, kwargs), categorical_action_encoding=categorical_action_encoding, **base_kwargs
        )
        self.__dict__["env_name"] = env_name
        self.__dict__["_settings"] = kwargs

    def _set_seed(self, seed: int | None) -> None:
        settings = {name: value for name, value in self._settings.items() if name != "rand_seed"}
        if seed is not None:
            settings["rand_seed"] = seed % 2**31
        games = self._games
        games.gym3.close()
        env = _make(self.env_name, self.batch_size[0], settings)
        self.__dict__["_env"] = env
        games.use(env)

    def __repr__(self) -> str:
        return f"ProcgenEnv({self.__dict__.get('env_name')!r}, num_envs={self.batch_size[0]})"


def _make(name: str, num_envs: int, settings: dict[str, Any]) -> Any:
    from procgen import ProcgenGym3Env

    try:
        return ProcgenGym3Env(num=num_envs, env_name=name, **settings)
    except (AssertionError, TypeError) as error:
        # Some of the library's assertions have no text.
        raise ArgumentError(
            f"Procgen cannot make {name!r} with {settings}: {str(error) or 'a value is invalid'}"
        ) from error
