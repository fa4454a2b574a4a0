"""Worker: one worker process, which serves the calls and orders of its caller."""

from __future__ import annotations

import importlib
import os
import pickle
import sys
from typing import Any

import cloudpickle
import torch

from steppe.workers.channel import Connection, Gone, Signal, SpinGate, Waiter
from steppe.workers.context import apply_context
from steppe.workers.control_block import (
    ANSWERED,
    ARGUMENT,
    AT_WORK,
    FAILED,
    ORDER,
    ORDERED,
    PER_WORKER,
    RESULT,
    ControlBlock,
)
from steppe.workers.failures import Failure
from steppe.workers.pickling import for_caller
from steppe.workers.start.preload import loaded_since

__all__ = ["Service", "Worker", "work"]


class Service:
    """The object with which a worker answers its caller. Subclasses define the methods that their caller uses."""

    def call(self, message: Any) -> object:
        """Answer a message of ``Pool.call`` or ``Pool.ask``."""
        raise NotImplementedError(f"{type(self).__name__} does not define call(message).")

    def share(self, worker: Worker, control: ControlBlock, message: Any, fds: list[int]) -> None:
        """Take over shared memory: the flags, and the memory that the caller sent with ``Pool.share``."""
        raise NotImplementedError(f"{type(self).__name__} does not define share(worker, control, message, fds).")

    def take(self, message: Any, fds: list[int]) -> None:
        """Take over descriptors that the caller sent with ``Pool.hand``."""
        raise NotImplementedError(f"{type(self).__name__} does not define take(message, fds).")

    def order(self, order: int, argument: int) -> int:
        """Carry out an order of ``Pool.order`` or ``Pool.round``; returns a number for the caller."""
        raise NotImplementedError(f"{type(self).__name__} does not define order(order, argument).")


class Worker:
    """This process, as a worker of a :class:`~steppe.workers.Pool`; the first argument of the pool's function.

    Args:
        fds: descriptors of the connection, of the signal that wakes this worker, and of the signal that wakes the
            caller.

    Attributes:
        index: the index of this worker in the pool.
    """

    def __init__(self, fds: list[int]) -> None:
        self._connection = Connection.from_fd(fds[0])
        middle = 1 + len(fds) // 2
        self._wake, self._answer = Signal(fds[1:middle]), Signal(fds[middle:])
        self._control: ControlBlock | None = None
        self._n_workers = 0
        self.index = 0

    def run(self) -> None:
        """Take over the settings of the caller's process, and call the pool's function with its payload."""
        setup, _ = self._connection.recv()
        if not isinstance(setup, dict):
            return  # the caller has stopped the pool already, because something could not be pickled, for example
        self.index, self._n_workers = setup["worker"], setup["n_workers"]
        self._before = set(sys.modules)  # unpickling may import libraries, which count as new modules
        try:
            apply_context(setup["context"], worker=self.index)
            if setup["num_threads"] > 1:
                torch.set_num_threads(setup["num_threads"])
            module, _, name = setup["entry"].partition(":")
            entry = getattr(importlib.import_module(module), name)
            # After the settings: unpickling may need the caller's sys.path, for example.
            payload = cloudpickle.loads(setup["payload"])
        except BaseException as error:
            self.fail(error, "start")
            return
        try:
            entry(self, payload)
        except Gone:
            raise
        except BaseException as error:
            self.fail(error, "start")

    def detach(self) -> None:
        """Leave the descriptor of the connection open, and the socket without it, which then needs no closing."""
        self._connection.detach()

    def say(self, value: object) -> None:
        """Send the caller a message: the answer to a call, or that this worker is ready."""
        self._connection.send_bytes(for_caller(("done", value)))

    def fail(self, error: BaseException, doing: str) -> None:
        """Send the caller an exception instead of an answer."""
        self._connection.send(("failed", Failure.of(error, doing)))

    def pause(self, seconds: float) -> bool:
        """Wait, in the middle of a call; returns True at once if the caller sends something or ends."""
        return self._connection.poll(seconds)

    def new_modules(self) -> list[str]:
        """The plugin modules that this worker has imported, for the fork server to preload; only worker 0 says them."""
        return loaded_since(self._before) if self.index == 0 else []

    @property
    def at_work(self) -> tuple[memoryview[int], int]:
        """The flags, and the index of the flag that says which item is at work: 1 + its index, or 0 for none."""
        assert self._control is not None
        return self._control.flags, self.index * PER_WORKER + AT_WORK

    def serve(self, service: Service) -> None:
        """Answer calls, and carry out orders once flags are shared; returns when the caller is done."""
        while self._control is None:
            if not self._answer_message(service):
                return
        flags, base = self._control.flags, self.index * PER_WORKER
        waiter = Waiter([self._wake], [self._connection], messages=True)
        gate = SpinGate(self._n_workers + 1)
        wake_caller = self._answer.set
        last = 0

        def ordered() -> bool:
            return flags[base + ORDERED] != last

        while True:
            gate.spin(ordered)
            while flags[base + ORDERED] == last:
                if waiter.wait() and not self._answer_message(service):
                    return
                if self._control.flags is not flags:  # the caller has shared other memory
                    return self.serve(service)
            last = flags[base + ORDERED]
            flags[base + FAILED] = 0
            try:
                flags[base + RESULT] = service.order(flags[base + ORDER], flags[base + ARGUMENT])
            except BaseException as error:
                flags[base + FAILED] = 1
                self.fail(error, "an order")
            flags[base + AT_WORK] = 0
            flags[base + ANSWERED] = last
            wake_caller()

    def _answer_message(self, service: Service) -> bool:
        """Wait for a message and answer it; False if the caller is done."""
        try:
            payload, fds = self._connection.recv_bytes()
        except Gone:
            return False
        try:
            kind, content = pickle.loads(payload)
            if kind == "stop":
                return False
            if kind == "share":
                n_extra, shared = content
                self._control = ControlBlock(self._n_workers, n_extra, fds[0])
                os.close(fds[0])
                service.share(self, self._control, shared, fds[1:])
                self.say(None)
            elif kind == "hand":
                service.take(content, fds)
                self.say(None)
            else:
                self.say(service.call(content))
        except Gone:
            return False
        except BaseException as error:
            self.fail(error, "a call")
        return True


def work(fds: list[int]) -> None:
    """Serve the caller with these descriptors until it is done. They stay open: :func:`begin` closes the connection."""
    worker = Worker(fds)
    try:
        worker.run()
    except Gone:
        pass
    finally:
        worker.detach()
