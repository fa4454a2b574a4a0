"""BatchedEnv: the base class of batches of environments, in this process, in worker processes or in threads."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import cloudpickle
import torch
from tensordict import NestedKey, TensorDict, TensorDictBase

from steppe.batched.attributes import HAS, assign, dispatched
from steppe.batched.backends.base import Backend
from steppe.batched.batch_layout import BatchLayout, EnvReport
from steppe.batched.batch_writer import BatchWriter
from steppe.batched.factories import each_of, factories_of
from steppe.batched.ignored import IGNORED, take_ignored
from steppe.batched.loose_entries import LooseEntries
from steppe.batched.operations import RESET, RESET_BY_MASKS, RESET_ON_DATA, STEP, STEP_AND_RESET
from steppe.batched.storage_rows import BatchRows, rows_of_masks
from steppe.batched.unbuffered import Messages, stack_rows
from steppe.batched.view import BatchView
from steppe.envs import (
    BaseState,
    EnvBase,
    RowLayout,
    env_info_values,
    next_seed,
    no_layout_reason,
    put_actions,
    spread_seed,
    write_begun,
    written_by_policy,
)
from steppe.errors import ArgumentError, ClosedError, NotSupported, SpecError, StateError
from steppe.specs import SPEC_KINDS, Composite, is_host
from steppe.storage import Storage, entries
from steppe.workers import SHUTDOWN_TIMEOUT, InUse, exclusive, pickled

__all__ = ["BatchedEnv"]

# Attributes that exist only after `start()`.
_OF_A_START = frozenset({"_rows", "_loose", "_messages", "_layout", "_on_arrays", "_backend", "_finalizer"})
# Attributes of single environments that other code looks up on a batch too; never forwarded to the environments.
_OF_ONE_ENV = frozenset(
    {
        "row_writer",
        "no_row_writer_reason",
        "make_row_writer",
        "step_into",
        "bind_step",
        "reset_into",
        "take_seed",
        "base_env",
        "transform",
        "num_workers",
    }
)


_MADE_OF = ("_factories", "create_env_fn", "create_env_kwargs")
_VARIADIC = ("self", "kwargs", "ignored")


class BatchedEnv(EnvBase):
    """``num_workers`` environments as one, batch size ``[num_workers, *batch size of the environments]``.

    Environments are made at the first use (or by ``start``). Each writes its row of one storage. The data that a caller
    gets is a copy and never changes. Text and entries of varying size are sent beside the storage when they change. If
    the shapes of specs differ between environments, their rows are sent as TensorDicts: slower, and the same data.

    The batch forwards attributes and methods: ``a, b = env.g`` reads ``g`` of two environments, ``env.g = 3.0`` sets it
    in each, ``env.g = [3.0, 4.0]`` sets a value in each, and ``env.render()`` calls a method of each.

    A class of batches defines ``_make_backend``. It may override ``_lay_out`` to refuse environments, ``_opened`` to
    prepare for steps, ``check_open`` to refuse calls, ``_stacked`` to validate the data of messages, and ``_stop``
    to drop calls that are under way.

    Args:
        num_workers: how many environments; ``num_envs`` is another name of this argument.
        create_env_fn: an id, a callable that makes an environment, an :class:`EnvCreator`, or a list of these, one for
            each environment. Unequal specs are stacked, and data of unequal shapes too, lazily.
        create_env_kwargs: keyword arguments for the factory, one dict or a list of them.
        device: device of the data that the batch returns.
        **ignored: arguments of TorchRL's batches without an effect on results (``shared_memory``, ``use_buffers``,
            ...). Each gives a warning that says what steppe does instead, and can be read as an attribute.

    Attributes:
        create_env_fn: the factory of each environment, a list.
        create_env_kwargs: the arguments of each factory, a list of dicts.
        in_use: the thread that uses the batch. Another thread gets a StateError; ``close`` waits for the thread.

    Raises:
        ArgumentError: ``num_workers`` or a factory is wrong.
        TypeError: an argument does not exist.
        NotSupported: the environments have different batch sizes.
    """

    create_env_fn: list[Any]
    create_env_kwargs: list[dict[str, Any]]
    num_workers: int

    #: Whether gradients can pass through the environments, because they are in this process.
    _differentiable = False
    _running = True  # while __init__ runs, so that nothing starts the batch
    # Set by start():
    _backend: Any = None  # of steppe.batched.backends
    _finalizer: weakref.finalize[Any, Any] | None = None
    _rows: BatchRows | None = None  # None if specs differ from row to row: data then travels in messages
    _loose: LooseEntries  # entries that storage has no place for
    _messages: Messages
    _layout: BatchLayout
    _on_arrays: bool

    #: Arguments without an effect: name to (value when read, what steppe does instead).
    _ignored: ClassVar[dict[str, tuple[Any, str]]] = IGNORED

    steps_others = True
    makes_its_envs = True

    def __init__(
        self,
        num_workers: int | None = None,
        create_env_fn: Any = None,
        *,
        num_envs: int | None = None,
        create_env_kwargs: Any = None,
        device: Any = None,
        **ignored: Any,
    ) -> None:
        known = [*inspect.signature(type(self).__init__).parameters, "create_env_kwargs", "device", "num_envs"]
        ignored_values = take_ignored(
            type(self), ignored, self._ignored, [name for name in known if name not in _VARIADIC]
        )
        name = type(self).__name__
        if num_envs is not None and num_workers is not None:
            raise TypeError(f"{name}: num_workers and num_envs are names of one argument, pass one of them.")
        num_workers = num_envs if num_workers is None else num_workers
        if num_workers is None or create_env_fn is None:
            raise TypeError(f"{name} needs the number of environments and what makes one: {name}(4, make_env).")
        if isinstance(num_workers, bool) or not isinstance(num_workers, int) or num_workers < 1:
            raise ArgumentError(f"num_workers is a whole number >= 1, found {num_workers!r}.")
        super().__init__(batch_size=(num_workers,), device=device)
        functions, arguments = each_of(create_env_fn, num_workers, create_env_kwargs)
        self._factories = factories_of(functions, arguments)
        self.create_env_fn, self.create_env_kwargs = functions, arguments
        self.num_workers = num_workers
        self.in_use = InUse(name)
        self._given = ignored_values
        self._device_asked_for = self.base_state.device
        self._running = False

    def no_rows_reason(self) -> str | None:
        """Return why the rows of its storage cannot be written by one writer; None if they can."""
        if self.is_closed:
            return "it is closed."
        self.start()
        if self._rows is None:
            return "its data has no fixed layout, and travels in messages."
        if not self._layout.alike:
            return "its environments have different specs."
        if self._layout.size:
            return "its environments are batches themselves."
        if self.state_keys and not self._on_arrays:
            return "an environment takes a state."
        if self._layout.makes_roots:
            return f"an environment overrides {min(self._layout.makes_roots)}."
        return no_layout_reason(self)

    def make_row_writer(self) -> BatchWriter:
        """Make the row writer of all environments, which write the rows of the batch's storage."""
        assert self._rows is not None
        reports = self._backend.reports
        # An environment on TensorDicts may read every entry of its root.
        read = [] if self._on_arrays else [*self.observation_keys, *self.done_keys]
        layout = RowLayout.of(
            self,
            root_inputs=tuple(dict.fromkeys([*read, *(key for report in reports for key in report.root_inputs or ())])),
            copied_to_next=tuple(dict.fromkeys(key for report in reports for key in report.copied_to_next)),
            reads_root=any(report.reads_root for report in reports),
            flags_every_step=any(report.flags_every_step for report in reports),
        )
        return BatchWriter(self, self._backend, self._rows, layout, on_arrays=self._on_arrays)

    def _finish_construction(
        self, *, auto_reset: bool | None = None, auto_reset_replace: bool | None = None, **options: Any
    ) -> Any:
        reset_options = {"auto_reset": auto_reset, "auto_reset_replace": auto_reset_replace}
        reset_options = {name: value for name, value in reset_options.items() if value is not None}
        if self.base_state.constructed and reset_options:
            # A class of single environments has made this batch, and the arguments are for each of them.
            self.update_kwargs(reset_options)
            reset_options = {}
        return super()._finish_construction(**reset_options, **options)

    # -- the backend ---------------------------------------------------------------------------------------------

    def _make_backend(self, factories: list[Callable[[], Any]]) -> Backend:
        """Make the backend of this class, which makes the environments."""
        raise NotImplementedError

    def _lay_out(self, reports: list[EnvReport]) -> BatchLayout:
        """Return the layout that follows from the reports of the environments, or raise an error to refuse them."""
        return BatchLayout(reports)

    def _opened(self, layout: BatchLayout, rows: BatchRows | None) -> None:
        """Prepare a subclass for steps, once the environments are made.

        Args:
            layout: the layout of the batch.
            rows: the rows of its storage; None if data travels in messages.
        """

    @exclusive("start")
    def _open(self) -> None:
        backend = self._backend = self._make_backend(self._factories)
        if backend.outlives:
            self._finalizer = weakref.finalize(self, backend.stop, self._shutdown_timeout)
        try:
            self._attach(backend)
        except BaseException:
            self._stop()
            raise

    def _attach(self, backend: Backend) -> None:
        """Make the storage that the environments write."""
        layout = self._lay_out(backend.reports)
        self._adopt(layout, backend.reports)
        if layout.row is not None:
            # Data for a device is copied there as one block.
            storage, flags = backend.attach(layout.row, self.num_workers, staged=not is_host(self.device))
            # Array environments declare which entries of the root they read; others may read all of them.
            read = [key for report in backend.reports for key in report.root_inputs or ()] if self._on_arrays else None
            self._rows = BatchRows(self, storage, flags, read)
            self._loose = LooseEntries(layout.loose, self.num_workers, on_arrays=self._on_arrays)
        self._opened(layout, self._rows)

    @exclusive("infer_env_info")
    def infer_env_info(self, values: Mapping[str, object]) -> Composite:
        """Let the environments infer ``env_info_spec``. If it changes, the batch makes new storage for all rows."""
        infos = self._ask(("infer_env_info",), [((values,), {})] * self.num_workers)
        reports = [replace(report, env_info=info) for report, info in zip(self._backend.reports, infos, strict=True)]
        if reports != self._backend.reports:
            self._backend.reports = reports
            self._attach(self._backend)
        return self.env_info_spec

    @property
    def _shutdown_timeout(self) -> float:
        """Seconds that the environments have to close."""
        return SHUTDOWN_TIMEOUT

    def _run(
        self, op: int, rows: list[int] | None, inputs: TensorDictBase | None = None, at: list[int] | None = None
    ) -> int:
        """Carry out an operation on rows of storage; returns how many rows were reset.

        Args:
            op: the operation.
            rows: which rows; None for all.
            inputs: the data that the operation reads loose entries of, ``[n]`` or of the rows ``at``.
            at: the rows of ``inputs``; None for all.
        """
        self.base_state.uses.note()
        loose = self._loose
        try:
            changed = loose.changed_inputs(inputs, at) if inputs is not None else {}
            if changed:
                self._backend.call("set_loose", changed)
            n_reset: int = self._backend.run(op, rows)
            if loose.next_keys:
                assert self._rows is not None
                reported = self._rows.flags.loose.nonzero()[0].tolist()
                loose.update(self._backend.call("take_loose", dict.fromkeys(reported)) if reported else {})
        except BaseException as error:
            self.after_error(error)
            raise
        return n_reset

    @exclusive("reading an attribute")
    def _ask(self, path: tuple[str, ...], calls: list[Any], rows: list[int] | None = None) -> list[Any]:
        """Read or call an attribute in some environments, all by default; see :func:`ask_row`."""
        self.start()
        self.check_open(f"reading {'.'.join(path)}")
        parts = dict(zip(range(self.num_workers) if rows is None else rows, calls, strict=True))
        values: dict[int, Any] = self._backend.call("ask", parts, path)
        return [values[row] for row in parts]

    def check_open(self, what: str) -> None:
        super().check_open(what)
        if self._backend is not None:
            self._backend.check(type(self).__name__)

    def after_error(self, error: BaseException) -> None:
        """Close the batch if the error has stopped its backend; raise ClosedError if another thread has closed it."""
        if self._backend is not None and self._backend.stopped:
            self._stop()
        if self.is_closed and isinstance(error, Exception):
            raise ClosedError(f"This {type(self).__name__} was closed by another thread while it ran.") from error

    def _stop(self, timeout: float | None = None) -> None:
        """Close the environments. The backend is kept until ``close``, so that errors can say that it was stopped."""
        backend = self._backend
        if backend is None:
            return
        if self._finalizer is not None:
            self._finalizer.detach()
            self._finalizer = None
        if not backend.stopped:
            backend.stop(self._shutdown_timeout if timeout is None else timeout)
        self._rows = None
        self.row_writer_changed()

    def close(self, *, raise_if_closed: bool = False) -> None:
        """Close the environments and end their workers. Calling it again does nothing.

        If another thread is in a step, ``close`` waits for the end of the step. If the step takes too long (5 s, or
        ``shutdown_timeout``) and workers take it, they are killed, and the other thread gets a ClosedError.

        Args:
            raise_if_closed: raise an error if the batch is closed already.

        Raises:
            ClosedError: the batch is closed already and ``raise_if_closed`` is set.
            StateError: another thread is in a step of an environment of this process, which does not return. Call
                ``close`` again after the step.
        """
        super().close(raise_if_closed=raise_if_closed)
        in_use, backend = self.in_use, self._backend
        if backend is None:
            return
        with in_use.alone("close", self._shutdown_timeout, force=backend.kill) as alone:
            if not alone:
                in_use.check("close")
            self._stop()
            self._backend = None

    # -- steps and resets -----------------------------------------------------------------------------------------

    def _wants_gradients(self, tensordict: TensorDictBase) -> bool:
        """Whether a step must keep the graph of its inputs, which is lost in storage."""
        if not self._differentiable or self._on_arrays or not torch.is_grad_enabled():
            return False
        return self._rows is not None and self._rows.require_grad(tensordict)

    @exclusive("step")
    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        self.start()
        mask: Any = tensordict.get("_step", None)
        rows = None if mask is None else rows_of_masks([mask])
        batch_rows = self._rows
        following: TensorDictBase
        if batch_rows is None or self._wants_gradients(tensordict):
            following, _ = self._stacked(STEP, tensordict, rows)
            return following
        batch_rows.write_checked_action(tensordict)
        batch_rows.write_root_inputs(tensordict)
        if mask is not None and self._layout.masked:
            batch_rows.storage.tensors["_step"].copy_(mask)
        self._run(STEP, rows, tensordict)
        following = self._loose.add_next(batch_rows.next_out.build(batch_rows.next_out.take()))
        return self._with_written(tensordict, following)

    def _with_written(self, tensordict: TensorDictBase, following: TensorDictBase) -> TensorDictBase:
        """Add the recurrent state that a policy has written under ``next`` to ``following``."""
        keys = self._layout.passed_through
        written = written_by_policy(tensordict, keys) if keys else None
        return following if written is None else following.update(written)

    @exclusive("reset")
    def _reset(
        self,
        tensordict: TensorDictBase | None = None,
        *,
        list_of_kwargs: Any = None,
        select_reset_only: bool = False,
        **kwargs: Any,
    ) -> TensorDictBase:
        self.start()
        masks = self.requested_masks(tensordict) if tensordict is not None else {}
        # If there is a mask at the root, it decides which rows are reset.
        deciding = [masks[()]] if () in masks else list(masks.values())
        rows = rows_of_masks(deciding) if masks else list(range(self.num_workers))
        batch_rows = self._rows
        hidden = {"select_reset_only": True} if select_reset_only and batch_rows is None else {}
        arguments = self._reset_arguments(list_of_kwargs, {**kwargs, **hidden})
        root: TensorDictBase
        if batch_rows is None or arguments is not None:
            _, root = self._stacked(RESET, tensordict, rows, arguments)
            if batch_rows is not None and batch_rows.root_inputs and rows:
                batch_rows.write_root_inputs(root[rows], rows)
            return root
        batch_rows.write_info(None if tensordict is None else tensordict.get("env_info", None), rows, whole=not masks)
        known = False
        if not self._on_arrays and not select_reset_only and tensordict is not None:
            known = any(tensordict.get(key, None) is not None for key, _, _ in batch_rows.root_inputs)
            if known and not (batch_rows.write_root_inputs(tensordict) and self._loose.is_complete(tensordict)):
                _, root = self._stacked(RESET, tensordict, rows)
                return root
        by_masks = self._layout.masked and (known or bool(masks))
        if by_masks:
            batch_rows.write_masks(masks)
        op = RESET_ON_DATA if known else RESET_BY_MASKS if by_masks else RESET
        self._run(op, rows, tensordict if known else None)
        return self._loose.add_root(batch_rows.root_out.build(batch_rows.root_out.take()))

    def _reset_arguments(self, each: Any, shared: dict[str, Any]) -> list[dict[str, Any]] | None:
        if each is None:
            return [shared] * self.num_workers if shared else None
        each = list(each)
        if len(each) != self.num_workers:
            raise ArgumentError(
                f"list_of_kwargs needs {self.num_workers} dicts, one for each environment, found {len(each)}."
            )
        return [{**shared, **(row_arguments or {})} for row_arguments in each]

    @exclusive("step_and_maybe_reset")
    def _step_and_maybe_reset(self, tensordict: TensorDictBase) -> tuple[TensorDictBase, TensorDictBase]:
        # For environments without row steps: on TensorDicts, on a device, with states, groups of agents or text.
        self.check_open("step_and_maybe_reset")
        root_entries = entries(tensordict) if type(tensordict) is TensorDict else tensordict.keys()
        checks = self.run_type_checks or not self.is_validated("step")
        if "_step" in root_entries or ((checks or "next" in root_entries) and not self.start()._layout.makes_roots):
            return super()._step_and_maybe_reset(tensordict)
        batch_rows = self._rows
        if batch_rows is None or self._wants_gradients(tensordict):
            self.check_action(tensordict)
            following, root = self._stacked(STEP_AND_RESET, tensordict)
            if checks:
                self.complete_and_validate(following, tensordict)
            return self.put_next(tensordict, following), root
        loose = self._loose
        if loose.actions:
            self.check_action(tensordict)
        batch_rows.write_inputs(tensordict)
        n_reset = self._run(STEP_AND_RESET, None, tensordict)
        flat = batch_rows.next_out.take()
        following = self._with_written(tensordict, loose.add_next(batch_rows.next_out.build(flat)))
        if checks:
            self.complete_and_validate(following, tensordict)
        self.put_next(tensordict, following)
        root = self.step_plan(tensordict) if self._layout.makes_roots else self.step_mdp(tensordict)
        if n_reset:
            root = write_begun(root, batch_rows.root_out.begun(flat, batch_rows.flags.was_reset))
            root = loose.add_root(root, keys=loose.reset_keys)
        return tensordict, root

    @property
    def overridden_methods(self) -> frozenset[str]:
        """See :attr:`EnvBase.overridden_methods`. Makes the environments if necessary."""
        self._described()
        return self.own_overrides | self._layout.overridden

    def step_mdp(self, next_tensordict: TensorDictBase) -> TensorDictBase:
        """See :meth:`EnvBase.step_mdp`. Environments that override it are called, one after another."""
        if not self._running or "step_mdp" not in self._layout.makes_roots:
            return super().step_mdp(next_tensordict)
        return self._roots_of(list(range(self.num_workers)), next_tensordict)

    def _roots_of(self, rows: list[int], next_tensordict: TensorDictBase) -> TensorDictBase:
        """Return the next roots of some environments, ``[k]``, each made by its own ``step_mdp``."""
        if next_tensordict.batch_size[:1] != (len(rows),):
            raise NotSupported(
                f"An environment overrides step_mdp, which is called with the data of its own environment: "
                f"data of {len(rows)} environments is needed, found batch size {tuple(next_tensordict.batch_size)}."
            )
        calls: list[Any] = [((row.to("cpu") if row.device else row,), {}) for row in next_tensordict.unbind(0)]
        roots = stack_rows(self._ask(("step_mdp",), calls, rows))
        return roots if self.device is None else roots.to(self.device)

    @exclusive("step_at")
    def step_at(self, tensordict: TensorDictBase, rows: Any) -> TensorDictBase:
        self.start()
        index = self.checked_rows(rows, "step_at")
        batch_rows = self._rows
        if batch_rows is None or not index.numel() or not self.is_validated("step") or self.run_type_checks:
            return super().step_at(tensordict, rows)
        self.check_open("step_at")
        at = index.numpy()
        if self._loose.actions:
            self.check_action(tensordict, rows=index)
        batch_rows.write_inputs(tensordict, at)
        if self._layout.masked:
            batch_rows.storage.tensors["_step"][index] = True
        numbers = at.tolist()
        self._run(STEP, numbers, tensordict, numbers)
        following = self._loose.add_next(batch_rows.next_out.some(at), numbers)
        return self.put_next(tensordict, self._with_written(tensordict, following))

    @exclusive("reset_at")
    def reset_at(self, tensordict: TensorDictBase | None, rows: Any, *, env_info: Any = None) -> TensorDictBase:
        self.start()
        index = self.checked_rows(rows, "reset_at")
        batch_rows = self._rows
        # Resets that depend on data, and the first reset, which is validated, take the general path with masks.
        if (
            batch_rows is None
            or not index.numel()
            or self._layout.masked
            or not self.is_validated("reset")
            or (batch_rows.root_inputs and tensordict is not None and not tensordict.is_empty())
        ):
            return super().reset_at(tensordict, rows, env_info=env_info)
        self.check_open("reset_at")
        at = index.numpy()
        if env_info is not None:
            batch_rows.write_info(env_info_values(self, env_info, rows=len(at)), at.tolist(), whole=True)
        self._run(RESET, at.tolist())
        fresh = self._loose.add_root(batch_rows.root_out.some(at), at.tolist())
        return fresh if tensordict is None else tensordict.update(fresh)

    def _stacked(
        self,
        op: int,
        tensordict: TensorDictBase | None,
        rows: list[int] | None = None,
        arguments: list[dict[str, Any]] | None = None,
    ) -> tuple[Any, Any]:
        """Step or reset rows with messages; return ``next`` and the following root."""
        messages = self._messages.to_envs(tensordict, rows, arguments)
        # If an environment refuses the arguments of a reset, the batch stays usable.
        survives = any(kwargs.keys() - {"select_reset_only"} for _, kwargs in messages.values())
        self.base_state.uses.note()
        try:
            answers = self._backend.call("exchange", messages, op, is_step=True, survives=survives)
        except BaseException as error:
            self.after_error(error)
            raise
        following, root = (
            part if part is None or self.device is None else part.to(self.device)
            for part in self._messages.from_envs(answers)
        )
        return following, root

    @property
    def storage(self) -> Storage | None:
        """Storage with root and ``("next", ...)`` rows ``[num_workers]`` of the last step; None before the start.

        It holds actions only if workers, or a transform around the batch, read them there.
        """
        return None if self._rows is None else self._rows.storage

    # -- random actions -------------------------------------------------------------------------------------------

    @property  # type: ignore[misc]
    def action_masks(self) -> Mapping[NestedKey, NestedKey]:
        """The masks of the environments' actions, see :attr:`EnvBase.action_masks`."""
        return self.start()._layout.action_masks

    @property
    def _draws_inside(self) -> bool:
        return any(report.chooses_random_actions for report in self.start()._backend.reports)

    def _drawn_inside(self, tensordict: TensorDictBase | None, rows: torch.Tensor | None) -> TensorDictBase:
        actions = self._chosen(list(range(self.num_workers)) if rows is None else rows.tolist(), tensordict)
        if tensordict is None:
            return actions
        return put_actions(self, tensordict, actions) if rows is None else tensordict.update(actions)

    def _chosen(self, rows: list[int], tensordict: TensorDictBase | None) -> TensorDictBase:
        """Return the random actions of some environments, ``[k]``, each drawn by its own ``rand_action``.

        Args:
            rows: the environments.
            tensordict: their data ``[k]``, or None.
        """
        row_data = [None] * len(rows) if tensordict is None else tensordict.unbind(0)
        calls: list[Any] = [((self._messages.to_env(td),), {}) for td in row_data]
        drawn = []
        for row, answer in zip(rows, self._ask(("rand_action",), calls, rows), strict=True):
            keys = self._backend.reports[row].specs["action"].keys(include_nested=True, leaves_only=True)
            action = answer.select(*keys)
            drawn.append(action if self.device is None else action.to(self.device))
        return stack_rows(drawn)

    # -- attributes of the environments --------------------------------------------------------------------------

    def find_elsewhere(self, name: str) -> Any:
        if name in self._ignored:
            return vars(self).get("_given", {}).get(name, self._ignored[name][0])
        if name.startswith("_") or name in _OF_ONE_ENV or "_running" not in vars(self) or self.is_closed:
            return super().find_elsewhere(name)
        return dispatched(self, name)

    def set_elsewhere(self, name: str, value: object) -> bool:
        if name in self._ignored or name in _OF_ONE_ENV or "_running" not in vars(self) or self.is_closed:
            return False
        if not any(self._ask((HAS, name), [None] * self.num_workers)):
            return False
        dispatched(self, name)  # raises if some environments lack it
        assign(self, (name,), value)
        return True

    # -- rows -----------------------------------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> BatchView:
        """Some rows of the batch, as a batch that is stepped by the same workers; ``batch[1]`` is a batch of one.

        Args:
            index: a row, a slice, a list or tensor of rows, or a mask ``[num_workers]``.

        Raises:
            IndexError: a row does not exist.
        """
        return BatchView(self, index)

    def __len__(self) -> int:
        return self.num_workers

    # -- state ----------------------------------------------------------------------------------------------------

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """``{"worker0": state_dict of environment 0, ...}``.

        The state of an environment has parameters and buffers, like the state of any ``nn.Module``, and for a
        TransformedEnv the state of its transforms. Other attributes (a simulator, a counter, a generator) are left out,
        so most of these dicts are empty. To include such an attribute, register it as a buffer, or define
        ``get_extra_state`` and ``set_extra_state`` in the environment's class.
        """
        calls = [(args, kwargs)] * self.num_workers
        return {f"worker{row}": state for row, state in enumerate(self._ask(("state_dict",), calls))}

    def load_state_dict(self, state_dict: dict[str, Any], *args: Any, **kwargs: Any) -> None:  # type: ignore[override]
        """Restore a state that ``state_dict`` returned, or load the state of one environment into all of them.

        Raises:
            SpecError: the state has other rows than the batch.
        """
        states = _states_of_rows(state_dict, self.num_workers)
        self._ask(("load_state_dict",), [((state, *args), kwargs) for state in states])

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the batch as it was before its start; the copy starts at its first use."""
        state = {name: value for name, value in super().__getstate__().items() if name not in _OF_A_START}
        before: BaseState = state["base_state"]
        before.batch_size, before.device = torch.Size((self.num_workers,)), self._device_asked_for
        before.specs, before.env_info_spec, before.validated = {}, None, set()
        state["_running"] = False
        state["_made_of"] = pickled({name: state.pop(name) for name in _MADE_OF})
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({**state, **cloudpickle.loads(state.pop("_made_of"))})  # type: ignore[no-untyped-call]

    def __repr__(self) -> str:
        started = f"batch_size={tuple(self.batch_size)}, device={self.device}" if self._running else "not started"
        return f"{type(self).__name__}({self.num_workers} environments, {started})"

    # -- life and specs -------------------------------------------------------------------------------------------

    def start(self) -> BatchedEnv:
        """Make the environments, if they are not made yet."""
        if not self._running:
            self.check_open("start")
            self._running = True
            try:
                self._open()
            except BaseException:
                self._running = False
                raise
        elif self._backend is None:
            self.check_open("start")  # another thread has just closed it
        return self

    def update_kwargs(self, kwargs: Any) -> None:
        """Change arguments of the factories, with one dict for all or a list of dicts. Only before the start.

        Raises:
            StateError: the environments have been made.
            ArgumentError: the list has another length.
        """
        self._check_not_started("update_kwargs")
        _, new = each_of(self.create_env_fn, self.num_workers, kwargs)
        arguments = [{**old, **more} for old, more in zip(self.create_env_kwargs, new, strict=True)]
        self._factories = factories_of(self.create_env_fn, arguments)
        self.create_env_kwargs = arguments

    def _check_not_started(self, what: str) -> None:
        if self._running:
            raise StateError(
                f"{what} comes before the first use: these environments are made already. Make a new batch."
            )

    @property
    def _is_described(self) -> bool:  # type: ignore[override]
        return self._running or self.is_closed

    def _described(self) -> BaseState:
        """Return the state with the specs of the environments, which are made if necessary."""
        if not self._is_described:
            self.start()
        return self.base_state

    @property
    def batch_size(self) -> torch.Size:
        """``[num_workers]``, followed by the batch size of each environment. Makes the environments if necessary."""
        return self._described().batch_size

    @batch_size.setter
    def batch_size(self, value: Any) -> None:
        raise NotSupported("The batch size of a batch follows from its environments and cannot be set.")

    @property  # type: ignore[misc]
    def device(self) -> torch.device | None:
        """The requested device of the data, or else the device of all environments. Makes them if necessary."""
        return self.base_state.device or self._described().device

    @property
    def supports_set_state(self) -> bool:
        """Whether all environments can be reset to the state in their data. Makes them if necessary."""
        self._described()
        return self._supports_set_state

    @property
    def keys_read(self) -> list[Any]:
        """Keys of the root that the environments read beside the action. Makes the environments if necessary.

        If an environment may read any entry of the root, the batch takes those that the data lacks from its storage.
        """
        self._described()
        return list(self._layout.keys_read)

    @property
    def passed_through_keys(self) -> tuple[Any, ...]:
        """Keys of states that environments copy from the root to ``next``, unless a policy has written them there.

        Makes the environments if necessary.
        """
        self._described()
        return self._layout.passed_through

    def to(self, device: Any) -> BatchedEnv:  # type: ignore[override]
        """Return data on ``device`` from now on; the environments keep their devices."""
        if not self._running:
            self.base_state.device = torch.device(device)
            return self
        super().to(device)
        if self._rows is not None:
            self._rows.come_out(self)
        return self

    def _full_spec(self, kind: str) -> Composite:
        if kind not in self.base_state.specs:
            self.start()
        return self.base_state.specs[kind]

    def _adopt(self, layout: BatchLayout, reports: list[EnvReport]) -> None:
        """Take over the specs and the abilities of the environments."""
        self.base_state.batch_size = torch.Size((self.num_workers, *layout.size))
        if self.base_state.device is None:
            self.base_state.device = layout.device
        for kind in SPEC_KINDS:
            self.assign_spec(kind, layout.specs[kind])
        self.env_info_spec = layout.env_info
        self._layout, self._messages = layout, Messages(layout, self.num_workers)
        self._on_arrays = layout.on_arrays
        self._supports_set_state = all(report.supports_set_state for report in reports)

    @exclusive("set_seed")
    def set_seed(self, seed: int | None = None, static_seed: bool = False) -> int | None:
        if seed is not None:
            next_seed(seed)  # raises if this is not a seed, before anything starts
        self.start()
        self.check_open("set_seed")
        self.seed_actions(seed)
        return self._seed_chain(list(range(self.num_workers)), seed, static_seed)

    @exclusive("set_seed")
    def _seed_chain(self, rows: list[int], seed: int | None, static_seed: bool) -> int | None:
        """Seed rows one after another, each with the next seed of the chain; return the seed after the last."""
        self.check_open("set_seed")
        seeds, following = spread_seed(seed, len(rows), static=static_seed)
        self._backend.call("seed", dict(zip(rows, seeds, strict=True)))
        return following


def _states_of_rows(state_dict: dict[str, Any], n: int) -> list[dict[str, Any]]:
    """Divide the state of a batch among ``n`` environments; the state of one environment is used for all.

    Raises:
        SpecError: the state has other rows than the batch.
    """
    if not any(str(key).startswith("worker") for key in state_dict):
        return [state_dict] * n
    names = [f"worker{row}" for row in range(n)]
    if set(state_dict) != set(names):
        raise SpecError(f"A state of {n} environments is needed, found {sorted(state_dict)}.")
    return [state_dict[name] for name in names]
