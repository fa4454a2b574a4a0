"""AsyncEnvPool: environments that step independently, in threads or processes.

Results are received later.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, get_args

import torch
from tensordict import LazyStackedTensorDict, TensorDictBase

from steppe.batched import RESET, STEP, STEP_AND_RESET, BatchedEnv, BatchLayout, BatchRows, EnvReport
from steppe.envs import action_rules
from steppe.errors import ClosedError, NotSupported, SpecError
from steppe.workers import SHUTDOWN_TIMEOUT, SHUTDOWN_TIMEOUT_AFTER_FAILURE, check_method, exclusive, uninterrupted
from steppe_pools.async_processes import AsyncProcesses
from steppe_pools.env_index import parse_env_index, split_by_env
from steppe_pools.given_envs import given_envs
from steppe_pools.pending import NAMES, PendingCall, PendingCalls
from steppe_pools.pool_data import PoolData, Stack, stack_as
from steppe_pools.threads import Threads

__all__ = ["AsyncEnvPool", "ProcessorAsyncEnvPool", "ThreadingAsyncEnvPool"]


class AsyncEnvPool(BatchedEnv):
    """Environments that step while the caller does something else.

    Send calls to environments, and receive their results when they end. ``AsyncEnvPool(..., backend="threading")``
    makes a :class:`ThreadingAsyncEnvPool`, ``backend="multiprocessing"`` a :class:`ProcessorAsyncEnvPool`. Each
    environment has a separate thread or process, which starts at the first use (or by ``start``)::

        pool = AsyncEnvPool(["gym:Pendulum-v1"] * 8, backend="multiprocessing")
        pool.async_reset_send()
        while ...:
            td = pool.async_step_and_maybe_reset_recv(min_get=2)[1]   # the first time: pool.async_reset_recv(min_get=2)
            pool.async_step_and_maybe_reset_send(policy(td))

    Data of one environment has no batch dimension, data of ``k`` environments has batch size ``[k]``. The argument
    ``env_index=``, or else the entry ``"env_index"``, selects the environments: an int, or a list or tensor of ints.
    Data of the whole batch, ``[n]``, needs neither. Results are sorted by environment and have the entry
    ``"env_index"``, int64 ``[k]``.

    While no call is pending, the methods of every environment (``reset``, ``step``, ``step_and_maybe_reset``,
    ``rollout``, ``set_seed``) work too, with batch size ``[n]`` and the data of a :class:`SerialEnv`.

    Several threads may send and receive at the same time, each for different environments (``start`` the pool first).
    All other methods must not run while another thread uses the pool. ``close`` ends the waits of other threads with a
    ClosedError.

    >>> from steppe import AsyncEnvPool
    >>> with AsyncEnvPool(["gym:CartPole-v1"] * 2) as pool:
    ...     pool.rollout(3).batch_size
    torch.Size([2, 3])

    Args:
        env_makers: ids, callables or environments, one for each row; a single one makes a pool of one environment. An
            environment is used directly by ``"threading"``, and copied by pickling for ``"multiprocessing"``.
        backend: ``"threading"`` or ``"multiprocessing"``.
        stack: how rows become one TensorDict. ``"dense"``: contiguous; all environments must have equal specs.
            ``"lazy"``: a lazy stack, so that rows may differ. ``"maybe_dense"``: contiguous if possible.
        create_env_kwargs: keyword arguments for the factories, one dict or a list of them.
        step_timeout: seconds that an environment may take for a call; None for no limit.
        mp_start_method: how processes start, see :class:`ParallelEnv`; only for ``backend="multiprocessing"``.
        device: device of the returned data.
        **ignored: arguments of TorchRL's pool that do not change results (``exchange``, ``envs_per_worker``,
            ``worker_affinity``). They are accepted with a warning.

    Attributes:
        min_get: default number of results that a receiving call waits for: 1.
        env_makers: the ``env_makers`` argument, as a list.

    Raises:
        StateError: a call is sent to an environment whose last result was not received, or a result is received that
            was not requested.
        WorkerError: (when receiving) an environment raised an error, which includes its traceback, or its process
            ended. The pool is stopped then, and can only be closed.
        WorkerTimeout: ``step_timeout`` has passed, and the pool is stopped; or the ``timeout`` of a receiving call has
            passed, and nothing is lost or stopped.
        NotSupported: the environments' specs differ, with ``stack="dense"``.
    """

    def __new__(cls, *args: Any, backend: str | None = None, **kwargs: Any) -> Any:
        if cls is AsyncEnvPool:
            if backend not in (None, *_CLASSES):
                raise SpecError(f"backend must be one of {', '.join(map(repr, _CLASSES))}, found {backend!r}.")
            cls = _CLASSES[backend or ThreadingAsyncEnvPool.backend]
        return super().__new__(cls)

    backend: str
    stack: Stack
    min_get: int
    env_makers: list[Any]
    _ignored: ClassVar[dict[str, tuple[Any, str]]] = {
        "exchange": (None, "data of fixed shapes is in shared memory, other data is sent in messages"),
        "envs_per_worker": (1, "each environment has a separate thread or process"),
        "worker_affinity": (None, "the system places workers; os.sched_setaffinity in a factory binds its own"),
    }

    def __init__(
        self,
        env_makers: Any,
        *,
        backend: str | None = None,
        stack: Stack = "dense",
        create_env_kwargs: Any = None,
        step_timeout: float | None = None,
        mp_start_method: str | None = None,
        device: Any = None,
        **ignored: Any,
    ) -> None:
        if backend not in (None, self.backend):
            raise SpecError(
                f"{type(self).__name__} has backend={self.backend!r}, found {backend!r}: leave out backend."
            )
        if stack not in get_args(Stack):
            raise SpecError(f"stack must be one of {', '.join(map(repr, get_args(Stack)))}, found {stack!r}.")
        makers = list(env_makers) if isinstance(env_makers, (list, tuple)) else [env_makers]
        if not makers:
            raise SpecError(
                "AsyncEnvPool needs a list with a factory for each environment, found an empty list. Write "
                "AsyncEnvPool([make] * n)."
            )
        if step_timeout is not None and step_timeout <= 0:
            raise SpecError(f"step_timeout must be a number of seconds above 0, or None, found {step_timeout!r}.")
        if self.backend == ProcessorAsyncEnvPool.backend:
            check_method(mp_start_method)
        elif mp_start_method is not None:
            raise SpecError(
                'mp_start_method is only for worker processes: leave it out, or pass backend="multiprocessing".'
            )
        factories = given_envs(makers)
        super().__init__(len(makers), factories, create_env_kwargs=create_env_kwargs, device=device, **ignored)
        self.env_makers, self.min_get = makers, 1
        self.mp_start_method = mp_start_method
        self.stack = stack
        self.step_timeout = step_timeout
        self._pending = PendingCalls(step_timeout)

    @property
    def num_envs(self) -> int:
        """Number of environments."""
        return int(self.num_workers)

    @property
    def env_batch_sizes(self) -> list[torch.Size]:
        """The batch size of each single environment.

        Reading it makes the environments if they do not exist yet.
        """
        return [self.batch_size[1:]] * self.num_envs

    def stats(self, *, reset: bool = False) -> dict[str, float | int]:
        """Return an empty dict.

        TorchRL counts the waits of its shared-memory exchange here.
        """
        return {}

    def shutdown(self) -> None:
        """Close the pool if it is not closed already."""
        self.close(raise_if_closed=False)

    # -- sending and receiving ------------------------------------------------------------------------------------

    def async_reset_send(self, tensordict: TensorDictBase | None = None, env_index: object = None) -> None:
        """Reset environments.

        Args:
            tensordict: data of these environments, or None. Entries that a reset does not write are returned with the
                result.
            env_index: the environments. Default: those of ``tensordict["env_index"]``, or all.
        """
        self._send(RESET, tensordict, env_index)

    def async_step_send(self, tensordict: TensorDictBase, env_index: object = None) -> None:
        """Step environments.

        Args:
            tensordict: ``[k]`` data with actions, or data of one environment without a batch dimension. It is copied.
            env_index: the environments. Default: those of ``tensordict["env_index"]``.

        Raises:
            StateError: the last call of one of them was not received. No environment is stepped then.
            ActionError: an action is missing, or does not fit; see :meth:`~steppe.envs.EnvBase.step`. No environment
                is stepped then.
        """
        self._send(STEP, tensordict, env_index)

    def async_step_and_maybe_reset_send(self, tensordict: TensorDictBase, env_index: object = None) -> None:
        """Step environments, and reset those whose episode ends.

        See :meth:`async_step_send`.
        """
        self._send(STEP_AND_RESET, tensordict, env_index)

    def async_reset_recv(
        self,
        min_get: int | None = None,
        env_index: object = None,
        timeout: float | None = None,
        *,
        max_get: int | None = None,
    ) -> TensorDictBase:
        """Return the data of resets, ``[k]``. See :meth:`async_step_recv`."""
        return self._receive(RESET, min_get, env_index, timeout, max_get)[0]

    def async_step_recv(
        self,
        min_get: int | None = None,
        env_index: object = None,
        timeout: float | None = None,
        *,
        max_get: int | None = None,
    ) -> TensorDictBase:
        """Wait for steps, and return all that have ended.

        Args:
            min_get: number of steps to wait for. Default: ``pool.min_get``.
            env_index: the environments to receive from, an int or a list. Default: any.
            timeout: seconds to wait at most; 0 returns at once.
            max_get: return at most this many steps, those that were sent first. With ``timeout``, wait until then for
                this many steps, and afterwards only until ``min_get`` have ended.

        Returns:
            The sent data ``[k]`` with ``"next"`` and ``"env_index"``, sorted by ``"env_index"``. Later calls do not
            change it.

        Raises:
            StateError: fewer than ``min_get`` steps are pending, so that waiting would never end.
            WorkerTimeout: fewer than ``min_get`` steps ended in time. They can be received later.
            WorkerError: any environment of the pool raised an error, or its process ended, even if ``env_index`` does
                not select it.
        """
        return self._receive(STEP, min_get, env_index, timeout, max_get)[0]

    def async_step_and_maybe_reset_recv(
        self,
        min_get: int | None = None,
        env_index: object = None,
        timeout: float | None = None,
        *,
        max_get: int | None = None,
    ) -> tuple[TensorDictBase, TensorDictBase]:
        """Return steps and the roots that follow, as ``step_and_maybe_reset`` does.

        See :meth:`async_step_recv`.
        """
        data, root = self._receive(STEP_AND_RESET, min_get, env_index, timeout, max_get)
        assert root is not None
        return data, root

    def _send(self, op: int, tensordict: TensorDictBase | None, env_index: object) -> None:
        what, pending = f"async_{NAMES[op]}_send", self._pending
        self._check_usable(what)
        self.start()
        if tensordict is None and op != RESET:
            raise SpecError(f"{what} takes a TensorDict with the actions, found None.")
        if tensordict is not None and not isinstance(tensordict, TensorDictBase):
            raise SpecError(f"{what} takes a TensorDict, found {type(tensordict).__name__}.")
        data = split_by_env(tensordict, env_index, self.num_workers, what)
        with self._calls(what):
            self.in_use.check(what)
            pending.check_free(data, what)
            if op != RESET:
                for row, td in data.items():
                    assert td is not None
                    pending.data.check_action(row, td)
            self.base_state.uses.note()
            pending.send(op, data)

    def _receive(
        self, op: int, min_get: int | None, env_index: object, timeout: float | None, max_get: int | None
    ) -> tuple[TensorDictBase, TensorDictBase | None]:
        what, pending = f"async_{NAMES[op]}_recv", self._pending
        least = self.min_get if min_get is None else min_get
        for name, number in (("min_get", least), ("max_get", least if max_get is None else max_get)):
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                raise SpecError(f"{what}: {name} must be a whole number >= 1, found {number!r}.")
        if max_get is not None and max_get < least:
            raise SpecError(f"{what}: max_get must not be below min_get, found {max_get} and {least}.")
        self._check_usable(what)
        requested = None if env_index is None else set(parse_env_index(env_index, self.num_workers, what))
        received: dict[int, PendingCall] = {}
        try:
            with self._calls(what):
                rows = pending.wait_for(
                    op, requested, least=least, most=max_get, timeout=timeout, check=self._check_usable
                )
                received = {row: pending.by_row[row] for row in rows}
                result = pending.data.gather(op, received, self.device, self.step_plan)
                for row in rows:
                    del pending.by_row[row]
                return result
        except BaseException:
            pending.put_back(received)
            raise

    @contextmanager
    def _calls(self, what: str) -> Iterator[None]:
        """Hold the lock of the pending calls.

        If an error ends the calls, stop the pool.
        """
        try:
            with uninterrupted(), self._pending.change.lock:  # Ctrl-C interrupts a wait, or arrives after the block
                self._check_usable(what)
                yield
        except ClosedError:
            raise  # another thread stops the pool, or has closed it
        except BaseException:
            if self._pending.stopped:
                # Without the lock, because threads need it to end their calls.
                self._stop(SHUTDOWN_TIMEOUT_AFTER_FAILURE)
            raise

    # -- life -----------------------------------------------------------------------------------------------------

    def start(self) -> AsyncEnvPool:
        """Make the environments if they are not made yet."""
        with self._pending.change.lock:
            super().start()
        return self

    def _lay_out(self, reports: list[EnvReport]) -> BatchLayout:
        size = reports[0].batch_size
        if size:
            raise NotSupported(
                f"Environment 0 is a batch itself, {size}. Pass single environments, or use the batch without a pool."
            )
        layout = super()._lay_out(reports)
        if self.stack == "dense" and not layout.alike and layout.row is None:
            first = reports[0].specs
            row, kind = next(
                (row, kind)
                for row, report in enumerate(reports)
                for kind, spec in report.specs.items()
                if spec != first[kind]
            )
            raise NotSupported(
                f"Environments 0 and {row} differ in their {kind} specs, but stack='dense' needs equal specs. Make the "
                "pool with stack='lazy' or stack='maybe_dense'."
            )
        return layout

    def _opened(self, layout: BatchLayout, rows: BatchRows | None) -> None:
        pending = self._pending
        assert pending.backend is not None
        pending.data = PoolData(
            None if any(layout.loose.values()) else rows,  # calls of single environments pass loose entries in messages
            [action_rules(report.specs["action"], report.specs["done"]) for report in pending.backend.reports],
            layout,
            stack=self.stack,
        )

    def check_open(self, what: str) -> None:
        # Every method that is not asynchronous calls this before it touches data.
        self._check_usable(what)
        pending = self._pending
        with pending.change.lock:
            pending.check_free(sorted(pending.by_row), what)

    def _check_usable(self, what: str) -> None:
        stopped = self._pending.stopped
        if stopped and not self.is_closed:
            raise ClosedError(f"{what}: this pool was {stopped}. Close it and make a new one.")
        super().check_open(what)

    def _stop(self, timeout: float | None = None) -> None:
        self._pending.drop()
        super()._stop(timeout)

    def close(self, *, raise_if_closed: bool = False) -> None:
        super().close(raise_if_closed=raise_if_closed)
        self._pending = PendingCalls(self.step_timeout)  # not pickled, because it refers to the backend and its storage

    # -- the methods of every environment -------------------------------------------------------------------------

    def no_rows_reason(self) -> str | None:
        return f"{type(self).__name__} steps its environments one by one."

    # These check again, because another thread may have sent a call since the first check.

    @exclusive("step")
    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        self.check_open("step")
        return self._as_stack(super()._step(tensordict))

    @exclusive("reset")
    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        self.check_open("reset")
        return self._as_stack(super()._reset(tensordict, **kwargs))

    @exclusive("step_and_maybe_reset")
    def step_and_maybe_reset(self, tensordict: TensorDictBase) -> tuple[TensorDictBase, TensorDictBase]:
        self.check_open("step_and_maybe_reset")
        tensordict, root = super().step_and_maybe_reset(tensordict)
        return tensordict, self._as_stack(root)

    def _stacked(self, op: int, tensordict: TensorDictBase | None, rows: list[int] | None = None, *more: Any) -> Any:
        if op != RESET and tensordict is not None and not self._pending.data.alike:
            # Checked here, because an error of an environment stops the pool.
            for row, td in enumerate(tensordict.unbind(0)):
                if rows is None or row in rows:
                    self._pending.data.check_action(row, td)
        return super()._stacked(op, tensordict, rows, *more)

    def _as_stack(self, data: TensorDictBase) -> TensorDictBase:
        lazy = isinstance(data, LazyStackedTensorDict)
        if self.stack != "maybe_dense" and lazy != (self.stack == "lazy"):
            return stack_as(self.stack, list(data.unbind(0)))
        return data


class ThreadingAsyncEnvPool(AsyncEnvPool):
    """An :class:`AsyncEnvPool` with a thread for each environment.

    Each thread makes, steps and closes its environment. Use it for environments that mostly wait for a network, a
    simulator or a compiled library that releases the GIL: only one thread at a time runs Python code.

    A thread cannot be stopped from outside. If an environment hangs, ``close`` leaves its thread running after 5
    seconds, with a warning. The thread ends when the environment returns, and the interpreter waits for it at exit.

    >>> from steppe import ThreadingAsyncEnvPool
    >>> from steppe_testing import SlowEnv
    >>> fast, slow = lambda: SlowEnv(seconds=0.0), lambda: SlowEnv(seconds=0.3)
    >>> with ThreadingAsyncEnvPool([slow, fast, fast]) as pool:
    ...     pool.async_step_send(pool.rand_action(pool.reset()))
    ...     pool.async_step_recv(min_get=2)["env_index"].tolist()
    [1, 2]
    """

    backend = "threading"

    def _make_backend(self, factories: list[Callable[[], Any]]) -> Threads:
        backend = Threads(self._pending.change, factories, step_timeout=self.step_timeout)
        self._pending.backend = backend
        return backend

    def close(self, *, raise_if_closed: bool = False) -> None:
        backend = self._pending.backend
        super().close(raise_if_closed=raise_if_closed)
        if not isinstance(backend, Threads):
            return
        if backend.hung:
            # Threads that an error left running may have ended by now.
            backend.stop(SHUTDOWN_TIMEOUT)
        if backend.hung:
            warnings.warn(
                f"Environments {backend.hung} did not return within {SHUTDOWN_TIMEOUT:g} s, and their "
                'threads cannot be stopped, so they keep running. Use backend="multiprocessing" for environments that '
                "may hang.",
                RuntimeWarning,
                stacklevel=2,
            )


class ProcessorAsyncEnvPool(AsyncEnvPool):
    """An :class:`AsyncEnvPool` whose environments have a worker process each.

    Workers, shared memory and errors are those of :class:`~steppe.ParallelEnv`: data of fixed shapes is written into
    shared memory, and a command flag wakes the worker. Other data, and data of unequal environments, travels in
    messages.

    >>> from steppe import ProcessorAsyncEnvPool
    >>> with ProcessorAsyncEnvPool(["gym:CartPole-v1"] * 4) as pool:
    ...     pool.async_step_send(pool.rand_action(pool.reset()))
    ...     first = pool.async_step_recv(min_get=2)  # the environments that are ready
    ...     len(pool.worker_pids), len(first) >= 2
    (4, True)
    """

    backend = "multiprocessing"

    def _make_backend(self, factories: list[Callable[[], Any]]) -> AsyncProcesses:
        backend = AsyncProcesses(
            self._pending.change,
            factories,
            method=self.mp_start_method,
            step_timeout=self.step_timeout,
            shutdown_timeout=SHUTDOWN_TIMEOUT,
        )
        self._pending.backend = backend
        return backend

    @property
    def worker_pids(self) -> list[int]:
        """The process ids of the workers; empty before ``start`` and after ``close``."""
        backend = self._pending.backend
        return backend.pids if isinstance(backend, AsyncProcesses) else []


_CLASSES = {cls.backend: cls for cls in (ThreadingAsyncEnvPool, ProcessorAsyncEnvPool)}
