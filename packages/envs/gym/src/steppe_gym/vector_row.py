"""VectorRow: one environment of gymnasium or gym as a row of a batch, for the library's vector API."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from steppe.envs import ArrayEnv
from steppe.specs import Binary, Composite, Unbounded

from .info_rows import InfoWriter, info_specs
from .space_leaves import SpaceLeaves

__all__ = ["DISABLED", "NEXT_STEP", "SAME_STEP", "VectorRow"]

#: When a row whose episode has ended is reset, as the library names it.
NEXT_STEP, SAME_STEP, DISABLED = "NextStep", "SameStep", "Disabled"


class VectorRow(ArrayEnv):
    """An environment of the library whose row holds its observations, float64 rewards and infos unchanged.

    GymWrapper makes the data of steppe: float32 rewards, one-hot choices, no infos. A vector environment of the library
    returns what its environments return, so its rows hold that.

    Args:
        env: the environment.
        row: its number in the batch.
        resets_next_step: whether the step after the end of an episode resets the environment. Otherwise the batch
            resets it.
    """

    def __init__(self, env: Any, row: int, *, resets_next_step: bool) -> None:
        super().__init__()
        acted = SpaceLeaves(env.action_space, "action")
        observed = SpaceLeaves(env.observation_space, "observation")
        state = self.__dict__
        state["env"], state["row"], state["resets_next_step"] = env, row, resets_next_step
        state["observed"], state["acted"] = observed, acted
        # Whether the episode has ended. The step reads it in each call, and attributes of environments are slow.
        state["ended"] = [False]
        state["options"], state["loose_action"] = None, ()
        state["known"] = {}
        state["waiting"] = {}
        state["roots"] = {}
        self.observation_spec = Composite({**observed.specs(), **info_specs()})
        # An environment has an action entry, also if its actions are text alone.
        self.action_spec = Composite(acted.specs() or {"action": Unbounded(shape=(1,), dtype=torch.uint8)})
        self.reward_spec = Unbounded(shape=(1,), dtype=torch.float64)
        flag = Binary(shape=(1,), dtype=torch.bool)
        self.done_spec = Composite(done=flag, terminated=flag.clone(), truncated=flag.clone())

    # -- rows -------------------------------------------------------------------------------------------------------

    def step_into(self, action: Any, out: dict[Any, np.ndarray]) -> tuple[bool, bool]:
        return self.bind_step(out)(action, out)

    def bind_step(self, out: dict[Any, np.ndarray]) -> Callable[[Any, Any], tuple[bool, bool]]:
        env, ended, resets = self.env, self.ended, self.resets_next_step
        step, value_of = env.step, self.acted.value_of(lambda: self.loose_action)
        send, infos = self._sender(out, "next")
        write, reward_row = self.observed.writer(out), out["reward"]
        quiet = not self.observed.loose

        def kernel(action: Any, row: Any) -> tuple[bool, bool]:
            if resets and ended[0]:
                ended[0] = False
                observation, info = env.reset()
                write(observation)
                reward_row[0] = 0.0
                send(observation, info)
                return False, False
            observation, reward, terminated, truncated, info = step(action if value_of is None else value_of(action))
            write(observation)
            reward_row[0] = reward
            if info or infos.marked or not quiet:
                send(observation, info)
            if terminated is False and truncated is False:
                return False, False
            terminated, truncated = bool(terminated), bool(truncated)
            ended[0] = terminated or truncated
            return terminated, truncated

        return kernel

    def reset_into(self, out: dict[Any, np.ndarray], seed: int | None, env_info: Mapping[str, Any] | None) -> None:
        state = self.__dict__
        options, state["options"] = state["options"], None
        if id(out) not in self.roots:
            # `out` is kept with its writers, so that its id stays its own.
            self.roots[id(out)] = (out, self.observed.writer(out), self._sender(out, "root")[0])
        _, write, send = self.roots[id(out)]
        if seed is None and options is None:
            observation, info = self.env.reset()
        else:
            observation, info = self.env.reset(seed=seed, options=options)
        self.ended[0] = False
        write(observation)
        send(observation, info)

    def _sender(self, out: Mapping[Any, np.ndarray], place: str) -> tuple[Callable[[Any, Any], None], InfoWriter]:
        """Return a function that sends an info and the loose parts of an observation, and its InfoWriter."""
        waiting, observed = self.waiting, self.observed
        infos = InfoWriter(out, self.known, lambda payload: waiting.__setitem__(place, payload))
        if not observed.loose:
            return (lambda observation, info: infos.write(info)), infos
        before: dict[int, Any] = self.__dict__.setdefault("loose_values", {})

        def send(observation: Any, info: Any) -> None:
            changed = {}
            for part, value in enumerate(observed.loose_values(observation)):
                # Text seldom changes. Other values may have been changed in place.
                if type(value) is not str or before.get(part) != value:
                    changed[part] = before[part] = value
            infos.write(info, changed)

        return send, infos

    # -- what the caller asks for -----------------------------------------------------------------------------------

    def describe_vector_row(self) -> dict[str, Any]:
        """Return the spaces of the environment, its metadata, render mode and spec."""
        env = self.env
        return {
            "observation_space": env.observation_space,
            "action_space": env.action_space,
            "metadata": dict(env.metadata),
            "render_mode": getattr(env, "render_mode", None),
        }

    def prepare_reset(self, rows: Sequence[int], seeds: Sequence[int | None] | None, options: Any) -> tuple[bool, None]:
        """Take the seed of this row, and the options, for the reset that follows.

        Args:
            rows: the rows that will be reset.
            seeds: the seed of each row of the batch, or None.
            options: the ``options`` of the library's ``reset``, or a list of those of each row of the batch.
        """
        if self.row in rows:
            self.__dict__["_pending_seed"] = None if seeds is None else seeds[self.row]
            self.__dict__["options"] = options[self.row] if isinstance(options, list) else options
        return True, None

    def take_loose_action(self, values: Sequence[Sequence[Any]]) -> None:
        """Take the loose parts of the action of this row for the step that follows.

        Args:
            values: of each row of the batch.
        """
        self.__dict__["loose_action"] = values[self.row]

    def take_waiting(self, place: str) -> Any:
        """Return the info that did not fit into the row at a place, ``"next"`` or ``"root"``; None if there is none."""
        return self.waiting.pop(place, None)

    def known_signatures(self) -> dict[Any, int]:
        """Return the signatures of infos that this row has reported."""
        return dict(self.known)

    def call_library(
        self, name: str, args: tuple[Any, ...] | None, kwargs: dict[str, Any], rows: Sequence[int]
    ) -> tuple[bool, Any]:
        """Read an attribute of the environment, found through its wrappers, and call it if it is callable.

        Args:
            name: the attribute.
            args: positional arguments of the call; None only reads the attribute.
            kwargs: keyword arguments of the call.
            rows: the rows that do it; others do nothing.

        Returns:
            Whether it succeeded, and the result or the exception.
        """
        if self.row not in rows:
            return True, None
        try:
            find = getattr(self.env, "get_wrapper_attr", None)
            value = getattr(self.env, name) if find is None else find(name)
            return True, value(*args, **kwargs) if args is not None and callable(value) else value
        except Exception as error:
            return False, error

    def set_library(self, name: str, values: Sequence[Any], rows: Sequence[int]) -> tuple[bool, Any]:
        """Set an attribute of the environment to the value of this row; see :meth:`call_library`."""
        if self.row not in rows:
            return True, None
        try:
            assign = getattr(self.env, "set_wrapper_attr", None)
            if assign is None:
                setattr(self.env, name, values[self.row])
            else:
                assign(name, values[self.row])
        except Exception as error:
            return False, error
        return True, None

    def has_library(self, name: str) -> bool:
        """Return whether the environment has an attribute, found through its wrappers."""
        find = getattr(self.env, "get_wrapper_attr", None)
        try:
            getattr(self.env, name) if find is None else find(name)
        except AttributeError:
            return False
        return True

    def is_wrapped(self, kind: type) -> bool:
        """Return whether a wrapper of this class is around the environment."""
        env = self.env
        while env is not env.unwrapped:
            if isinstance(env, kind):
                return True
            env = env.env
        return False

    def close(self, *, raise_if_closed: bool = True) -> None:
        if not self.is_closed:
            self.env.close()
        super().close(raise_if_closed=raise_if_closed)

    def __repr__(self) -> str:
        return f"VectorRow({self.env})"
