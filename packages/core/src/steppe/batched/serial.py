"""SerialEnv: a batch that is stepped in the caller's process."""

from __future__ import annotations

from typing import Any

import numpy as np

from steppe.batched.base import BatchedEnv
from steppe.batched.lanes import LaneError, Lanes
from steppe.storage import Storage

__all__ = ["SerialEnv"]


class SerialEnv(BatchedEnv):
    """Environments one after another, in this process."""

    def _open(self) -> None:
        envs = [make() for make in self._factories]
        self.__dict__["_envs"] = envs
        self._adopt_specs(envs[0]._full_spec, len(envs))
        storage = Storage(self._row_spec(envs[0]._full_spec), (len(envs),))
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
            cause = error.__cause__
            assert cause is not None
            if hasattr(cause, "add_note"):
                cause.add_note(f"in {error.doing} of environment {error.row} of a SerialEnv")
            raise cause from None

    def _seed_rows(self, seeds: list[Any]) -> None:
        for env, seed in zip(self._envs, seeds, strict=True):
            env.set_seed(seed)

    def close(self, *, raise_if_closed: bool = True) -> None:
        super().close(raise_if_closed=raise_if_closed)
        for env in self.__dict__.pop("_envs", []):
            env.close(raise_if_closed=False)
        self.__dict__.pop("_lanes", None)
        self._forget_storage()
