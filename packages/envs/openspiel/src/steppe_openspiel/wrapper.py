"""OpenSpielWrapper: wrap a state of an OpenSpiel game."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
import torch
from tensordict import NonTensorData, TensorDict, TensorDictBase

from steppe.envs import ActionCodec, ArrayEnv, LibraryWrapper, refuse_seed
from steppe.errors import ActionError, NotSupported, StateError
from steppe.registry import AvailableEnvs
from steppe.specs import Binary, Categorical, Composite, NonTensor, OneHot, Spec, Unbounded
from steppe_multi_agent import GroupMap, MarlGroupMapType, group_agents

from .names import env_names, unsupported

__all__ = ["ChanceSampler", "OpenSpielWrapper"]

#: Chooses the outcome of a chance node: gets the actions and their probabilities, returns one of the actions.
ChanceSampler: TypeAlias = "Callable[[list[int], list[float]], int]"

_FLAGS = ("done", "terminated", "truncated")

#: The methods of a game state that return the two kinds of observations.
_TENSORS = {"observation": "observation_tensor", "information_state": "information_state_tensor"}


class OpenSpielWrapper(LibraryWrapper, ArrayEnv):
    """Wrap a state of an OpenSpiel game, ``pyspiel.load_game(...).new_initial_state()``.

    Players are agents, ``player_0``, ``player_1``, ...; the data of a group of m agents is stacked:

    ================================  ================================================================================
    Key                               Value
    ================================  ================================================================================
    ``(group, "observation")``        ``[m, *shape]`` float32, if the game has observation tensors
    ``(group, "information_state")``  ``[m, *shape]`` float32, if the game has information-state tensors
    ``(group, "action_mask")``        ``[m, n]`` bool: the legal actions; action 0 alone for players that do not act
    ``(group, "action")``             ``[m, n]`` one-hot rows, or ``[m]`` integers with ``categorical_actions``
    ``(group, "reward")``             ``[m, 1]`` float32: by how much the step changed the return of each player
    ``"current_player"``              ``[]`` int32: whose turn it is; -2 if all act at once, -4 after the end
    ``"done"``                        ``[1]`` bool, with ``"terminated"`` and ``"truncated"`` (always False)
    ``"state"``                       text, with ``return_state``: the serialized state of the game
    ================================  ================================================================================

    In a sequential game, each step is the action of the current player, and the actions of other players are ignored.
    In a simultaneous game, all players act. Chance nodes are sampled with the random generator of this environment,
    which ``set_seed`` seeds, until a player acts or the game ends. Games that draw random numbers themselves
    (``rng_seed`` among their parameters) are loaded again with each new seed.

    OpenSpiel does not check actions, so this class does. The masks are declared as :attr:`action_masks`, so random
    actions (``rand_action``, ``rollout`` without a policy) are legal.

    With ``return_state``, ``reset(td)`` continues from the state in ``td``, unless ``set_state=False``. Automatic
    resets begin a new game.

    >>> import pyspiel
    >>> from steppe_openspiel import OpenSpielWrapper
    >>> env = OpenSpielWrapper(pyspiel.load_game("tic_tac_toe").new_initial_state())
    >>> data = env.rollout(20)  # legal moves of both players
    >>> 5 <= len(data) <= 9, data["agents", "action_mask"].shape[1:]
    (True, torch.Size([2, 9]))

    Args:
        env: a state of a game. The first ``reset`` starts a new game.
        group_map: ``{group: [agents]}``, a :class:`~steppe.MarlGroupMapType`, or None for one group for each player.
            The default is one group ``"agents"``.
        categorical_actions: actions are integers instead of one-hot rows.
        return_state: add the serialized state to the data.
        chance_sampler: chooses the outcomes of chance nodes.
        device: device of the data.
        **kwargs: for :class:`steppe.EnvBase`.

    Attributes:
        group_map: ``{group: [agents]}``.
        agent_names: the names of all players.
        parallel: whether the game is simultaneous.

    Raises:
        TypeError: ``env`` is no state of a game.
        NotSupported: the game is a mean-field game, its actions are no numbers, or a batch size was passed.
        SpecError: ``group_map`` does not fit the players.
    """

    git_url = "https://github.com/google-deepmind/open_spiel"
    libname = "pyspiel"
    available_envs = AvailableEnvs(env_names)
    default_group_map: ClassVar[MarlGroupMapType] = MarlGroupMapType.ALL_IN_ONE_GROUP

    def __init__(
        self,
        env: Any,
        *,
        group_map: GroupMap = default_group_map,
        categorical_actions: bool = False,
        return_state: bool = False,
        chance_sampler: ChanceSampler | None = None,
        device: torch.device | str | int | None = None,
        **kwargs: Any,
    ) -> None:
        import pyspiel

        if not isinstance(env, pyspiel.State):
            raise TypeError(
                f"OpenSpielWrapper wraps a state of a game, found {env!r}. Pass "
                "pyspiel.load_game('chess').new_initial_state(), or call OpenSpielEnv('chess')."
            )
        if kwargs.get("batch_size"):
            raise NotSupported("A game has no batch_size. For a batch, call ParallelEnv(n, 'openspiel:...').")
        game = env.get_game()
        game_type = game.get_type()
        if (reason := unsupported(game_type)) is not None:
            raise NotSupported(f"OpenSpielWrapper cannot step {game_type.short_name!r}: {reason}.")
        # With a state in its data, a game may be continued from its last position.
        super().__init__(device=device, **{"allow_done_after_reset": return_state, **kwargs})
        self.wrap_library(env)
        state = self.__dict__
        state["game"] = game
        state["parallel"] = game_type.dynamics == pyspiel.GameType.Dynamics.SIMULTANEOUS
        state["categorical_actions"] = categorical_actions
        state["return_state"] = state["_supports_set_state"] = return_state
        state["_seeds_game"] = "rng_seed" in game_type.parameter_specification
        state["_chance_sampler"] = chance_sampler
        state["_rng"] = np.random.default_rng()
        state["_returns"] = [0.0] * env.num_players()
        state["agent_names"] = [f"player_{player}" for player in range(env.num_players())]
        if group_map is None:
            group_map = MarlGroupMapType.ONE_GROUP_PER_AGENT
        state["group_map"] = group_agents(group_map, self.agent_names)
        self._make_specs()

    # -- specs ----------------------------------------------------------------------------------------------------

    def _make_specs(self) -> None:
        game, device, attributes = self.game, self.device, self.__dict__
        shapes = attributes["_shapes"] = _tensor_shapes(game)
        n = attributes["_choices"] = int(game.num_distinct_actions())
        action: Spec = Categorical(n) if self.categorical_actions else OneHot(n)
        observations: dict[str, Spec] = {}
        actions: dict[str, Spec] = {}
        rewards: dict[str, Spec] = {}
        members: dict[str, list[int]] = {}
        for group, names in self.group_map.items():
            members[group] = [self.agent_names.index(name) for name in names]
            m = len(names)
            entries: dict[str, Spec] = {name: Unbounded(shape=(m, *shape)) for name, shape in shapes.items()}
            entries["action_mask"] = Binary(shape=(m, n), dtype=torch.bool)
            observations[group] = Composite(entries, shape=(m,))
            actions[group] = Composite(action=action.expand(m, *action.shape), shape=(m,))
            rewards[group] = Composite(reward=Unbounded(shape=(m, 1)), shape=(m,))
        observations["current_player"] = Unbounded(shape=(), dtype=torch.int32)
        if self.return_state:
            observations["state"] = NonTensor(example_data="")
        flags = {name: Binary(shape=(1,), dtype=torch.bool) for name in _FLAGS}
        for kind, spec in (("observation", observations), ("action", actions), ("reward", rewards), ("done", flags)):
            self.assign_spec(kind, Composite(spec) if device is None else Composite(spec).to(device))
        attributes["_members"] = members
        self.action_masks = {(group, "action"): (group, "action_mask") for group in members}

    # -- rows -----------------------------------------------------------------------------------------------------

    def reset_into(self, out: dict[Any, np.ndarray], seed: int | None, env_info: object) -> None:
        """Begin a game, and write the first position in which a player acts."""
        self._begin(seed)
        self._write(out)

    def step_into(self, action: Any, out: dict[Any, np.ndarray]) -> tuple[bool, bool]:
        """Act for the current player, or for all, and write the next position in which a player acts."""
        terminal = self._play(action)
        self._write(out)
        returns = self._env.returns()
        for group, members in self._members.items():
            reward = out[group, "reward"]
            for i, player in enumerate(members):
                reward[i, 0] = returns[player] - self._returns[player]
        self.__dict__["_returns"] = returns
        return terminal, False

    def _begin(self, seed: int | None) -> None:
        attributes = self.__dict__
        if seed is not None:
            attributes["_rng"] = np.random.default_rng(seed)
            if self._seeds_game:
                self._load_game(seed)
        self.wrap_library(self.game.new_initial_state())
        self._play_chance()
        attributes["_returns"] = [0.0] * len(self.agent_names)

    def _load_game(self, seed: int) -> None:
        """Load the game again, with another seed of its own random generator."""
        import pyspiel

        parameters = {**self.game.get_parameters(), "rng_seed": seed % (2**31 - 1)}
        self.__dict__["game"] = pyspiel.load_game(self.game.get_type().short_name, parameters)

    def _play(self, action: Any) -> bool:
        """Apply the action of the current player, or the actions of all.

        Args:
            action: for each group the numbers of its agents' actions ``[m]``, or their one-hot rows ``[m, n]``; the
                value alone if there is one group.

        Returns:
            Whether the game is over.
        """
        state = self._env
        if state.is_terminal():
            raise StateError("The game is over: call env.reset() before the next step.")
        values = action if isinstance(action, dict) else {(group, "action"): action for group in self._members}
        if state.is_simultaneous_node():
            chosen = [0] * len(self.agent_names)
            for group, members in self._members.items():
                for player, number in zip(members, self._numbers(values[group, "action"]), strict=True):
                    self._check_legal(player, number)
                    chosen[player] = number
            state.apply_actions(chosen)
        else:
            player = state.current_player()
            group, i = self._place_of(player)
            number = self._numbers(values[group, "action"])[i]
            self._check_legal(player, number)
            state.apply_action(number)
        self._play_chance()
        return bool(state.is_terminal())

    def _place_of(self, player: int) -> tuple[str, int]:
        return next((group, members.index(player)) for group, members in self._members.items() if player in members)

    def _numbers(self, value: Any) -> list[int]:
        rows = np.asarray(value)
        if not self.categorical_actions:
            rows = rows.reshape(-1, self._choices).argmax(-1)
        numbers: list[int] = rows.reshape(-1).tolist()
        return numbers

    def _check_legal(self, player: int, number: int) -> None:
        # At a simultaneous node, a player without legal actions must play 0. OpenSpiel takes other illegal actions
        # without an error, and continues in a wrong state.
        legal = self._env.legal_actions(player)
        if number not in legal and (legal or number):
            raise ActionError(
                f"{self!r}.step: action {number} of player_{player} is illegal. Legal actions: {legal or [0]}. Choose "
                "one that (group, 'action_mask') allows."
            )

    def _play_chance(self) -> None:
        """Sample the outcomes of chance nodes until a player acts or the game ends."""
        state = self._env
        while state.is_chance_node():
            actions, probabilities = zip(*state.chance_outcomes(), strict=True)
            if self._chance_sampler is not None:
                outcome = self._chance_sampler(list(actions), list(probabilities))
            elif len(actions) == 1:
                outcome = actions[0]
            else:
                # The first outcome whose cumulated probability exceeds the number. numpy's choice takes ten times as
                # long, and refuses probabilities whose sum differs from 1 in the last digits.
                limits = np.cumsum(probabilities)
                at = int(np.searchsorted(limits, self._rng.random() * limits[-1], side="right"))
                outcome = actions[min(at, len(actions) - 1)]
            state.apply_action(int(outcome))

    def _write(self, out: dict[Any, np.ndarray]) -> None:
        """Write the observations, masks and current player of the state."""
        state, players = self._env, self._acting()
        for group, members in self._members.items():
            mask = out[group, "action_mask"]
            mask[...] = False
            for i, player in enumerate(members):
                legal = state.legal_actions(player) if player in players else None
                mask[i, legal or 0] = True
            for name, shape in self._shapes.items():
                target, method = out[group, name], getattr(state, _TENSORS[name])
                for i, player in enumerate(members):
                    target[i] = np.asarray(method(player), np.float32).reshape(shape)
        out["current_player"][...] = state.current_player()

    def _acting(self) -> Sequence[int]:
        state = self._env
        if state.is_terminal():
            return ()
        return range(len(self.agent_names)) if state.is_simultaneous_node() else (state.current_player(),)

    # -- TensorDicts, for the serialized state --------------------------------------------------------------------

    def _reset(
        self, tensordict: TensorDictBase | None = None, *, set_state: bool | None = None, **kwargs: Any
    ) -> TensorDictBase:
        if not self.return_state:
            return super()._reset(tensordict, **kwargs)
        refuse_seed(kwargs)
        if kwargs:
            raise TypeError(f"{type(self).__name__}.reset does not take {sorted(kwargs)}.")
        text = None if tensordict is None or set_state is False else tensordict.get("state", None)
        if text is None and set_state:
            raise StateError("reset(set_state=True) needs the entry 'state' that a reset or step has returned.")
        self._begin(self.take_seed())
        if text is not None:
            self.wrap_library(self.game.deserialize_state(text.data if isinstance(text, NonTensorData) else text))
            self._play_chance()
            self.__dict__["_returns"] = self._env.returns()
        out = self._new_rows("observation")
        self._write(out)
        ended = bool(self._env.is_terminal())
        return self._data(out, ended)

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        if not self.return_state:
            return super()._step(tensordict)
        codec: ActionCodec = self.cached("codec", lambda: ActionCodec(self.full_action_spec.to("cpu")))
        out = self._new_rows("observation", "reward")
        terminated, _ = self.step_into(codec.from_tensordict(tensordict.select(*self.action_keys).to("cpu")), out)
        return self._data(out, terminated)

    def _new_rows(self, *kinds: str) -> dict[Any, np.ndarray]:
        rows = {}
        for kind in kinds:
            spec = getattr(self, f"full_{kind}_spec")
            for key in spec.keys(include_nested=True, leaves_only=True):
                if key != "state":
                    rows[key] = spec[key].to("cpu").zero().numpy()
        return rows

    def _data(self, out: dict[Any, np.ndarray], terminated: bool) -> TensorDictBase:
        data = TensorDict({}, [])
        for group, names in self.group_map.items():
            data.set(group, TensorDict({}, [len(names)]))
        for key, value in out.items():
            data.set(key, torch.from_numpy(value))
        for name, flag in zip(_FLAGS, (terminated, terminated, False), strict=True):
            data.set(name, torch.tensor([flag], device="cpu"))
        data = data if self.device is None else data.to(self.device)
        return data.set("state", NonTensorData(self._env.serialize()))  # type: ignore[arg-type]

    # -- the library ----------------------------------------------------------------------------------------------

    @property
    def lib(self) -> Any:
        """The module ``pyspiel``."""
        import pyspiel

        return pyspiel

    def current_player(self) -> int:
        """Return whose turn it is: -2 if all players act at once, -4 after the end of the game."""
        return int(self._env.current_player())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.game})"


def _tensor_shapes(game: Any) -> dict[str, tuple[int, ...]]:
    """Return the shape of each kind of observation that a game provides."""
    import pyspiel

    game_type, shapes = game.get_type(), {}
    for name, method in _TENSORS.items():
        if getattr(game_type, f"provides_{method}"):
            try:
                shapes[name] = tuple(getattr(game, f"{method}_shape")())
            except pyspiel.SpielError:  # some games, such as crossword, declare tensors that they lack
                continue
    return shapes
