"""EnvAttributes: the attributes of an environment beside its specs, such as batch size and device."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase
from torch import nn

from steppe.envs.done import done_groups
from steppe.envs.module import Module
from steppe.envs.spec_views import SpecViews
from steppe.errors import ClosedError, NotSupported, SpecError
from steppe.specs import SPEC_KINDS, Composite

__all__ = ["EnvAttributes"]


class EnvAttributes(SpecViews, Module):
    """The attributes of :class:`~steppe.envs.EnvBase`. Not an environment by itself."""

    #: Whether data must have exactly the environment's batch size. False: it may have any.
    _batch_locked: bool = True
    #: Whether ``_step`` and ``_reset`` step and reset other environments.
    steps_others: bool = False
    #: Whether it is a batch that makes its environments itself: ``update_kwargs`` changes the arguments it makes them
    #: with, until it has started.
    makes_its_envs: bool = False
    #: Whether ``_reset`` takes a keyword ``set_state``; if that is True, it begins at the state in its data.
    _supports_set_state: bool = False
    #: Whether batch size, device and specs are known. False for a batch that has not been started: reading one of them
    #: makes its environments.
    _is_described: bool = True

    @property
    def batch_size(self) -> torch.Size:
        """Leading dimensions of all data and of every spec. Assigning it changes the specs too."""
        return self.base_state.batch_size

    @batch_size.setter
    def batch_size(self, value: Iterable[int]) -> None:
        old, size = self.base_state.batch_size, torch.Size(value)
        self.base_state.batch_size = size
        self._assign_specs_again(lambda spec: _rebatched(spec, old, size))

    @property
    def shape(self) -> torch.Size:
        """The same as ``batch_size``."""
        return self.batch_size

    @property
    def batch_dims(self) -> int:
        """The number of batch dimensions."""
        return len(self.batch_size)

    ndim = batch_dims

    def ndimension(self) -> int:
        """Return ``batch_dims``."""
        return len(self.batch_size)

    def numel(self) -> int:
        """Return the number of environments in the batch; 1 without a batch."""
        return self.batch_size.numel()

    @property
    def batch_locked(self) -> bool:
        """Whether data must have the environment's batch size. False: any, if the environment has no batch size."""
        return self._batch_locked

    @batch_locked.setter
    def batch_locked(self, value: bool) -> None:
        if isinstance(getattr(type(self), "_batch_locked", None), property):
            raise NotSupported(
                f"{type(self).__name__}.batch_locked is read from its base: assign env.base_env.batch_locked."
            )
        self._batch_locked = bool(value)
        self.specs_changed()

    @property
    def supports_set_state(self) -> bool:
        """Whether ``reset(td, set_state=True)`` begins exactly at the state in ``td``."""
        return self._supports_set_state

    @property
    def device(self) -> torch.device | None:
        """The device of inputs and outputs, or None. Change it with ``to``."""
        return self.base_state.device

    @device.setter
    def device(self, value: Any) -> None:
        if self.device is not None and torch.device(value) != self.device:
            raise AttributeError(f"This environment is on {self.device}: move it with env.to({str(value)!r}).")
        self.to(value)

    @property
    def run_type_checks(self) -> bool:
        """Whether every step is checked against the specs, not only the first."""
        return self.base_state.run_type_checks

    @run_type_checks.setter
    def run_type_checks(self, value: bool) -> None:
        self.base_state.run_type_checks = value

    @property
    def allow_done_after_reset(self) -> bool:
        """Whether an episode may have ended when it begins."""
        return self.base_state.allow_done_after_reset

    @allow_done_after_reset.setter
    def allow_done_after_reset(self, value: bool) -> None:
        self.base_state.allow_done_after_reset = value

    @property
    def is_closed(self) -> bool:
        """Whether ``close`` was called."""
        return self.base_state.is_closed

    @is_closed.setter
    def is_closed(self, value: bool) -> None:
        self.base_state.is_closed = value

    @property
    def specs_version(self) -> int:
        """A number that changes with the specs and the row writer; values derived from them are valid until then."""
        return self.base_state.changes

    @classmethod
    def join_rows(cls, envs: list[Any]) -> Any:
        """Return one :class:`~steppe.envs.RowWriter` for environments of this class in a batch, or None.

        A batch calls it if each of them has a ``shard_writer`` and all have the same specs.
        """
        return None

    @property
    def env_info_spec(self) -> Composite:
        """The values that ``reset(env_info=...)`` takes for each row. Empty by default."""
        batch_size = self.batch_size  # first, because reading it makes the environments of a batch, with their specs
        spec = self.base_state.env_info_spec
        return spec if spec is not None else Composite({}, shape=batch_size)

    @env_info_spec.setter
    def env_info_spec(self, spec: Composite) -> None:
        self.base_state.env_info_spec = spec

    def infer_env_info(self, values: Mapping[str, object]) -> Composite:
        """Return ``env_info_spec``. If the spec is empty, a subclass may infer it from the values of one row."""
        return self.env_info_spec

    @property
    def has_dynamic_specs(self) -> bool:
        """Whether some entry has a dynamic size (``-1``)."""
        return bool(
            self.cached(
                "dynamic",
                lambda: any(
                    leaf is not None and any(size < 0 for size in leaf.shape)
                    for kind in SPEC_KINDS
                    for leaf in self._full_spec(kind).values(include_nested=True, leaves_only=True)
                ),
            )
        )

    @property
    def passed_through_keys(self) -> tuple[Any, ...]:
        """Keys of states that a step copies from the root to ``next``, unless a policy has written them there.

        The environment does not use them: a primer has added them for a recurrent policy, for example.
        """
        return ()

    @property
    def keys_read(self) -> list[Any]:
        """Keys of the root that a step reads beside the action, whatever later transforms make of these entries."""
        writer: Any = self.row_writer
        return [*self.state_keys, *(() if writer is None else writer.layout.read_by_all)]

    @property
    def done_groups(self) -> list[Any]:
        """The levels of the data that end by themselves, the root first: a list of :class:`~steppe.envs.DoneGroup`."""
        return self.cached("groups", lambda: done_groups(self.full_done_spec))

    def to(self, device: Any) -> Any:  # type: ignore[override]
        """Move the environment to ``device``: its specs, its parameters and the data of later steps; return it."""
        device = torch.device(device)
        if device == self.device:
            return self
        self.base_state.device = device
        nn.Module.to(self, device)
        self._assign_specs_again(lambda spec: spec.to(device))
        return self

    def fake_tensordict(self) -> TensorDictBase:
        """Return zeros for all entries of one step, root and ``next``, from which buffers are made."""
        root: TensorDictBase = self.full_observation_spec.zero()
        for spec in (self.full_done_spec, self.full_state_spec, self.full_action_spec):
            root.update(spec.zero())
        following = self.full_observation_spec.zero()
        following.update(self.full_reward_spec.zero()).update(self.full_done_spec.zero())
        root.set("next", following)
        return root

    def spec_hint(self, key: NestedKey) -> str:
        """Return what errors add about an entry that does not fit its spec: which transform wrote it, for example.

        Args:
            key: the key of the entry, without ``"next"``.
        """
        return ""

    def add_truncated_keys(self) -> Any:
        """Add a ``truncated`` entry at each done level that lacks one, and return the environment."""
        spec = self.full_done_spec.clone()
        for group in done_groups(spec):
            if "truncated" not in group.names:
                spec[group.key("truncated")] = spec[group.key("done")].clone()
        self.full_done_spec = spec
        return self

    def check_open(self, what: str) -> None:
        """Raise a ClosedError if the environment is closed; ``what`` is the method that was called."""
        if self.base_state.is_closed:
            raise ClosedError(f"{type(self).__name__}.{what} was called after close(): make a new environment.")

    def check_batch(self, tensordict: TensorDictBase, what: str) -> None:
        """Raise a SpecError if data does not have the environment's batch size; ``what`` is the method called."""
        if not isinstance(tensordict, TensorDictBase):
            steps = what.startswith("step")
            taken = "a TensorDict with the action" if steps else "a TensorDict"
            line = "td = env.reset(); td['action'] = action; td = env.step(td)" if steps else "td = env.reset()"
            raise SpecError(
                f"{type(self).__name__}.{what} takes {taken}, found {type(tensordict).__name__}. Write: {line}"
            )
        data_size, env_size = tensordict.batch_size, self.batch_size
        if data_size == env_size or (not self._batch_locked and not env_size):
            return
        raise SpecError(
            f"{type(self).__name__}.{what} needs data of batch size {tuple(env_size)}, found {tuple(data_size)}."
            + ("" if what == "step" else " Make it with TensorDict({...}, batch_size=env.batch_size).")
        )

    def register_collector(self, collector: Any) -> None:
        """Keep a weak reference to the collector that steps this environment, for transforms that need it."""
        self.base_state.collector = weakref.ref(collector)

    @property
    def collector(self) -> Any:
        """The collector that steps this environment, or None."""
        reference = self.base_state.collector
        return None if reference is None else reference()


def _rebatched(spec: Composite, old: torch.Size, new: torch.Size) -> Composite:
    """Return a spec with another batch size."""
    for _ in old:
        spec = spec[0]
    return spec.expand(torch.Size((*new, *spec.shape)))
