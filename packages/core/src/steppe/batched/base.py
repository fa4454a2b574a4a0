"""BatchedEnv: many environments as one, whichever process they are in."""

from __future__ import annotations

import inspect
import weakref
from typing import Any, ClassVar

import cloudpickle
import torch

from steppe.batched.attributes import HAS, NO_CALL, Dispatched
from steppe.batched.backends.base import Backend
from steppe.batched.backends.in_process import InProcess
from steppe.batched.factories import each_of, factories_of
from steppe.batched.ignored import IGNORED, take_ignored
from steppe.batched.layout import BatchLayout, EnvReport
from steppe.batched.readout import is_host
from steppe.batched.steps import BatchSteps
from steppe.batched.view import BatchView, rows_of_index
from steppe.envs import BaseState, has_class_attribute, next_seed
from steppe.errors import ClosedError, NotSupported, SpecError, StateError
from steppe.specs import SPEC_KINDS, Composite
from steppe.workers import PATIENCE, pickled

__all__ = ["BatchedEnv"]

# What there is from the start on, and not before.
_OF_A_START = frozenset(
    {"_storage", "_flags", "_carried", "_actions", "_root_out", "_next_out", "_layout"}
    | {"_backend", "_finalizer", "_buffered", "_on_arrays", "_read"}
)
# Asked of whatever may be an environment, to learn what it is: a batch is not what its rows are.
_OF_ONE_ENV = frozenset(
    {"row_writer", "row_problem", "step_into", "reset_into", "take_seed", "base_env", "transform", "num_workers"}
)


_MADE_OF = ("_factories", "create_env_fn", "create_env_kwargs")
_VARIADIC = ("self", "kwargs", "ignored")


class BatchedEnv(BatchSteps):
    """``num_workers`` environments as one, batch size ``[num_workers, *batch size of the environments]``.

    Environments are made at the first use (or by ``start``). Each writes its row of one storage; what a caller gets is
    a copy, and never changes. Environments whose data has no fixed place (text, sizes that vary) exchange rows as
    TensorDicts instead: slower, and the same data.

    Attributes and methods of the environments are reached through the batch: ``a, b = env.g`` reads ``g`` of two
    environments, ``env.render()`` calls a method of each.

    Args:
        num_workers: how many environments.
        create_env_fn: an id, a callable that makes an environment, an :class:`EnvCreator`, or a list of these, one for
            each environment. Unequal specs are stacked, and data of unequal shapes too, lazily.
        create_env_kwargs: keyword arguments for the factory, one dict or a list of them.
        device: where data comes out.
        **ignored: arguments of TorchRL's batches that only choose how (``shared_memory``, ``use_buffers``, ...): taken,
            with a warning for each that says what is done, and readable as attributes.

    Attributes:
        create_env_fn: what makes each environment, a list.
        create_env_kwargs: its arguments, a list of dicts.

    Raises:
        SpecError: a number or a factory is wrong.
        TypeError: there is no such argument.
        NotSupported: the environments have different batch sizes.
    """

    _backend: Backend
    create_env_fn: list[Any]
    create_env_kwargs: list[dict[str, Any]]

    #: Arguments without an effect: name to (value that is read, what is done).
    _ignored: ClassVar[dict[str, tuple[Any, str]]] = IGNORED

    steps_others = True

    def __init__(
        self, num_workers: int, create_env_fn: Any, *, create_env_kwargs: Any = None, device: Any = None, **ignored: Any
    ) -> None:
        known = [*inspect.signature(type(self).__init__).parameters, "create_env_kwargs", "device"]
        given = take_ignored(type(self), ignored, self._ignored, [name for name in known if name not in _VARIADIC])
        if isinstance(num_workers, bool) or not isinstance(num_workers, int) or num_workers < 1:
            raise SpecError(f"num_workers is a whole number >= 1, found {num_workers!r}.")
        super().__init__(batch_size=(num_workers,), device=device)
        functions, arguments = each_of(create_env_fn, num_workers, create_env_kwargs)
        self.__dict__["_factories"] = factories_of(functions, arguments)
        self.__dict__["create_env_fn"], self.__dict__["create_env_kwargs"] = functions, arguments
        self.__dict__["num_workers"] = num_workers
        self.__dict__["_running"] = False
        self.__dict__["_given"] = given
        self.__dict__["_device_asked_for"] = self.base_state.device

    # -- who steps the environments -------------------------------------------------------------------------------

    def _make_backend(self) -> Backend:
        """Make the environments, where the class has them stepped."""
        raise NotImplementedError

    def _open(self) -> None:
        backend = self._make_backend()
        state = self.__dict__
        state["_backend"] = backend
        if backend.outlives:
            state["_finalizer"] = weakref.finalize(self, backend.stop, self._patience)
        try:
            row = self._adopt(backend.reports)
            if row is not None:
                # What goes to a device goes there as one block.
                self._use(*backend.attach(row, self.num_workers, staged=not is_host(self.device)))
        except BaseException:
            self._stop()
            raise

    @property
    def _patience(self) -> float:
        """Seconds that environments may take to close."""
        return PATIENCE

    def _run(self, op: int, rows: list[int] | None) -> int:
        try:
            return self._backend.run(op, rows)
        except BaseException:
            self._after_error()
            raise

    def _exchange(self, op: int, data: dict[int, Any]) -> dict[int, Any]:
        try:
            return self._backend.exchange(op, data)
        except BaseException:
            self._after_error()
            raise

    def _ask(self, path: tuple[str, ...], calls: list[Any]) -> list[Any]:
        self.start()
        self._backend.check(self)
        return self._backend.ask(path, calls)

    def _seed_rows(self, seeds: dict[int, Any]) -> None:
        self._backend.check(self)
        self._backend.seed(seeds)

    def check_open(self, what: str) -> None:
        super().check_open(what)
        backend = self.__dict__.get("_backend")
        if backend is not None:
            backend.check(self)

    def _after_error(self) -> None:
        if self._backend.stopped:
            self._stop()

    def _stop(self, patience: float | None = None) -> None:
        """Close the environments. The backend stays until ``close``, to say that it was stopped."""
        backend = self.__dict__.get("_backend")
        if backend is None:
            return
        finalizer = self.__dict__.pop("_finalizer", None)
        if finalizer is not None:
            finalizer.detach()
        if not backend.stopped:
            backend.stop(self._patience if patience is None else patience)
        self._forget_storage()

    def close(self, *, raise_if_closed: bool = False) -> None:
        super().close(raise_if_closed=raise_if_closed)
        self._stop()
        self.__dict__.pop("_backend", None)

    # -- the environments' own attributes -------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name in self._ignored:
                return self.__dict__.get("_given", {}).get(name, self._ignored[name][0])
            if name.startswith("_") or name in _OF_ONE_ENV or "_running" not in vars(self) or self.is_closed:
                raise
            if has_class_attribute(self, name):
                raise
        try:
            there = all(self._ask((HAS, name), [None] * self.num_workers))
        except ClosedError as error:
            # hasattr is for everyone, of a batch that failed too.
            raise AttributeError(f"{name!r} cannot be read: {error}") from error
        if not there:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}, and neither have its environments.")
        return Dispatched(self, (name,))

    # -- rows -----------------------------------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> BatchView:
        """Some rows of the batch, as a batch that is stepped by the same workers; ``batch[1]`` is a batch of one.

        Args:
            index: a row, a slice, a list or tensor of rows, or a mask ``[num_workers]``.

        Raises:
            IndexError: there is no such row.
        """
        return BatchView(self, index)

    def __setitem__(self, index: Any, source: Any) -> None:
        """Put environments into the state of others: each row does ``env[:] = other``.

        Args:
            index: rows, as for reading.
            source: an environment for each row: one, a list of them, or a SerialEnv.

        Raises:
            NotSupported: the environments do not define ``__setitem__``, or ``source`` is a ParallelEnv, whose
                environments are in other processes.
            SpecError: there are more or fewer of them than rows.
            IndexError: there is no such row.
        """
        self.check_open("env[i] = other")
        rows = rows_of_index(index, self.num_workers)
        others = self._sources(source)
        if len(others) != len(rows):
            raise SpecError(f"{len(rows)} rows need as many environments, found {len(others)}.")
        able = self._ask((HAS, "__setitem__"), [None] * self.num_workers)
        if not all(able[row] for row in rows):
            raise NotSupported(
                "env[i] = other needs environments whose class defines __setitem__(slice(None), other), which copies "
                "the state of the other. Without it use load_state_dict, or reset to a state."
            )
        calls: list[Any] = [NO_CALL] * self.num_workers
        for row, other in zip(rows, others, strict=True):
            calls[row] = ((slice(None), other), {})
        self._ask(("__setitem__",), calls)

    def _sources(self, source: Any) -> list[Any]:
        if isinstance(source, (list, tuple)):
            return list(source)
        if isinstance(source, BatchedEnv):
            source.start()
            if not isinstance(source._backend, InProcess):
                raise NotSupported("The environments of a ParallelEnv are in other processes: use a SerialEnv.")
            return list(source._backend.envs)
        return [source]

    def __len__(self) -> int:
        return self.num_workers

    # -- state ----------------------------------------------------------------------------------------------------

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """``{"worker0": state_dict of environment 0, ...}``.

        Those of environments are as in any ``nn.Module``: parameters, buffers, and for a TransformedEnv what its
        transforms hold. What an environment keeps in other attributes (a simulator, a counter, a generator) is not in
        them, so that for most the dicts are empty: to have it there, register it as a buffer, or define
        ``get_extra_state`` and ``set_extra_state`` in the environment's class.
        """
        calls = [(args, kwargs)] * self.num_workers
        return {f"worker{row}": state for row, state in enumerate(self._ask(("state_dict",), calls))}

    def load_state_dict(self, state_dict: dict[str, Any], *args: Any, **kwargs: Any) -> None:  # type: ignore[override]
        """Restore what ``state_dict`` returned; or the state of one environment, in all.

        Raises:
            SpecError: the rows of the state are not those of the batch.
        """
        names = [f"worker{row}" for row in range(self.num_workers)]
        if any(str(key).startswith("worker") for key in state_dict):
            if set(state_dict) != set(names):
                raise SpecError(f"A state of {self.num_workers} environments is needed, found {sorted(state_dict)}.")
            states = [state_dict[name] for name in names]
        else:
            states = [state_dict] * self.num_workers
        self._ask(("load_state_dict",), [((state, *args), kwargs) for state in states])

    def __getstate__(self) -> dict[str, Any]:
        """A batch travels as it was before its start, and is started anew where it arrives."""
        state = {name: value for name, value in super().__getstate__().items() if name not in _OF_A_START}
        before: BaseState = state["base_state"]
        before.batch_size, before.device = torch.Size((self.num_workers,)), self._device_asked_for
        before.specs, before.env_info_spec, before.validated = {}, None, set()
        state["_running"] = False
        state["_made_of"] = pickled({name: state.pop(name) for name in _MADE_OF})
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({**state, **cloudpickle.loads(state.pop("_made_of"))})

    def __repr__(self) -> str:
        started = f"batch_size={tuple(self.batch_size)}, device={self.device}" if self._running else "not started"
        return f"{type(self).__name__}({self.num_workers} environments, {started})"

    # -- life and specs -------------------------------------------------------------------------------------------

    def start(self) -> BatchedEnv:
        """Make the environments, unless they are there."""
        if not self._running:
            self.check_open("start")
            self.__dict__["_running"] = True
            try:
                self._open()
            except BaseException:
                self.__dict__["_running"] = False
                raise
        return self

    def update_kwargs(self, kwargs: Any) -> None:
        """Change arguments of the factories: one dict for all, or a list with one for each. Before the start only.

        Raises:
            StateError: the environments have been made.
            SpecError: the list has another length.
        """
        self._check_not_started("update_kwargs")
        _, new = each_of(self.create_env_fn, self.num_workers, kwargs)
        arguments = [{**old, **more} for old, more in zip(self.create_env_kwargs, new, strict=True)]
        self.__dict__["_factories"] = factories_of(self.create_env_fn, arguments)
        self.__dict__["create_env_kwargs"] = arguments

    def _check_not_started(self, what: str) -> None:
        if self._running:
            raise StateError(
                f"{what} comes before the first use: these environments are made already. Make a new batch."
            )

    @property
    def _is_described(self) -> bool:  # type: ignore[override]
        return bool(self.__dict__.get("_running", True)) or self.is_closed

    @property
    def batch_size(self) -> torch.Size:
        """``[num_workers]``, and the environments' own batch size behind it. Makes the environments, if need be."""
        if not self._is_described:
            self.start()
        return self.base_state.batch_size

    @batch_size.setter
    def batch_size(self, value: Any) -> None:
        raise NotSupported("The batch size of a batch is the number of its environments and theirs.")

    @property
    def device(self) -> torch.device | None:
        """Where data comes out: as asked for, otherwise where all environments are. Makes these, if need be."""
        if self.base_state.device is None and not self._is_described:
            self.start()
        return self.base_state.device

    @property
    def supports_set_state(self) -> bool:
        """Whether all environments can begin at the state in their data. Makes them, if need be."""
        if not self._is_described:
            self.start()
        return self._supports_set_state

    @property
    def env_info_spec(self) -> Composite:
        """What ``reset(env_info=...)`` may be given for each row, as the environments say."""
        if not self._is_described:
            self.start()
        spec = self.base_state.env_info_spec
        return spec if spec is not None else Composite({}, shape=self.batch_size)

    @env_info_spec.setter
    def env_info_spec(self, spec: Composite) -> None:
        self.base_state.env_info_spec = spec

    def to(self, device: Any) -> BatchedEnv:
        """Let data come out on ``device`` from now on; the environments stay where they are."""
        if not self._running:
            self.base_state.device = torch.device(device)
            return self
        super().to(device)
        if self.storage is not None:
            self._make_readouts()
        return self

    def _full_spec(self, kind: str) -> Composite:
        if kind not in self.base_state.specs:
            self.start()
        return self.base_state.specs[kind]

    def _adopt(self, reports: list[EnvReport]) -> Composite | None:
        """Take over what the environments say; the spec of a row of storage, None where data travels in messages."""
        layout = BatchLayout(reports)
        state = self.__dict__
        self.base_state.batch_size = torch.Size((self.num_workers, *layout.size))
        if self.base_state.device is None:
            self.base_state.device = layout.device
        for kind in SPEC_KINDS:
            self.assign_spec(kind, layout.specs[kind])
        self.env_info_spec = layout.env_info
        state["_layout"] = layout
        state["_buffered"] = layout.row is not None
        state["_on_arrays"] = all(one.carried is not None for one in reports)
        state["_read"] = list(dict.fromkeys(key for one in reports for key in one.carried or ()))
        state["_supports_set_state"] = all(one.supports_set_state for one in reports)
        return layout.row

    def set_seed(self, seed: int | None = None, static_seed: bool = False) -> int | None:
        self.start()
        self.seed_actions(seed)
        return self._seed_chain(list(range(self.num_workers)), seed, static_seed)

    def _seed_chain(self, rows: list[int], seed: int | None, static_seed: bool) -> int | None:
        """Seed rows one after another, each with the seed that follows; returns the next one."""
        seeds: dict[int, Any] = {}
        for row in rows:
            seeds[row] = seed
            seed = seed if static_seed or seed is None else next_seed(seed)
        self._seed_rows(seeds)
        return seed
