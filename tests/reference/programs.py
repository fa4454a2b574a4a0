"""Programs that use an environment or a batch, and record its data.

The same program uses a single environment, and a batch in which this environment is a row. The inputs of a row
(actions, masks, ``env_info``, edits) depend only on the row, so its data must depend only on the row too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import NonTensorData, TensorDict, TensorDictBase, lazy_stack

from steppe import Collector, EnvBase
from tests.reference.cases import N
from tests.reference.record_format import Frames, values_of

__all__ = ["PROGRAMS", "Play", "Program", "seeds_of"]

SEED = 11
LONG = {"cartpole": 30, "frozen lake": 24}  # steps, where episodes are long
STEPS = 16


def seeds_of(envs: list[EnvBase]) -> list[int]:
    """The seeds that the rows of a batch have, which is seeded with SEED."""
    seeds = [SEED]
    for env in envs:
        seeds.append(env.set_seed(seeds[-1]))
    return seeds


class Play:
    """An environment that is used by a program.

    Args:
        env: a batch of N rows, or one environment alone.
        row: the row that an environment alone is; None for a batch.
        name: of the environment.
        alone: an environment of each row, whose specs say what actions there are.
    """

    def __init__(self, env: EnvBase, row: int | None, name: str, alone: list[EnvBase]) -> None:
        self.env, self.row, self.name = env, row, name
        self.steps = LONG.get(name, STEPS)
        self.many = 140 if name in ("cartpole", "arrays") else 30  # random actions are drawn for 128 steps at once
        self.given = [_actions(env, row, self.steps) for row, env in enumerate(alone)]
        self.size = alone[0].batch_size
        self.masks = torch.Generator().manual_seed(3)
        self.frames: list[Frames] = [Frames() for _ in range(N if row is None else 1)]

    # -- what is given

    def pick(self, values: Any) -> Any:
        """Select the rows that are used from values ``[N, ...]``."""
        return values if self.row is None else values[self.row]

    def actions(self, step: int) -> TensorDictBase:
        """The actions of a step."""
        if self.row is not None:
            return self.given[self.row][step].copy()
        rows = [actions[step] for actions in self.given]
        try:
            return torch.stack(rows)
        except RuntimeError:
            return lazy_stack(rows)

    def with_actions(self, td: TensorDictBase, step: int) -> TensorDictBase:
        """Write the actions of a step into data, as a policy does."""
        return td.update(self.actions(step))

    def drawn(self, shape: torch.Size) -> torch.Tensor:
        """Random bools for each row, ``[N, *shape]``; the same however many rows are played."""
        return torch.rand((N, *shape), generator=self.masks) < 0.5

    # -- what comes back

    def note(self, td: TensorDictBase) -> None:
        """Keep a copy of the data of a step."""
        for frames, values in zip(self.frames, values_of(td, rows=self.row is None), strict=True):
            frames.steps.append(values)

    def note_time(self, data: TensorDictBase) -> None:
        """Keep data of several steps, whose last dimension is time."""
        for frame in data.unbind(-1):
            self.note(frame)

    def finish(self, td: TensorDictBase) -> None:
        """Keep a copy of the data that would be acted on next."""
        for frames, values in zip(self.frames, values_of(td, rows=self.row is None), strict=True):
            frames.last = values


def _actions(env: EnvBase, row: int, steps: int) -> list[TensorDictBase]:
    """Actions of a row, one TensorDict for each step."""
    if env.full_action_spec["action"].dtype is None if "action" in env.full_action_spec.keys() else False:
        return [TensorDict({"action": NonTensorData("ab"[row % 2] * (step % 5))}) for step in range(steps)]
    generator = torch.Generator().manual_seed(100 + row)
    rows: list[TensorDictBase] = list(env.full_action_spec.rand((steps,), generator=generator).unbind(0))
    return rows


# -- programs


def whole(play: Play) -> None:
    """Steps with resets, in one call."""
    td = play.env.reset()
    for step in range(play.steps):
        stepped, td = play.env.step_and_maybe_reset(play.with_actions(td, step))
        play.note(stepped)
    play.finish(td)


def separate(play: Play) -> None:
    """The same in three calls."""
    env = play.env
    td = env.reset()
    for step in range(play.steps):
        stepped = env.step(play.with_actions(td, step))
        play.note(stepped)
        td = env.maybe_reset(env.step_mdp(stepped))
    play.finish(td)


def rollout(play: Play) -> None:
    """The same in a rollout."""
    actions = [play.actions(step) for step in range(play.steps)]
    play.note_time(play.env.rollout(play.steps, actions=actions, break_when_any_done=False))


def partial_steps(play: Play) -> None:
    """Steps of some rows, of no rows and of all rows."""
    env = play.env
    td = env.reset()
    for step in range(play.steps):
        mask = play.drawn(play.size)
        if step % 6 == 2:
            mask[...] = step % 4 == 0
        td = play.with_actions(td, step).set("_step", play.pick(mask))
        if step % 2:
            stepped, td = env.step_and_maybe_reset(td)
        else:
            stepped = env.step(td)
            td = env.maybe_reset(env.step_mdp(stepped))
        play.note(stepped)
    play.finish(td)


def partial_resets(play: Play) -> None:
    """Resets of some rows and levels, in the middle of episodes too."""
    env = play.env
    td = env.reset()
    for step in range(play.steps):
        stepped = env.step(play.with_actions(td, step))
        play.note(stepped)
        td = env.step_mdp(stepped)
        for done_keys, reset_key in zip(env.done_keys_groups, env.reset_keys, strict=True):
            done = td.get(done_keys[0])
            for key in done_keys[1:]:
                done = done | td.get(key)
            own = done.shape[1:] if play.row is None else done.shape
            td.set(reset_key, done | play.pick(play.drawn(own)))
        td = env.reset(td)
    play.finish(td)


def env_info(play: Play) -> None:
    """Resets with env_info: the first one, those inside steps, and partial ones."""
    env = play.env
    td = env.reset(env_info={"start": play.pick(torch.tensor([[5], [7], [9]]))})
    for step in range(play.steps):
        stepped, td = env.step_and_maybe_reset(play.with_actions(td, step))
        play.note(stepped)
        if step == 8:
            td["_reset"] = play.pick(torch.tensor([[True], [False], [True]]))
            td = env.reset(td, env_info={"start": play.pick(torch.tensor([[20], [7], [40]]))})
        if step == 11:
            td = env.reset()
    play.finish(td)


def options(play: Play) -> None:
    """Resets with arguments for the library."""
    env = play.env
    for low, high in ((-0.01, 0.0), (0.04, 0.05)):
        td = env.reset(options={"low": low, "high": high})
        for step in range(3):
            stepped, td = env.step_and_maybe_reset(play.with_actions(td, step))
            play.note(stepped)
    play.finish(td)


def edited(play: Play, *, in_place: bool = False) -> None:
    """Steps on data that the caller has changed: numbers get others, as ``td["step_count"] += 5`` does."""
    env = play.env
    td = env.reset()
    unchanged = {*env.done_keys, *env.action_keys}
    for step in range(play.steps):
        if step in (2, 3, 7, 12):
            for key in td.keys(True, True):
                value = td.get(key)
                if key in unchanged or not isinstance(value, torch.Tensor) or value.dtype is torch.bool:
                    continue
                amount = play.pick(torch.tensor([1, 2, -1]) * (step - 4))
                amount = amount.reshape(amount.shape + (1,) * (value.ndim - amount.ndim)).to(value.dtype)
                if in_place:
                    value += amount
                else:
                    td.set(key, value + amount)
        td = play.with_actions(td, step)
        if step in (3, 12):
            stepped = env.step(td)
            td = env.maybe_reset(env.step_mdp(stepped))
        else:
            stepped, td = env.step_and_maybe_reset(td)
        play.note(stepped)
    play.finish(td)


def edited_in_place(play: Play) -> None:
    """The same with tensors that are edited in place."""
    edited(play, in_place=True)


def random_actions(play: Play) -> None:
    """A rollout of random actions."""
    play.note_time(play.env.rollout(play.many, break_when_any_done=False))


def collected(play: Play) -> None:
    """Two batches of a collector, random actions."""
    collector = Collector(play.env, frames_per_batch=play.env.numel() * play.many // 2)
    for _ in range(2):
        play.note_time(next(collector))


def collected_with_a_policy(play: Play) -> None:
    """Two batches of a collector, with a policy that looks at the data."""
    spec = play.env.full_action_spec["action"]

    def policy(td: TensorDictBase) -> TensorDictBase:
        index = (td["observation"].sum(-1) * 7).long() % spec.shape[-1]
        return td.set("action", torch.nn.functional.one_hot(index, spec.shape[-1]).to(spec.dtype))

    collector = Collector(play.env, policy, frames_per_batch=play.env.numel() * 15)
    for _ in range(2):
        play.note_time(next(collector))


@dataclass(frozen=True)
class Program:
    """A program and what it is for.

    Args:
        run: plays an environment.
        record: name of the record that its data is compared with; several programs may have one.
        fits: says whether it is for an environment and chain, given their names.
        apart: the data of a batch is not that of its rows alone, because numbers are drawn for all rows together: row 0
            alone has a record of its own.
    """

    run: Callable[[Play], None]
    record: str
    fits: Callable[[str, str | None], bool] = lambda name, chain: True
    apart: bool = False


def _edits(name: str, chain: str | None) -> bool:
    return name not in ("different agents", "growing")  # entries that have no one tensor


def _edits_in_place(name: str, chain: str | None) -> bool:
    # Two entries in one memory would be edited twice.
    return _edits(name, chain) and name != "tensorclass" and not str(chain).startswith("order")


def _collects(name: str, chain: str | None) -> bool:
    return name in ("cartpole", "arrays", "tensordicts", "agents") and chain in (None, "counted", "three")


PROGRAMS = {
    "whole": Program(whole, "whole"),
    "separate": Program(separate, "whole"),
    "rollout": Program(rollout, "whole"),
    "partial steps": Program(partial_steps, "partial steps"),
    "partial resets": Program(partial_resets, "partial resets"),
    "env_info": Program(env_info, "env_info", lambda name, chain: "env_info" in name),
    "options": Program(options, "options", lambda name, chain: name == "cartpole" and chain in (None, "three")),
    "edited": Program(edited, "edited", _edits),
    "edited in place": Program(edited_in_place, "edited", _edits_in_place),
    "random": Program(random_actions, "random", _collects, apart=True),
    "collected": Program(collected, "collected", _collects, apart=True),
    "collected with a policy": Program(
        collected_with_a_policy, "collected with a policy", lambda n, c: _collects(n, c) and n != "agents", apart=True
    ),
}
