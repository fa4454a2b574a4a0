"""BaseState: the state of an EnvBase, in one typed object."""

from __future__ import annotations

import copy
import threading
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import ReferenceType

import torch
from tensordict import NestedKey, TensorDictBase

from steppe.envs.data_types import Key
from steppe.envs.done import Masks
from steppe.specs import Composite

if TYPE_CHECKING:
    from steppe.envs.array.row_steps import RowSteps

__all__ = ["BaseState", "Unset", "Uses"]

_thread = threading.get_ident
_Data = TypeVar("_Data", bound=TensorDictBase)


class Unset:
    """Mark a value that has not been worked out yet, if None is a valid value. The class itself is the mark."""


class Uses:
    """Count how often the user of an environment changed, so that collectors notice that others have stepped it.

    A user is a thread, or an object that has claimed the environment: a collector claims it after each batch. Any use
    after that, even in the same thread, is a change. Environments that step the same simulator share one counter: a
    :class:`~steppe.transforms.TransformedEnv` and its base, a batch and its views.

    Attributes:
        user: the thread that used the environment last, or the object that has claimed it.
        takeovers: how often ``user`` has changed.
        changes: the sum of ``takeovers`` and of how often a loop of steps began or ended within another loop.
        runs: the loops that step the environment at the moment. A loop notes its use only when it begins and ends.
        last: the data that was returned last, a root or ``next``, and the state of the environment that returned it;
            None after a use that returns no data of all rows.
    """

    __slots__ = ("changes", "last", "runs", "takeovers", "user")

    def __init__(self) -> None:
        self.user: object = None
        self.changes = self.takeovers = 0
        self.last: tuple[int, TensorDictBase] | None = None
        self.runs: set[object] = set()

    def note(self) -> None:
        """Note that the calling thread resets or steps the environment."""
        self.last = None
        thread = _thread()
        if self.user != thread:
            self.user = thread
            self.changes += 1
            self.takeovers += 1

    def note_run(self) -> None:
        """Note the beginning or the end of a loop of steps; a loop inside another loop is a change."""
        self.note()
        if self.runs:
            self.changes += 1

    def claim(self, user: object) -> int:
        """Count any use from now on as a change, and return the count."""
        self.user, self.last = user, None
        return self.changes


# Attributes that a copy works out for itself, or must not share with the original.
_NOT_COPIED = ("cache", "row_steps", "changes", "row_run_steps", "began", "collector", "uses")


@dataclass(slots=True)
class BaseState:
    """The attributes of :class:`~steppe.envs.EnvBase`, at ``env.base_state``; made before any ``__init__`` runs.

    Setting an attribute of an ``nn.Module`` takes a microsecond, and reading a property 40 ns; so each step reads and
    writes the attributes of this object. Copies and pickles of an environment have their own state.

    Attributes:
        initialized: whether ``EnvBase.__init__`` has run.
        constructed: whether the outermost ``__init__`` has ended.
        specs: the Composite of each kind, if it was assigned or read.
        undeclared: the kinds in ``specs`` that were read, but never assigned.
        cache: values derived from the specs; None while the specs may be edited in place.
        validated: ``"reset"`` and ``"step"``, once the data of the first one was compared with the specs.
        extra_outputs: keys that a step returns and no spec describes.
        generator: the generator of random actions; None if they follow torch's global one.
        action_masks: the key of the mask of each action whose mask is an entry of the root.
        auto_reset, auto_reset_replace: the arguments of that name, for the end of the construction.
        row_steps: steps on TensorDicts that go through rows; None if there is no row writer for them.
        changes: how often the specs or the row writer have changed.
        row_run_steps: steps of rollouts and collectors through a row writer that runs torch code, once there were any.
        began: the masks of the last reset by level, empty if all rows were reset; None if there was none since it was
            set to None.
        caller_keeps_rows: whether the caller of a reset or step of some rows, a transform, has the data of the others.
        collector: the collector that steps the environment.
        uses: counts changes of the user of the environment.
    """

    initialized: bool = False
    constructed: bool = False
    is_closed: bool = False
    batch_size: torch.Size = field(default_factory=torch.Size)
    device: torch.device | None = None
    specs: dict[str, Composite] = field(default_factory=dict)
    undeclared: set[str] = field(default_factory=set)
    env_info_spec: Composite | None = None
    spec_locked: bool = True
    cache: dict[str, Any] | None = None
    run_type_checks: bool = False
    allow_done_after_reset: bool = False
    validated: set[str] = field(default_factory=set)
    extra_outputs: set[Key] = field(default_factory=set)
    generator: torch.Generator | None = None
    action_masks: dict[NestedKey, NestedKey] = field(default_factory=dict)
    auto_reset: bool = False
    auto_reset_replace: bool = True
    row_steps: RowSteps | type[Unset] | None = Unset
    changes: int = 0
    row_run_steps: RowSteps | None = None
    began: Masks | None = None
    caller_keeps_rows: bool = False
    collector: ReferenceType[Any] | None = None
    uses: Uses = field(default_factory=Uses)

    def last_data(self) -> TensorDictBase | None:
        """Return the data that the environment returned last; None if another object has stepped it since then."""
        owner, data = self.uses.last or (0, None)
        return data if owner == id(self) else None

    def returned(self, data: _Data) -> _Data:
        """Note that the environment returns this data, and return it."""
        self.uses.last = id(self), data
        return data

    def __getstate__(self) -> dict[str, Any]:
        state = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in _NOT_COPIED}
        for name in ("specs", "undeclared", "validated"):
            state[name] = copy.copy(state[name])
        if self.generator is not None:
            state["generator"] = self.generator.get_state()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]
        if self.constructed:
            self.cache = {}
        if isinstance(self.generator, torch.Tensor):
            self.generator = torch.Generator()
            self.generator.set_state(state["generator"])
