"""PolicyServer: one policy that acts for many environments, whose calls it joins into batches."""

from __future__ import annotations

import copy
import pickle
import secrets
import selectors
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Client, Connection, Listener
from typing import Any, TypeAlias

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from steppe.collectors import (
    AgentDeclarations,
    Field,
    NewWeights,
    SourcePolicy,
    fields_of,
    set_attributes,
    values_for,
    write_into,
)
from steppe.envs import ExplorationType, as_policy, called_with, policy_name, set_exploration_type
from steppe.errors import ClosedError, NotSupported, PolicyError, SpecError
from steppe_remote.served_policy import EnvDescription, Key, ServedPolicy

__all__ = ["PolicyServer"]

#: How a client reaches the server: an abstract socket of this machine, or host and port.
Address: TypeAlias = "str | tuple[str, int]"

#: Seconds that the thread of the server may take to end.
_END = 5.0

#: Weight of a call in the mean time of the last calls.
_RECENT = 0.1


@dataclass
class _Request:
    """A call of a client that was not answered yet.

    Attributes:
        client: the connection.
        rows: the number of rows.
        values: the entries of the root, ``[rows, ...]`` each.
        since: when it was received.
    """

    client: Connection
    rows: int
    values: dict[Key, np.ndarray[Any, Any]]
    since: float

    @property
    def layout(self) -> tuple[Any, ...]:
        """Requests with equal layouts are answered by one call."""
        return tuple((key, value.dtype.str, value.shape[1:]) for key, value in self.values.items())


class PolicyServer:
    """Serve one policy to many environments: calls that arrive together are answered by one call of the policy.

    A call waits until ``max_batch_size`` rows have arrived, or every client has called, or ``server_timeout`` seconds
    have passed since the first of them. The server acts with a copy of the policy in a thread of this process, so that
    a learner may change its weights at any time; :meth:`update_weights` copies them in one piece.

    Args:
        policy: a policy as in :func:`~steppe.envs.as_policy`.
        max_batch_size: the largest number of rows of a call. A client with more rows is served alone.
        server_timeout: seconds that a call waits for others; None: as long as the last calls took on average.
        device: the device on which the policy acts; None: where it is.
        exploration_type: the exploration type of the calls.
        host: the name under which other machines reach this one; None: clients are on this machine.

    Attributes:
        policy: the copy that acts.
        version: the number of updates.

    Raises:
        PolicyError: the policy cannot be copied.
        NotSupported: the policy keeps a recurrent state, or takes infos.
        SpecError: ``max_batch_size`` is below 1, or ``server_timeout`` below 0.

    Examples:
        >>> import torch
        >>> from tensordict import TensorDict
        >>> from tensordict.nn import TensorDictModule
        >>> from steppe_remote import PolicyServer
        >>> policy = TensorDictModule(torch.nn.Linear(3, 2), ["observation"], ["action"])
        >>> server = PolicyServer(policy)
        >>> act = server.client()  # may be sent to other processes
        >>> act(TensorDict(observation=torch.zeros(4, 3), batch_size=[4]))["action"].shape
        torch.Size([4, 2])
        >>> server.shutdown()
    """

    def __init__(
        self,
        policy: Any,
        *,
        max_batch_size: int = 64,
        server_timeout: float | None = None,
        device: Any = None,
        exploration_type: ExplorationType = ExplorationType.RANDOM,
        host: str | None = None,
    ) -> None:
        if isinstance(max_batch_size, bool) or not isinstance(max_batch_size, int) or max_batch_size < 1:
            raise SpecError(f"PolicyServer: max_batch_size must be a whole number >= 1, found {max_batch_size!r}.")
        if server_timeout is not None and not server_timeout >= 0:
            raise SpecError(f"PolicyServer: server_timeout must be None or seconds >= 0, found {server_timeout!r}.")
        if names := AgentDeclarations.of(policy).names:
            raise NotSupported(
                f"PolicyServer: {policy_name(policy)} declares {' and '.join(names)}, which stay with the environments "
                "in each worker. Take inference='worker'."
            )
        self._source = SourcePolicy(policy, "PolicyServer")
        try:
            self.policy = copy.deepcopy(policy)
        except Exception as error:
            raise PolicyError(
                f"PolicyServer acts with a copy of the policy {policy_name(policy)}, which cannot be copied: "
                f"{type(error).__name__}: {error}. Give a policy that copy.deepcopy takes."
            ) from error
        if device is not None and isinstance(self.policy, torch.nn.Module):
            self.policy.to(device)
        self._fields: list[Field] = fields_of(self.policy)
        self.version = 0
        self._serving = _Serving(self.policy, max_batch_size, server_timeout, device, exploration_type, host)
        # The thread holds no reference to this object, so that it ends with it, at the latest at the exit.
        self._finalizer = weakref.finalize(self, self._serving.end)
        self._serving.start()

    def client(self) -> ServedPolicy:
        """Return a policy that asks this server: it can be pickled, and connects where it is first called."""
        self._check_open()
        return ServedPolicy(self._serving.address, self._serving.key)

    def update_weights(self, weights: NewWeights = None, attributes: Mapping[str, Any] | None = None) -> None:
        """Take over weights and attributes before the next call; see ``Collector.update_policy_weights_``.

        Args:
            weights: a policy, a TensorDict of parameters or a state dict. None: of the policy that was given.
            attributes: values of attributes by name.

        Raises:
            PolicyError: they do not fit. Nothing is changed.
        """
        self._check_open()
        attributes = attributes or {}
        if weights is None:
            weights = self._source.weights(self._fields, attributes)
        values = values_for(self._fields, weights)
        with self._serving.acting:
            self._source.set_attributes(attributes)
            set_attributes(self.policy, attributes)
            write_into(self.policy, values)
            self.version += 1

    def weights(self) -> dict[str, torch.Tensor]:
        """Return a copy of the weights that act, by name."""
        tensors = SourcePolicy(self.policy, "PolicyServer").weights(self._fields, {}) or {}
        return {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}

    def stats(self) -> dict[str, float]:
        """Return the numbers of ``calls`` of the policy, of ``rows`` in them, and of connected ``clients``."""
        serving = self._serving
        return {"calls": serving.calls, "rows": serving.rows, "clients": len(serving.clients)}

    def shutdown(self) -> None:
        """End the server; clients that call it get a PolicyError. Calling it again does nothing."""
        self._finalizer()

    def _check_open(self) -> None:
        if not self._finalizer.alive:
            raise ClosedError("This PolicyServer is shut down: make a new one.")


class _Serving(threading.Thread):
    """The thread that answers clients, and the socket where they connect."""

    def __init__(
        self,
        policy: Any,
        max_batch_size: int,
        server_timeout: float | None,
        device: Any,
        exploration_type: ExplorationType,
        host: str | None,
    ) -> None:
        super().__init__(name="steppe-policy-server", daemon=True)
        self._policy, self._most, self._timeout = policy, max_batch_size, server_timeout
        self._device = None if device is None else torch.device(device)
        self._exploration_type = exploration_type
        self._act: Callable[[TensorDictBase], Any] | None = None
        #: The entries that the policy reads and writes; None: all of the root, and whatever is new.
        self._in_keys: list[Key] | None = None
        self._out_keys: list[Key] | None = None
        self.key = secrets.token_bytes(32)
        self._listener = Listener(_local_address() if host is None else ("", 0), authkey=self.key)
        address: Any = self._listener.address
        self.address: Address = address if host is None else (host, int(address[1]))
        self._own_address = address
        #: Held while the policy acts, or gets weights.
        self.acting = threading.Lock()
        self.clients: set[Connection] = set()
        self._waiting: list[_Request] = []
        self.calls = self.rows = 0
        #: Mean seconds of the last calls of the policy.
        self._took = 0.0
        self._ended = False
        self._notice, self._noticed = Pipe(duplex=False)[::-1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._noticed, selectors.EVENT_READ)
        self._accepting = threading.Thread(target=self._accept, name="steppe-policy-clients", daemon=True)

    def start(self) -> None:
        self._accepting.start()
        super().start()

    # -- connections ----------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        """Let clients of other processes connect, until :meth:`end` connects itself."""
        while True:
            try:
                client = self._listener.accept()
            except Exception:  # a client that knows no key, or has gone
                if self._ended:
                    return
                continue
            if self._ended:
                client.close()
                return
            self._add(client)

    def _add(self, client: Connection) -> None:
        self.clients.add(client)
        self._notice.send(client.fileno())
        self._selector.register(client, selectors.EVENT_READ)

    def _drop(self, client: Connection) -> None:
        """Forget a client that has gone."""
        self.clients.discard(client)
        self._waiting = [request for request in self._waiting if request.client is not client]
        with suppress(KeyError, ValueError):
            self._selector.unregister(client)
        client.close()

    def end(self) -> None:
        """End the thread and close all connections."""
        if self._ended:
            return
        self._ended = True
        with suppress(OSError):
            self._notice.send(None)
        with suppress(Exception):  # wakes the thread that accepts
            Client(self._own_address, authkey=self.key).close()
        for thread in (self, self._accepting):
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(_END)
        self._listener.close()
        for client in list(self.clients):
            self._drop(client)
        self._selector.close()
        self._notice.close()
        self._noticed.close()

    # -- calls ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        while not self._ended:
            for ready in self._ready(self._remaining()):
                self._receive(ready)
            if not self._waiting:
                continue
            full = sum(request.rows for request in self._waiting) >= self._most
            if full or len(self._waiting) >= len(self.clients) or self._remaining() == 0.0:
                begun = time.monotonic()
                self._answer(self._next_requests())
                self._took += _RECENT * (time.monotonic() - begun - self._took)

    def _remaining(self) -> float | None:
        """Return how many seconds the next call may wait for more rows; None: there are none."""
        if not self._waiting:
            return None
        # Waiting saves a call at most, so by default it takes no longer than a call.
        patience = self._took if self._timeout is None else self._timeout
        return max(self._waiting[0].since + patience - time.monotonic(), 0.0)

    def _ready(self, timeout: float | None) -> list[Connection]:
        ready = [key.fileobj for key, _ in self._selector.select(timeout)]
        if self._noticed in ready:
            self._noticed.recv()
            ready.remove(self._noticed)
        return ready  # type: ignore[return-value]

    def _receive(self, client: Connection) -> None:
        try:
            message = pickle.loads(client.recv_bytes())
        except (EOFError, OSError):
            self._drop(client)
            return
        if isinstance(message, EnvDescription):
            self._reply([client], self._adapted, message)
            return
        rows, values = message
        self._waiting.append(_Request(client, rows, values, time.monotonic()))

    def _adapted(self, env: EnvDescription) -> list[Any]:
        """Return what clients send: the entries that the policy reads, or None for all."""
        if self._act is None:
            act: Any = as_policy(self._policy, env)  # type: ignore[arg-type]
            in_keys, out_keys = getattr(act, "in_keys", None), getattr(act, "out_keys", None)
            self._in_keys = None if in_keys is None else list(in_keys)
            self._out_keys = None if out_keys is None else [key for key in out_keys if key != "_"]
            self._act = act
        return [self._in_keys]

    def _next_requests(self) -> list[_Request]:
        """Take the requests of the next call, in the order in which they came."""
        chosen: list[_Request] = []
        layout, rows = self._waiting[0].layout, 0
        for request in self._waiting:
            if chosen and (rows + request.rows > self._most or request.layout != layout):
                continue
            chosen.append(request)
            rows += request.rows
        self._waiting = [request for request in self._waiting if request not in chosen]
        return chosen

    def _answer(self, requests: list[_Request]) -> None:
        self._reply([request.client for request in requests], self._acted, requests)

    def _acted(self, requests: list[_Request]) -> list[Any]:
        """Call the policy once; return the part of each request."""
        act = self._act
        assert act is not None  # a client describes its environment before it calls
        joined = {
            key: torch.from_numpy(np.concatenate([request.values[key] for request in requests]))
            for key in requests[0].values
        }
        rows = sum(request.rows for request in requests)
        root = TensorDict(joined, batch_size=[rows], device=self._device)
        given = {key: root.get(key) for key in joined}
        with self.acting, torch.no_grad(), set_exploration_type(self._exploration_type):
            written = act(root)
            self.calls += 1
            self.rows += rows
        if not isinstance(written, TensorDictBase):
            raise PolicyError(f"The policy must return a TensorDict, found {type(written).__name__}.")
        keys: list[Any] = self._out_keys or [
            key for key in written.keys(True, True) if key not in given or written.get(key) is not given[key]
        ]
        results = {key: written.get(key).detach().cpu().numpy() for key in keys}
        answers, begin = [], 0
        for request in requests:
            end = begin + request.rows
            answers.append({key: value[begin:end] for key, value in results.items()})
            begin = end
        return answers

    def _reply(self, clients: list[Connection], work: Callable[[Any], list[Any]], argument: Any) -> None:
        """Send each client its result, or all of them the error."""
        try:
            replies = [("done", each) for each in work(argument)]
        except Exception as error:
            root = argument[0].values if isinstance(argument, list) else {}
            replies = [("failed", _failure(self._policy, error, root))] * len(clients)
        for client, reply in zip(clients, replies, strict=True):
            try:
                client.send_bytes(pickle.dumps(reply, pickle.HIGHEST_PROTOCOL))
            except OSError:
                self._drop(client)


def _failure(policy: Any, error: Exception, values: Mapping[Key, np.ndarray[Any, Any]]) -> str:
    """Return the text of the error that clients raise."""
    data = ""
    if values:
        rows = next(iter(values.values())).shape[:1]
        root = TensorDict({key: torch.from_numpy(value) for key, value in values.items()}, batch_size=rows)
        data = f" It was called with {called_with(policy, root)}, and with the rows of other clients."
    trace = "".join(traceback.format_exception(error))
    return f"The policy {policy_name(policy)}, which is served, raised {type(error).__name__}: {error}.{data}\n{trace}"


def _local_address() -> str | None:
    """Return an address for clients of this machine; None lets multiprocessing choose one."""
    # Linux knows sockets without a file, which nothing has to remove.
    return f"\0steppe-{secrets.token_hex(8)}" if sys.platform == "linux" else None
