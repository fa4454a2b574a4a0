"""A worker: makes its environments and steps them on command."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any

import cloudpickle
import torch

from steppe.batched.board import ACK, COMMAND, CURRENT, FAILED, N_RESET, OP, PARTIAL, Board
from steppe.batched.channel import Connection, Gone, Signal, SpinGate, Waiter
from steppe.batched.dispatch import ask_row
from steppe.batched.lanes import LaneError, Lanes
from steppe.batched.messages import run_rows
from steppe.batched.preload import loaded_since
from steppe.batched.report import make_envs, report
from steppe.batched.surroundings import apply
from steppe.storage import Storage, StorageHandle

__all__ = ["work"]

STEP, STEP_AND_RESET, RESET, RESET_ON_DATA = 1, 2, 3, 4


def work(fds: list[int]) -> None:
    """Serve one batch: ``fds`` are the connection, the signal to wait for and the signal to give."""
    connection = Connection.from_fd(fds[0])
    n = Signal.n_fds()
    wake, answer = Signal.from_fds(fds[1 : 1 + n]), Signal.from_fds(fds[1 + n : 1 + 2 * n])
    worker = _Worker(connection, wake, answer)
    try:
        worker.run()
    except Gone:
        pass
    finally:
        worker.close()


class _Worker:
    def __init__(self, connection: Connection, wake: Signal, answer: Signal) -> None:
        self.connection = connection
        self.wake, self.answer = wake, answer
        self.envs: list[Any] = []

    def run(self) -> None:
        """Make the environments, then obey."""
        payload, _ = self.connection.recv()
        before = set(sys.modules)  # a factory may import a library when it is unpickled
        try:
            setup = self._surround(payload)
        except BaseException as error:
            self.connection.send(("failed", None, "start", describe(error)))
            return
        self.index, self.first_row = setup["worker"], setup["first_row"]
        try:
            if setup["num_threads"] > 1:
                torch.set_num_threads(setup["num_threads"])
            self.envs = make_envs(setup["factories"], self.first_row, lambda row, _: LaneError(row, "__init__"))
            reports = [report(env) for env in self.envs]
        except LaneError as error:
            self.connection.send(("failed", error.row, "__init__", describe(error.__cause__)))
            return
        except BaseException as error:
            self.connection.send(("failed", None, "__init__", describe(error)))
            return
        modules = loaded_since(before) if self.index == 0 else []
        self.connection.send(("ready", reports, modules))
        message, storage_fds = self.connection.recv()
        if message[0] == "stop":
            return
        row_spec, n_rows, n_workers, nbytes = message
        self.gate = SpinGate(n_workers + 1)
        if row_spec is None:
            self.connection.send(("attached",))
            while self._message():
                pass
            return
        storage = Storage.attach(StorageHandle(row_spec, (n_rows,), nbytes, storage_fds[0]))
        self.board = Board.shared(n_workers, n_rows, storage_fds[1])
        os.close(storage_fds[1])
        self.lanes = Lanes(
            self.envs,
            storage,
            self.board.flags,
            self.first_row,
            words=self.board.words,
            at=Board.base(self.index) + CURRENT,
        )
        self.connection.send(("attached",))
        self._loop()

    def _surround(self, payload: dict[str, Any]) -> dict[str, Any]:
        apply(payload["surroundings"], worker=payload["worker"])
        # What was pickled by value may need any of the above.
        payload["factories"] = cloudpickle.loads(payload["factories"])
        return payload

    def _loop(self) -> None:
        words, base = self.board.words, Board.base(self.index)
        waiter = Waiter(self.wake, [self.connection], messages=True)
        give = self.answer.setter()
        last = 0

        def called() -> bool:
            return words[base + COMMAND] != last

        while True:
            self.gate.spin(called)
            while words[base + COMMAND] == last:
                if waiter.wait() and not self._message():
                    return
            last = words[base + COMMAND]
            words[base + FAILED] = 0
            try:
                words[base + N_RESET] = self._obey(words[base + OP], words[base + PARTIAL])
            except BaseException as error:
                row = error.row if isinstance(error, LaneError) else None
                doing = error.doing if isinstance(error, LaneError) else "step"
                cause = error.__cause__ if isinstance(error, LaneError) else error
                words[base + FAILED] = 1
                self.connection.send(("failed", row, doing, describe(cause)))
            words[base + CURRENT] = 0
            words[base + ACK] = last
            give()

    def _obey(self, op: int, partial: int) -> int:
        lanes = None
        if partial or op in (RESET, RESET_ON_DATA):
            active = self.board.flags.active
            lanes = [at for at in range(len(self.envs)) if not partial or active[self.first_row + at]]
        if lanes is not None and op in (RESET, RESET_ON_DATA):
            self.lanes.reset(lanes, on_data=op == RESET_ON_DATA)
            return 0
        return self.lanes.step(lanes, reset=op == STEP_AND_RESET)

    def _message(self) -> bool:
        try:
            message, _ = self.connection.recv()
        except Gone:
            return False
        kind = message[0]
        if kind == "stop":
            return False
        try:
            if kind == "seed":
                for row, seed in message[1].items():
                    self.envs[row - self.first_row].set_seed(seed)
                self.connection.send(("done", None))
            elif kind == "rows":
                envs = {self.first_row + at: env for at, env in enumerate(self.envs)}
                self.connection.send(("done", run_rows(message[1], envs, message[2])))
            elif kind == "ask":
                _, rows, path, arguments = message
                calls = cloudpickle.loads(arguments)
                values = [
                    ask_row(self.envs[row - self.first_row], row, path, call)
                    for row, call in zip(rows, calls, strict=True)
                ]
                self.connection.send(("done", cloudpickle.dumps(values)))
        except LaneError as error:
            self.connection.send(("failed", error.row, error.doing, describe(error.__cause__)))
        except BaseException as error:
            self.connection.send(("failed", None, kind, describe(error)))
        return True

    def close(self) -> None:
        for env in self.envs:
            try:
                env.close(raise_if_closed=False)
            except Exception:
                pass


def describe(error: BaseException | None) -> tuple[str, str]:
    """Type and text, and the traceback."""
    assert error is not None
    try:
        summary = f"{type(error).__name__}: {error}"
    except Exception:
        summary = f"{type(error).__name__}, which cannot be printed"
    return summary, "".join(traceback.format_exception(error))
