"""A worker's side: made ready, it serves its caller's calls and orders until the caller is done."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any, Protocol

import cloudpickle
import torch

from steppe.workers.channel import Connection, Gone, Signal, SpinGate, Waiter
from steppe.workers.commands import ANSWERED, ARGUMENT, AT_WORK, FAILED, ORDER, ORDERED, PER_WORKER, RESULT, Words
from steppe.workers.context import apply
from steppe.workers.failures import Failure
from steppe.workers.pickling import for_caller
from steppe.workers.start.preload import Loaded, loaded_since

__all__ = ["Service", "Worker", "work"]


class Service(Protocol):
    """What a worker does for its caller."""

    def call(self, message: Any) -> Any:
        """Answer a message."""

    def share(self, worker: Worker, words: Words, message: Any, fds: list[int]) -> None:
        """Take over shared memory: the words, and what the caller sent with them."""

    def order(self, order: int, argument: int) -> int:
        """Do what the words say; returns a number for the caller."""


class Worker:
    """This process, as a worker of a :class:`~steppe.workers.Pool`. The function that a pool names is given one.

    Args:
        fds: the connection, the signal to wait for and the signal to give.

    Attributes:
        index: which worker of the pool it is.
    """

    def __init__(self, fds: list[int]) -> None:
        self._connection = Connection.from_fd(fds[0])
        n = Signal.n_fds()
        self._wake, self._answer = Signal.from_fds(fds[1 : 1 + n]), Signal.from_fds(fds[1 + n : 1 + 2 * n])
        self._words: Words | None = None
        self._n_workers = 0
        self.index = 0

    def run(self) -> None:
        """Become like the caller's process, and call the function that the pool names with what it sends."""
        setup, _ = self._connection.recv()
        if not isinstance(setup, dict):
            return  # the caller gave up before it said what to do: something could not be pickled, for example
        self.index, self._n_workers, self._named = setup["worker"], setup["n_workers"], setup["named"]
        self._before = set(sys.modules)  # what is sent by value may import a library when it is unpickled
        try:
            apply(setup["context"], worker=self.index)
            if setup["num_threads"] > 1:
                torch.set_num_threads(setup["num_threads"])
            module, _, name = setup["entry"].partition(":")
            entry = getattr(importlib.import_module(module), name)
            # What was pickled by value may need any of the above.
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

    def say(self, value: Any) -> None:
        """Answer a call, or tell the caller that the work can begin."""
        self._connection.send_bytes(for_caller(("done", value)))

    def fail(self, error: BaseException, doing: str) -> None:
        """Tell the caller what was raised instead of an answer."""
        self._connection.send(("failed", Failure.of(error, doing)))

    def pause(self, seconds: float) -> bool:
        """Wait, in the middle of a call; returns sooner, and True, where the caller has sent something or is gone."""
        return self._connection.poll(seconds)

    def new_modules(self) -> Loaded:
        """What this process has imported that a fork server may load ahead for later workers; worker 0 tells of it."""
        return loaded_since(self._before, self._named) if self.index == 0 else Loaded([], [])

    @property
    def at_work(self) -> tuple[Any, int]:
        """Words, and the index of the one that says what is at work, counted from 1; 0 for nothing."""
        assert self._words is not None
        return self._words.words, self.index * PER_WORKER + AT_WORK

    def serve(self, service: Service) -> None:
        """Answer calls, and carry out orders once words are shared; returns when the caller is done."""
        while self._words is None:
            if not self._message(service):
                return
        words, base = self._words.words, self.index * PER_WORKER
        waiter = Waiter(self._wake, [self._connection], messages=True)
        gate = SpinGate(self._n_workers + 1)
        give = self._answer.setter()
        last = 0

        def called() -> bool:
            return words[base + ORDERED] != last

        while True:
            gate.spin(called)
            while words[base + ORDERED] == last:
                if waiter.wait() and not self._message(service):
                    return
            last = words[base + ORDERED]
            words[base + FAILED] = 0
            try:
                words[base + RESULT] = service.order(words[base + ORDER], words[base + ARGUMENT])
            except BaseException as error:
                words[base + FAILED] = 1
                self.fail(error, "an order")
            words[base + AT_WORK] = 0
            words[base + ANSWERED] = last
            give()

    def _message(self, service: Service) -> bool:
        """Wait for a message and answer it; False when the caller is done."""
        try:
            message, fds = self._connection.recv()
        except Gone:
            return False
        kind, *rest = message
        if kind == "stop":
            return False
        try:
            if kind == "share":
                n_extra, shared = rest
                self._words = Words.shared(self._n_workers, n_extra, fds[0])
                os.close(fds[0])
                service.share(self, self._words, shared, fds[1:])
                self.say(None)
            elif kind == "hand":
                taker: Any = service  # not every service is handed something
                taker.take(rest[0], fds)
                self.say(None)
            else:
                self.say(service.call(rest[0]))
        except Gone:
            return False
        except BaseException as error:
            self.fail(error, "a call")
        return True


def work(fds: list[int]) -> None:
    """Be a worker until the caller is done."""
    try:
        Worker(fds).run()
    except Gone:
        pass
