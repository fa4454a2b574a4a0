"""Lanes: environments that each write their row of one storage, in whichever process they are."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from steppe.batched.board import Flags
from steppe.batched.lane_td import TensorDictLane
from steppe.batched.report import below
from steppe.storage import Storage

__all__ = ["LaneError", "Lanes"]


class LaneError(Exception):
    """What one environment raised; ``row`` is its row in the batch, ``doing`` what it was asked for."""

    def __init__(self, row: int, doing: str) -> None:
        super().__init__(f"environment {row} raised in {doing}")
        self.row = row
        self.doing = doing


class Lanes:
    """Steps and resets some environments, each of which writes its row.

    Args:
        envs: the environments.
        storage: ``[n]`` rows of root and ``("next", ...)`` leaves.
        flags: of all ``n`` rows.
        first_row: row of the first environment.
        words: where to note the row that is at work, counted from 1, for whoever finds this process gone.
        at: index of that word.
    """

    def __init__(
        self, envs: list[Any], storage: Storage, flags: Flags, first_row: int = 0, *, words: Any = None, at: int = 0
    ) -> None:
        self.envs, self.first_row = envs, first_row
        self.words, self.at = words if words is not None else [0], at
        part = slice(first_row, first_row + len(envs))
        self.was_reset, self.informed = flags.was_reset[part], flags.informed[part]
        self.plans = [getattr(env, "array_plan", None) for env in envs]
        self.root_out: list[dict[Any, Any]] = []
        self.next_out: list[dict[Any, Any]] = []
        self.on_tensordicts: list[Any] = []
        self._infos: list[dict[str, Any]] = []
        self._row_actions: list[dict[Any, Any]] = []
        for row, (env, plan) in enumerate(zip(envs, self.plans, strict=True), first_row):
            view = storage.row(row)
            self._infos.append({key[1]: view[key] for key in view if key[0] == "env_info"})
            if plan is None:
                self.root_out.append({})
                self.next_out.append({})
                self._row_actions.append({})
                self.on_tensordicts.append(TensorDictLane(env, storage, row))
                continue
            self._row_actions.append({key: storage.arrays[key][row : row + 1] for key in plan.action_keys})
            self.on_tensordicts.append(None)
            self.root_out.append({key: view[key] for key in plan.obs_keys})
            keys = dict.fromkeys((*plan.obs_keys, *plan.reward_keys))
            self.next_out.append({key: view[below(key)] for key in keys})
        arrays = storage.arrays
        self.done_arrays = {
            name: (arrays[name][part], arrays["next", name][part])
            for name in ("done", "terminated", "truncated")
            if name in arrays and ("next", name) in arrays
        }
        self.all_array = all(plan is not None for plan in self.plans)
        # One decoding serves all where actions are the same thing for each.
        self.alike = self.all_array and all(
            type(env) is type(envs[0]) and env.full_action_spec == envs[0].full_action_spec for env in envs[1:]
        )
        if self.alike and envs:
            self.decode = self.plans[0].decode
            self.actions = {key: arrays[key][part] for key in self.plans[0].action_keys}
            self.steppers = [(env.step_into, out) for env, out in zip(envs, self.next_out, strict=True)]

    def reset(self, lanes: list[int], *, on_data: bool = False) -> None:
        """Begin episodes, in the root rows; with ``on_data`` from what these hold, and only what masks name."""
        for lane in lanes:
            try:
                self._reset_one(lane, on_data)
            except Exception as error:
                raise LaneError(self.first_row + lane, "reset") from error

    def _reset_one(self, lane: int, on_data: bool = False) -> None:
        self.words[self.at] = self.first_row + lane + 1
        informed = bool(self._infos[lane]) and bool(self.informed[lane])
        other = self.on_tensordicts[lane]
        if other is not None:
            other.reset(on_data=on_data, informed=informed)
            return
        env = self.envs[lane]
        info = {key: view.copy() for key, view in self._infos[lane].items()} if informed else None
        env.reset_into(self.root_out[lane], env.take_seed(), info)
        for root, _ in self.done_arrays.values():
            root[lane] = False

    def step(self, lanes: list[int] | None = None, *, reset: bool = False) -> int:
        """Act; with ``reset`` also begin anew where an episode ended. Returns how many were reset."""
        if lanes is None and self.alike:
            return self._step_arrays(reset)
        n = 0
        partial = lanes is not None
        for lane in range(len(self.envs)) if lanes is None else lanes:
            try:
                n += self._step_one(lane, reset, partial)
            except LaneError:
                raise
            except Exception as error:
                raise LaneError(self.first_row + lane, "step") from error
        return n

    def _step_arrays(self, reset: bool) -> int:
        lane = 0
        ended: list[tuple[int, bool, bool]] = []
        words, at, row = self.words, self.at, self.first_row
        try:
            for action, (step_into, out) in zip(self.decode(self.actions), self.steppers, strict=True):
                words[at] = row = row + 1
                terminated, truncated = step_into(action, out)
                if terminated or truncated:
                    ended.append((lane, terminated, truncated))
                lane += 1
        except Exception as error:
            raise LaneError(self.first_row + lane, "step") from error
        for _, following in self.done_arrays.values():
            following[...] = False
        for lane, terminated, truncated in ended:
            self._flag(lane, terminated, truncated)
        if reset:
            self.was_reset[...] = False
            for lane, _, _ in ended:
                try:
                    self._reset_one(lane)
                except Exception as error:
                    raise LaneError(self.first_row + lane, "reset") from error
                self.was_reset[lane] = True
        return len(ended)

    def _flag(self, lane: int, terminated: bool, truncated: bool) -> None:
        for name, (_, following) in self.done_arrays.items():
            following[lane] = terminated if name == "terminated" else truncated if name == "truncated" else True

    def _step_one(self, lane: int, reset: bool, partial: bool) -> int:
        self.words[self.at] = self.first_row + lane + 1
        plan = self.plans[lane]
        if plan is None:
            other = self.on_tensordicts[lane]
            informed = bool(self._infos[lane]) and bool(self.informed[lane])
            root = other.step(reset=reset, partial=partial, informed=informed)
            begin: Callable[[], None] = functools.partial(other.begin_anew, root)
            ended = root is not None
        else:
            terminated, truncated = self.envs[lane].step_into(
                plan.decode(self._row_actions[lane])[0], self.next_out[lane]
            )
            for _, following in self.done_arrays.values():
                following[lane] = False
            begin = functools.partial(self._reset_one, lane)
            ended = terminated or truncated
            if ended:
                self._flag(lane, terminated, truncated)
        if reset:
            self.was_reset[lane] = ended
            if ended:
                try:
                    begin()
                except Exception as error:
                    raise LaneError(self.first_row + lane, "reset") from error
        return int(ended)
