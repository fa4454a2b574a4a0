"""SerialEnv: a batch that is stepped in the caller's process."""

from __future__ import annotations

from typing import Any

import numpy as np

from steppe.batched.base import KINDS, BatchedEnv
from steppe.batched.dispatch import ask_row
from steppe.batched.lanes import LaneError, Lanes
from steppe.batched.messages import run_rows
from steppe.storage import Storage

__all__ = ["SerialEnv"]


class SerialEnv(BatchedEnv):
    """A batch whose environments are stepped one after another, in this process.

    What an environment raises arrives as it was raised, with a note that names the environment. See
    :class:`BatchedEnv` for the arguments.
    """

    def _open(self) -> None:
        envs = [make() for make in self._factories]
        self.__dict__["_envs"] = envs
        specs = [{kind: env._full_spec(kind) for kind in KINDS} for env in envs]
        self._check_alike(specs, [env.batch_size for env in envs])
        row = self._lay_out(specs[0])
        if row is None:
            return
        storage = Storage(row, (len(envs),))
        was_reset = np.zeros(len(envs), bool)
        self.__dict__["_lanes"] = Lanes(envs, storage, was_reset)
        self._use(storage, was_reset, on_arrays=self._lanes.all_array)

    def _run(self, op: str, rows: list[int] | None, infos: list[Any] | None = None) -> int:
        lanes = self._lanes
        try:
            if op == "reset":
                lanes.reset(rows, infos)
                return 0
            return lanes.step(rows, reset=op == "step_and_reset")
        except LaneError as error:
            raise _its_cause(error) from None

    def _exchange(self, op: str, data: dict[int, Any]) -> dict[int, Any]:
        try:
            return run_rows(op, dict(enumerate(self._envs)), data)
        except LaneError as error:
            raise _its_cause(error) from None

    def _ask(self, path: tuple[str, ...], calls: list[Any]) -> list[Any]:
        self.start()
        try:
            return [ask_row(env, row, path, calls[row]) for row, env in enumerate(self._envs)]
        except LaneError as error:
            raise _its_cause(error) from None

    def _seed_rows(self, seeds: list[Any]) -> None:
        for env, seed in zip(self._envs, seeds, strict=True):
            env.set_seed(seed)

    def close(self, *, raise_if_closed: bool = True) -> None:
        super().close(raise_if_closed=raise_if_closed)
        for env in self.__dict__.pop("_envs", []):
            env.close(raise_if_closed=False)
        self.__dict__.pop("_lanes", None)
        self._forget_storage()


def _its_cause(error: LaneError) -> BaseException:
    """What the environment raised, as it raised it, with a note that says which one it was."""
    cause = error.__cause__
    assert cause is not None
    if hasattr(cause, "add_note"):
        cause.add_note(f"in {error.doing} of environment {error.row} of a SerialEnv")
    return cause
