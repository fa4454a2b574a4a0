"""SerialEnv: a batch that is stepped in the caller's process."""

from __future__ import annotations

from typing import Any, ClassVar

from steppe.batched.base import BatchedEnv
from steppe.batched.board import Flags
from steppe.batched.dispatch import ask_row
from steppe.batched.ignored import IGNORED, IGNORED_IN_ONE_PROCESS, take_ignored
from steppe.batched.lanes import LaneError, Lanes
from steppe.batched.messages import run_rows
from steppe.batched.outlet import is_host
from steppe.batched.report import make_envs, report
from steppe.storage import Storage

__all__ = ["SerialEnv"]


class SerialEnv(BatchedEnv):
    """A batch whose environments are stepped one after another, in this process.

    What an environment raises arrives as it was raised, with a note that names the environment. Gradients pass through
    environments that let them pass, from observations and rewards back to actions that require them. See
    :class:`BatchedEnv` for the arguments.
    """

    _differentiable = True
    _ignored: ClassVar[dict[str, tuple[Any, str]]] = {**IGNORED, **IGNORED_IN_ONE_PROCESS}

    def configure_parallel(self, **kwargs: Any) -> SerialEnv:
        """Take the arguments of :meth:`ParallelEnv.configure_parallel`, with a warning: there are no workers here.

        Raises:
            StateError: the environments have been made.
            TypeError: there is no such argument.
        """
        self._check_not_started("configure_parallel")
        given = take_ignored(type(self), kwargs, self._ignored, [])
        self.__dict__["_given"].update(given)
        return self

    def _open(self) -> None:
        envs = self.__dict__["_envs"] = make_envs(self._factories, 0, _noted)
        try:
            row = self._adopt([report(env) for env in envs])
            if row is None:
                return
            # What goes to a device goes there as one block.
            storage = Storage(row, (len(envs),), kind="plain" if is_host(self.device) else "shared")
            flags = Flags(len(envs))
            self.__dict__["_lanes"] = Lanes(envs, storage, flags)
            self._use(storage, flags)
        except BaseException:
            self._close_envs()
            raise

    def _run(self, op: str, rows: list[int] | None) -> int:
        lanes = self._lanes
        try:
            if op in ("reset", "reset_on_data"):
                lanes.reset(list(range(self.num_workers)) if rows is None else rows, on_data=op == "reset_on_data")
                return 0
            n_reset: int = lanes.step(rows, reset=op == "step_and_reset")
            return n_reset
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

    def _seed_rows(self, seeds: dict[int, Any]) -> None:
        for row, seed in seeds.items():
            self._envs[row].set_seed(seed)

    def _close_envs(self) -> None:
        for env in self.__dict__.pop("_envs", []):
            env.close(raise_if_closed=False)
        self.__dict__.pop("_lanes", None)
        self._forget_storage()

    def close(self, *, raise_if_closed: bool = False) -> None:
        super().close(raise_if_closed=raise_if_closed)
        self._close_envs()


def _noted(row: int, error: Exception) -> Exception:
    if hasattr(error, "add_note"):
        error.add_note(f"in __init__ of environment {row} of a SerialEnv")
    return error


def _its_cause(error: LaneError) -> BaseException:
    """What the environment raised, as it raised it, with a note that says which one it was."""
    cause = error.__cause__
    assert cause is not None
    if hasattr(cause, "add_note"):
        cause.add_note(f"in {error.doing} of environment {error.row} of a SerialEnv")
    return cause
