"""Lanes: environments that each write their row of one storage, in whichever process they are."""

from __future__ import annotations

from typing import Any

from tensordict import TensorDict

from steppe.errors import SpecError
from steppe.storage import Storage, TensorDictBuilder

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
        was_reset: ``[n]`` bool, written by ``step_and_reset``.
        first_row: row of the first environment.
        words: where to note the row that is at work, counted from 1, for whoever finds this process gone.
        at: index of that word.
    """

    def __init__(
        self, envs: list[Any], storage: Storage, was_reset: Any, first_row: int = 0, *, words: Any = None, at: int = 0
    ) -> None:
        self.envs, self.storage, self.first_row, self.was_reset = envs, storage, first_row, was_reset
        self.words, self.at = words if words is not None else [0], at
        self.plans = [getattr(env, "array_plan", None) for env in envs]
        rows = range(first_row, first_row + len(envs))
        views = [storage.row(row) for row in rows]
        self.root_out: list[dict[Any, Any]] = []
        self.next_out: list[dict[Any, Any]] = []
        for plan, view in zip(self.plans, views, strict=True):
            if plan is None:
                self.root_out.append({})
                self.next_out.append({})
                continue
            self.root_out.append({key: view[key] for key in plan.obs_keys})
            keys = (*plan.obs_keys, *(key for key in plan.reward_keys if key not in plan.obs_keys))
            self.next_out.append({key: view[below(key)] for key in keys})
        arrays, part = storage.arrays, slice(first_row, first_row + len(envs))
        self.done_arrays = {
            name: (arrays[name][part], arrays["next", name][part])
            for name in ("done", "terminated", "truncated")
            if name in arrays and ("next", name) in arrays
        }
        self.all_array = all(plan is not None for plan in self.plans)
        self.plan = self.plans[0] if self.all_array and len(envs) else None
        self.actions = {key: arrays[key][part] for key in self.plan.action_keys} if self.plan else {}
        self.steppers = (
            [(env.step_into, out) for env, out in zip(envs, self.next_out, strict=True)] if self.all_array else []
        )
        self.same = self.all_array and all(type(env) is type(envs[0]) for env in envs)

    def reset(self, lanes: list[int], env_infos: list[Any] | None = None) -> None:
        """Begin episodes, in the root rows."""
        for at, lane in enumerate(lanes):
            info = env_infos[at] if env_infos is not None else None
            try:
                self._reset_one(lane, info)
            except Exception as error:
                raise LaneError(self.first_row + lane, "reset") from error

    def _reset_one(self, lane: int, info: Any = None) -> None:
        env = self.envs[lane]
        self.words[self.at] = self.first_row + lane + 1
        if self.plans[lane] is not None:
            env.reset_into(self.root_out[lane], env.take_seed(), info)
            for root, _ in self.done_arrays.values():
                root[lane] = False
        else:
            fresh = env.reset(env_info=info) if info is not None else env.reset()
            self._write(lane, fresh, ())

    def _write(self, lane: int, data: Any, prefix: tuple[str, ...]) -> None:
        row = self.first_row + lane
        tensors = self.storage.tensors
        for key, value in data.items(include_nested=True, leaves_only=True):
            path = (*prefix, *((key,) if isinstance(key, str) else key))
            target = tensors.get(path[0] if len(path) == 1 else path)
            if target is not None:
                place = target[row]
                if value.shape != place.shape:  # copy_ would repeat what is smaller
                    raise SpecError(
                        f"The entry {key!r} of environment {row} must have shape {tuple(place.shape)}, as its spec "
                        f"says, found {tuple(value.shape)}."
                    )
                place.copy_(value)

    def step(self, lanes: list[int] | None = None, *, reset: bool = False) -> int:
        """Act; with ``reset`` also begin anew where an episode ended. Returns how many were reset."""
        if lanes is None and self.all_array and self.same:
            return self._step_arrays(reset)
        n = 0
        for lane in lanes if lanes is not None else range(len(self.envs)):
            try:
                n += self._step_one(lane, reset)
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
            for action, (step_into, out) in zip(self.plan.decode(self.actions), self.steppers, strict=True):
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
            part = self.was_reset
            part[self.first_row : self.first_row + len(self.envs)] = False
            for lane, _, _ in ended:
                try:
                    self._reset_one(lane)
                except Exception as error:
                    raise LaneError(self.first_row + lane, "reset") from error
                part[self.first_row + lane] = True
        return len(ended)

    def _flag(self, lane: int, terminated: bool, truncated: bool) -> None:
        for name, (_, following) in self.done_arrays.items():
            following[lane] = terminated if name == "terminated" else truncated if name == "truncated" else True

    def _step_one(self, lane: int, reset: bool) -> int:
        env, plan, row = self.envs[lane], self.plans[lane], self.first_row + lane
        self.words[self.at] = row + 1
        if plan is not None:
            actions = {key: self.storage.arrays[key][row : row + 1] for key in plan.action_keys}
            terminated, truncated = env.step_into(plan.decode(actions)[0], self.next_out[lane])
            for _, following in self.done_arrays.values():
                following[lane] = False
            ended = terminated or truncated
            if ended:
                self._flag(lane, terminated, truncated)
        else:
            td = self._row_td(lane)
            td = env.step(td)
            following = td.get("next")
            self._write(lane, following, ("next",))
            ended = env.any_done(following.copy())
        if reset:
            self.was_reset[row] = ended
            if ended:
                try:
                    self._reset_one(lane)
                except Exception as error:
                    raise LaneError(row, "reset") from error
        return int(ended)

    def _row_td(self, lane: int) -> TensorDict:
        spec = self.storage.spec
        row = self.first_row + lane
        flat = {
            key: tensor[row].clone()
            for key, tensor in self.storage.tensors.items()
            if (key if isinstance(key, str) else key[0]) != "next"
        }
        root_spec = spec.exclude("next") if "next" in spec.keys() else spec
        return TensorDictBuilder(root_spec)(flat)


def below(key: Any) -> tuple[str, ...]:
    """The key under ``next``."""
    return ("next", *((key,) if isinstance(key, str) else key))
