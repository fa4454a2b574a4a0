"""AsyncEnvPool: environments that are sent work and asked for results, each at its own pace."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from tensordict import LazyStackedTensorDict, TensorDictBase

from steppe.batched.async_pool.data import PoolData
from steppe.batched.async_pool.env_index import indices_of, rows_of, stack_as
from steppe.batched.async_pool.jobs import NAMES, AsyncWork, Job
from steppe.batched.attributes import HAS
from steppe.batched.base import BatchedEnv
from steppe.batched.factories import given_envs
from steppe.batched.layout import BatchLayout, EnvReport
from steppe.batched.operations import RESET, STEP, STEP_AND_RESET
from steppe.envs import action_rules
from steppe.errors import ClosedError, NotSupported, SpecError
from steppe.specs import Composite
from steppe.workers import PATIENCE_AFTER_FAILURE, exclusive, uninterrupted

__all__ = ["AsyncEnvPool"]

Stack = Literal["dense", "maybe_dense", "lazy"]
_STACKS = ("dense", "maybe_dense", "lazy")
_BACKENDS = ("threading", "multiprocessing")
# What there is of a pool from its start on, or is not for other processes.
_OF_A_START = frozenset({"_work", "_data", "_row_actions"})


class AsyncEnvPool(BatchedEnv):
    """Environments that work while the caller does something else: send to some, receive from whichever has ended.

    ``AsyncEnvPool(..., backend="threading")`` makes a :class:`ThreadingAsyncEnvPool`, ``backend="multiprocessing"`` a
    :class:`ProcessorAsyncEnvPool`. Each environment has a thread or process of its own, made at the first use (or by
    ``start``)::

        pool = AsyncEnvPool(["gym:Pendulum-v1"] * 8, backend="multiprocessing")
        pool.async_reset_send()
        while ...:
            td = pool.async_step_and_maybe_reset_recv(min_get=2)[1]   # the first time: pool.async_reset_recv(min_get=2)
            pool.async_step_and_maybe_reset_send(policy(td))

    Data of one environment has no batch, data of ``k`` has batch size ``[k]``. The entry ``"env_index"`` says which
    environments they are: an int, or a list or tensor of them; the argument ``env_index=`` goes before it. Results are
    sorted by it and carry it, as int64 ``[k]``. Data of the whole batch, ``[n]``, needs none.

    The calls of every environment (``reset``, ``step``, ``step_and_maybe_reset``, ``rollout``, ``set_seed``) work too,
    with batch size ``[n]`` and the data of a :class:`SerialEnv`, when no environment is at work.

    Several threads may send and receive at the same time, each for environments of its own (``start`` the pool first);
    all other calls need no other thread in one. ``close`` ends the waits of other threads with a ClosedError.

    Args:
        env_makers: ids, callables or environments, one for each row; one alone makes a pool of one. An environment is
            used as it is by ``"threading"``, and copied by pickling for ``"multiprocessing"``.
        backend: ``"threading"`` or ``"multiprocessing"``.
        stack: how rows become one TensorDict. ``"dense"``: contiguous; all environments must have equal specs.
            ``"lazy"``: a lazy stack, so that rows may differ. ``"maybe_dense"``: contiguous where possible.
        create_env_kwargs: keyword arguments for the factories, one dict or a list of them.
        step_timeout: seconds that an environment may be at work; None for no limit.
        mp_start_method: how processes start, see :class:`ParallelEnv`; for ``backend="multiprocessing"`` alone.
        device: where data comes out.
        **ignored: arguments of TorchRL's pool that only choose how (``exchange``, ``envs_per_worker``,
            ``worker_affinity``): taken, with a warning for each that says what is done.

    Attributes:
        min_get: how many results a receiving call waits for that is not told; 1.
        env_makers: what the pool was made with.

    Raises:
        StateError: sending to an environment whose result was not received, or receiving what was not sent.
        WorkerError: from receiving: an environment raised, with its traceback, or its process ended. Everything is
            stopped then; ``close`` is all that is left to call.
        WorkerTimeout: ``step_timeout`` passed (the same holds), or the ``timeout`` of a receiving call (nothing is lost
            or stopped).
        NotSupported: the environments' specs differ, with ``stack="dense"``.
    """

    def __new__(cls, *args: Any, backend: str | None = None, **kwargs: Any) -> Any:
        if cls is not AsyncEnvPool:
            return super().__new__(cls)
        # Both are subclasses, which import this module.
        from steppe.batched.async_pool.process_pool import ProcessorAsyncEnvPool
        from steppe.batched.async_pool.thread_pool import ThreadingAsyncEnvPool

        if backend not in (None, *_BACKENDS):
            raise SpecError(f"backend is one of {', '.join(map(repr, _BACKENDS))}, found {backend!r}.")
        return super().__new__(ProcessorAsyncEnvPool if backend == "multiprocessing" else ThreadingAsyncEnvPool)

    backend: str
    stack: Stack
    min_get: int
    env_makers: list[Any]
    _data: PoolData
    _ignored: ClassVar[dict[str, tuple[Any, str]]] = {
        "exchange": (None, "data of fixed shapes is in shared memory, other data is sent in messages"),
        "envs_per_worker": (1, "each environment has a thread or process of its own"),
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
            raise SpecError(f"{type(self).__name__} has backend={self.backend!r}, found {backend!r}: leave it out.")
        if stack not in _STACKS:
            raise SpecError(f"stack is one of {', '.join(map(repr, _STACKS))}, found {stack!r}.")
        makers = list(env_makers) if isinstance(env_makers, (list, tuple)) else [env_makers]
        if not makers:
            raise SpecError(
                "AsyncEnvPool takes a list with a factory for each environment, found an empty one: make it "
                "AsyncEnvPool([make] * n)."
            )
        if step_timeout is not None and step_timeout <= 0:
            raise SpecError(f"step_timeout is a number of seconds above 0, or None, found {step_timeout!r}.")
        self._check_start_method(mp_start_method)
        factories = given_envs(makers)
        super().__init__(len(makers), factories, create_env_kwargs=create_env_kwargs, device=device, **ignored)
        self.env_makers, self.min_get = makers, 1
        self.mp_start_method = mp_start_method
        self.stack = stack
        self.step_timeout = step_timeout
        self._work = AsyncWork(step_timeout)

    def _check_start_method(self, method: str | None) -> None:
        """Refuse a way to start workers that the backend has no use for, or that this system lacks."""
        raise NotImplementedError

    @property
    def num_envs(self) -> int:
        """How many environments there are."""
        return int(self.num_workers)

    @property
    def env_batch_sizes(self) -> list[torch.Size]:
        """The batch size of each environment itself. Makes the environments, if need be."""
        return [self.batch_size[1:]] * self.num_envs

    def stats(self, *, reset: bool = False) -> dict[str, float | int]:
        """Return nothing: TorchRL counts the waits of its exchange here, and of its queues nothing either."""
        return {}

    def shutdown(self) -> None:
        """The same as ``close``, for a pool that may be closed already."""
        self.close(raise_if_closed=False)

    # -- sending and receiving ------------------------------------------------------------------------------------

    def async_reset_send(self, tensordict: TensorDictBase | None = None, env_index: Any = None) -> None:
        """Have environments begin an episode.

        Args:
            tensordict: data of these environments, whose entries that a reset does not write come back with the result;
                or None.
            env_index: which ones; by default those of ``tensordict["env_index"]``, or all.
        """
        self._send(RESET, tensordict, env_index)

    def async_step_send(self, tensordict: TensorDictBase, env_index: Any = None) -> None:
        """Have environments act.

        Args:
            tensordict: ``[k]`` data with actions, or data of one environment without a batch. It is copied.
            env_index: which environments; by default those of ``tensordict["env_index"]``.

        Raises:
            StateError: one of them is at work, or its last result was not received. None is started then.
            ActionError: an action is missing, or does not fit; see :meth:`~steppe.envs.EnvBase.step`. None is started
                then.
        """
        self._send(STEP, tensordict, env_index)

    def async_step_and_maybe_reset_send(self, tensordict: TensorDictBase, env_index: Any = None) -> None:
        """Have environments act, and begin anew where an episode ends. See :meth:`async_step_send`."""
        self._send(STEP_AND_RESET, tensordict, env_index)

    def async_reset_recv(
        self,
        min_get: int | None = None,
        env_index: Any = None,
        timeout: float | None = None,
        *,
        max_get: int | None = None,
    ) -> TensorDictBase:
        """Return the first data of the episodes that have begun, ``[k]``. See :meth:`async_step_recv`."""
        data: TensorDictBase = self._receive(RESET, min_get, env_index, timeout, max_get)
        return data

    def async_step_recv(
        self,
        min_get: int | None = None,
        env_index: Any = None,
        timeout: float | None = None,
        *,
        max_get: int | None = None,
    ) -> TensorDictBase:
        """Wait for steps and return all that have ended.

        Args:
            min_get: how many to wait for; by default ``pool.min_get``.
            env_index: the environments to receive from, an int or a list; any by default.
            timeout: seconds to wait at most; 0 looks without waiting.
            max_get: return at most as many, those that were sent first. With ``timeout`` too, the call waits until then
                for as many to end, once ``min_get`` have.

        Returns:
            ``[k]`` data that was sent, with ``"next"`` and ``"env_index"``, sorted by the latter. It never changes.

        Raises:
            StateError: fewer than ``min_get`` steps are under way, so that waiting would never end.
            WorkerTimeout: fewer than ``min_get`` ended in time. They stay, and can be received later.
            WorkerError: an environment raised, or its process ended; any environment of the pool, not only those of
                ``env_index``.
        """
        data: TensorDictBase = self._receive(STEP, min_get, env_index, timeout, max_get)
        return data

    def async_step_and_maybe_reset_recv(
        self,
        min_get: int | None = None,
        env_index: Any = None,
        timeout: float | None = None,
        *,
        max_get: int | None = None,
    ) -> tuple[TensorDictBase, TensorDictBase]:
        """Return steps, and the roots to go on from, as ``step_and_maybe_reset`` does. See :meth:`async_step_recv`."""
        data: tuple[TensorDictBase, TensorDictBase] = self._receive(
            STEP_AND_RESET, min_get, env_index, timeout, max_get
        )
        return data

    def _send(self, op: int, tensordict: TensorDictBase | None, env_index: Any) -> None:
        what, work = f"async_{NAMES[op]}_send", self._work
        self._check_usable(what)
        self.start()
        if tensordict is None and op != RESET:
            raise SpecError(f"{what} takes a TensorDict with the actions, found None.")
        if tensordict is not None and not isinstance(tensordict, TensorDictBase):
            raise SpecError(f"{what} takes a TensorDict, found {type(tensordict).__name__}.")
        rows, data = rows_of(tensordict, env_index, self.num_workers, what)
        with uninterrupted(), work.change.lock:
            self._check_usable(what)
            self.in_use.check(what)
            work.check_free(rows, what)
            sent = dict(zip(rows, data, strict=True))
            if op != RESET:
                for row, td in sent.items():
                    self._data.check_action(row, td)
            self.base_state.uses.note()
            failure = work.begin(op, sent, self._data.write)
        self._raise(failure)

    def _receive(self, op: int, min_get: int | None, env_index: Any, timeout: float | None, max_get: int | None) -> Any:
        what, work = f"async_{NAMES[op]}_recv", self._work
        least = self.min_get if min_get is None else min_get
        for name, number in (("min_get", least), ("max_get", least if max_get is None else max_get)):
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                raise SpecError(f"{what}: {name} is a whole number >= 1, found {number!r}.")
        if max_get is not None and max_get < least:
            raise SpecError(f"{what}: max_get must not be below min_get, found {max_get} and {least}.")
        self._check_usable(what)
        asked = None if env_index is None else set(indices_of(env_index, self.num_workers, what))
        taken: dict[int, Job] = {}
        try:
            with uninterrupted(), work.change.lock:  # Ctrl-C comes while it waits, or at the end
                self._check_usable(what)
                rows = work.wait_for(op, asked, least=least, most=max_get, timeout=timeout, check=self._check_usable)
                if rows is not None:
                    taken = {row: work.jobs[row] for row in rows}
                    data = self._data.gather(op, taken, self.device, self.step_mdp)
                    for row in rows:
                        del work.jobs[row]
                    return data
        except BaseException:
            work.put_back(taken)
            raise
        self._raise(work.failure)

    def _raise(self, failure: BaseException | None) -> None:
        """Stop everything and raise, after an error."""
        if failure is None:
            return
        self._work.stop(failure)
        # Threads that end a job need what was held.
        self._stop(PATIENCE_AFTER_FAILURE)
        try:
            raise failure
        finally:
            del failure  # it refers to this frame, and storage should not have to wait for the garbage collector

    # -- life -----------------------------------------------------------------------------------------------------

    def start(self) -> AsyncEnvPool:
        """Make the environments, unless they are there."""
        with self._work.change.lock:
            super().start()
        return self

    def _open(self) -> None:
        super()._open()
        own, masks = self._rows, []
        if own is not None and self._layout.masked:
            masks = [own.storage.tensors[group.reset_key] for group in self.done_groups]
        self._work.backend = self._backend
        self._data = PoolData(own, self._row_actions, masks, self.stack, self._layout.passed_through)

    def check_open(self, what: str) -> None:
        # Every call that is not asynchronous comes by here before it touches data.
        self._check_usable(what)
        work = self._work
        with work.change.lock:
            work.check_free(sorted(work.jobs), what)

    def _check_usable(self, what: str) -> None:
        stopped = self._work.stopped
        if stopped and not self.is_closed:
            raise ClosedError(f"{what}: this pool was {stopped}: close it, make a new one.")
        super().check_open(what)

    def _adopt(self, reports: list[EnvReport]) -> Composite | None:
        size = reports[0].batch_size
        if size:
            raise NotSupported(
                f"Environment 0 is a batch itself, {size}. Give one environment to each row, or use it without a pool "
                "around it."
            )
        if self.stack == "dense":
            layout = BatchLayout(reports)
            if not layout.alike and layout.row is None:
                row, kind = _first_difference(reports)
                raise NotSupported(
                    f"Environments 0 and {row} differ in their {kind} specs, and rows of stack='dense' must not. Make "
                    "the pool with stack='lazy' or stack='maybe_dense'."
                )
        self._row_actions = [action_rules(one.specs["action"], one.specs["done"]) for one in reports]
        return super()._adopt(reports)

    def _stop(self, patience: float | None = None) -> None:
        change = self._work.change
        with change.lock:
            change.notify_all()  # other threads that wait for a result learn that there will be none
        super()._stop(patience)
        vars(self).pop("_data", None)  # it holds storage

    def close(self, *, raise_if_closed: bool = False) -> None:
        super().close(raise_if_closed=raise_if_closed)
        self._work = AsyncWork(self.step_timeout)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name not in _OF_A_START}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._work = AsyncWork(self.step_timeout)

    # -- as any environment ---------------------------------------------------------------------------------------

    @property
    def row_problem(self) -> str | None:
        return f"{type(self).__name__} steps its environments one by one."

    # Another thread may have sent something since these calls were checked first.

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

    @exclusive("set_seed")
    def set_seed(self, seed: int | None = None, static_seed: bool = False) -> int | None:
        self.start()
        self.check_open("set_seed")
        return super().set_seed(seed, static_seed)

    @exclusive("reading an attribute")
    def _ask(self, path: tuple[str, ...], calls: list[Any]) -> list[Any]:
        self.start()
        if path[0] == HAS and self._work.jobs:
            # hasattr is for everyone, of a pool at work too.
            raise AttributeError(f"{path[1]!r} cannot be read while environments are at work: receive first.")
        self.check_open(f"reading {'.'.join(path)}")
        return super()._ask(path, calls)

    def _stacked(self, op: int, tensordict: TensorDictBase | None, rows: list[int] | None = None, *more: Any) -> Any:
        if op != RESET and tensordict is not None and not self._layout.alike:
            # An environment would refuse it too, but that ends the pool.
            for row, td in enumerate(tensordict.unbind(0)):
                if rows is None or row in rows:
                    self._data.check_action(row, td)
        return super()._stacked(op, tensordict, rows, *more)

    def _as_stack(self, data: TensorDictBase) -> TensorDictBase:
        lazy = isinstance(data, LazyStackedTensorDict)
        if self.stack != "maybe_dense" and lazy != (self.stack == "lazy"):
            return stack_as(self.stack, list(data.unbind(0)))
        return data


def _first_difference(reports: list[EnvReport]) -> tuple[int, str]:
    """Which environment is not as the first, and in what."""
    first = reports[0].specs
    return next(
        (row, kind) for row, one in enumerate(reports) for kind, spec in one.specs.items() if spec != first[kind]
    )
