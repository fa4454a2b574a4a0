"""RootMemory: keeps entries that a step reads from its root, as they were before a later transform changed them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from tensordict import TensorDictBase

from steppe.envs import EnvBase
from steppe.errors import SpecError, StateError
from steppe.specs import Composite, is_memory
from steppe.storage import find_entry, level_at
from steppe.transforms.base import Transform
from steppe.transforms.compiled.transform_hooks import EnvSpecs, Hooks, Link, RowHooks, set_beside, write
from steppe.transforms.env_transforms import SteppingTransform
from steppe.transforms.transform_keys import Key, names_of, replace_last

__all__ = ["RootMemory", "RootReads", "links"]


class RootMemory(Transform):
    """Keep entries in private memory, and show them in the root to the environment and the transforms before it.

    A step reads entries of its root: a StepCounter its count, an environment its state. If a later transform changes
    such an entry, the root of the caller has the changed value. :func:`links` puts this transform before the one that
    changes the entry, so that a transform sees the root as it was at its own level.

    On rows of arrays, the memory of an entry is the memory in which the earlier transforms read and write it, and the
    later transforms get a copy.

    Args:
        readers: the entries to keep, each with the name of its reader, for errors.
        passed_through: states that a policy may write under ``next``. All others are states no more: steps read them
            from the memory.
    """

    keeps_nothing = True

    def __init__(self, readers: Mapping[Key, str], passed_through: Iterable[Key] = ()) -> None:
        super().__init__()
        self.readers, self.passed_through = dict(readers), set(passed_through)

    def _memories(self, specs: EnvSpecs) -> dict[Key, Key]:
        """Return the private entry of each entry, under a name that is not taken yet."""
        memories = {}
        for key in self.readers:
            memory = replace_last(key, f"__root_{names_of(key)[-1]}")
            while specs.observation.get(memory, None) is not None:
                memory = replace_last(memory, f"{names_of(memory)[-1]}_")
            memories[key] = memory
        return memories

    def memory_spec(self, specs: EnvSpecs) -> Composite:
        spec = Composite({}, shape=specs.batch_size, device=specs.device)
        for key, memory in self._memories(specs).items():
            set_beside(spec, memory, specs.observation[key].clone(), specs.observation)
        return spec

    def transform_specs(self, specs: EnvSpecs) -> EnvSpecs:
        specs = specs.copy()
        for key in self.readers.keys() - self.passed_through:
            if specs.state.get(key, None) is not None:
                specs.state.pop(key)
        return specs

    def hooks(self, specs: EnvSpecs) -> Hooks:
        memories = self._memories(specs)

        def keep(_: TensorDictBase | None, data: TensorDictBase) -> TensorDictBase:
            for key, memory in memories.items():
                write(data, memory, find_entry(data, key).clone())  # a later transform may write in place
            return data

        def restore(data: TensorDictBase) -> TensorDictBase:
            for key, memory in memories.items():
                value = find_entry(data, memory)
                if value is None:
                    raise KeyError(
                        f"There is no {memory!r} in the data given to step. It holds {key!r} as {self.readers[key]} "
                        "reads it, before a later transform changes it. Step what reset, step_mdp or "
                        "step_and_maybe_reset returned, with an action added to it."
                    )
                write(data, key, value)
            return data

        def restore_known(data: TensorDictBase | None) -> TensorDictBase | None:
            known = data is not None and all(find_entry(data, memory) is not None for memory in memories.values())
            return restore(data) if known and data is not None else data

        rows = RowHooks(reads=memories, casts=memories, root_inputs=memories.values(), kept=memories)
        return Hooks(step=keep, reset=keep, inverse=restore, before_reset=restore_known, reads_root=False, rows=rows)

    def shared_key(self) -> Any:
        return (type(self), tuple(self.readers))


class RootReads:
    """The entries of the root that a step reads, up to some place in a chain.

    Args:
        env: the environment before the chain.

    Attributes:
        readers: entries that a step reads as they are at this place, each with the name of its reader, for errors.
        optional: entries that the environment may read.
        hidden: optional entries that a transform has changed. The environment does not receive them.
        passed_through: states that a policy may write under ``next``.
    """

    def __init__(self, env: EnvBase) -> None:
        self.readers: dict[Key, str] = dict.fromkeys(env.keys_read, type(env).__name__)
        self.optional = set(env.full_observation_spec.keys(include_nested=True, leaves_only=True)) - set(self.readers)
        if env.row_writer is not None:
            self.optional &= set(env.row_writer.layout.root_inputs)  # it reads no others
        self.hidden: set[Key] = set()
        self.passed_through: set[Key] = set(env.passed_through_keys)

    def hide(self, key: Key) -> None:
        """Keep an optional entry from the environment."""
        self.optional.discard(key)
        self.hidden.add(key)


def links(parts: Iterable[Transform], specs: EnvSpecs, reads: RootReads) -> Iterator[Link]:
    """Yield the transforms of a chain with their hooks and specs, and a RootMemory before those that need one.

    Args:
        parts: the transforms.
        specs: the specs of the environment.
        reads: what a step of the environment reads; at the end, what a step with all transforms reads.

    Raises:
        SpecError: a transform changes an entry that an earlier one reads, and the earlier value cannot be kept, because
            a reset does not return it, or a policy writes it.
    """
    for part in parts:
        link = _link(part, specs)
        for key in [key for key in reads.optional if _changes(link, key)]:
            reads.hide(key)
        changed = {key: reads.readers.pop(key) for key in list(reads.readers) if _changes(link, key)}
        if changed:
            for key, reader in changed.items():
                _check_keeps(link, key, reader, reads.passed_through)
            memory = _link(RootMemory(changed, reads.passed_through), specs)
            yield memory
            link = _link(part, memory.after)
        yield _guarded(link, reads)
        specs = link.after
        reads.readers.update(dict.fromkeys(_keys_read(link), type(part).__name__))
        reads.passed_through.update(link.hooks.passed_through)


def _check_keeps(link: Link, key: Key, reader: str, passed_through: set[Key]) -> None:
    before, after = (specs.observation.get(key, None) for specs in (link.before, link.after))
    reason = "no reset returns it" if before is None else None
    if before is not None and key in passed_through:
        alike = after is not None and (after.shape, after.dtype) == (before.shape, before.dtype)
        reason = None if alike else "a policy writes it"
    if reason is not None:
        name = type(link.part).__name__
        raise SpecError(
            f"{reader} reads {key!r} from the data of each step, and {name} behind it changes this entry. Its earlier "
            f"value cannot be kept, because {reason}. Give {name} out_keys of another name."
        )


def _link(part: Transform, specs: EnvSpecs) -> Link:
    return Link(part, part.hooks_in(specs), specs, part.specs_behind(specs))


def _keys_read(link: Link) -> list[Key]:
    """Return the entries behind a transform that its step or its inverse reads from the root."""
    part, hooks = link.part, link.hooks
    if isinstance(part, SteppingTransform):
        return []  # it steps the environment with what the step before has returned
    inverts = part.reads_root if hooks.inverse is not None and hooks.inverse == part._inv_call else False
    if hooks.reads_all or inverts is True:
        keys = link.after.observation.keys(include_nested=True, leaves_only=True)
        return [key for key in keys if not is_memory(key)]
    return [*hooks.root_inputs, *(inverts or ())]


def _changes(link: Link, key: Key) -> bool:
    """Whether a transform changes an entry, as far as it declares its changes, and no inverse undoes that."""
    part, hooks = link.part, link.hooks
    if _undoes(link, key):
        return False
    if link.before.observation.get(key, None) != link.after.observation.get(key, None):
        return True
    if hooks.step is None and hooks.reset is None:
        return False
    if hooks.pairs is not None:
        return any(key == written for _, written in hooks.pairs)
    rows = () if hooks.rows is None else (*hooks.rows.writes, *hooks.rows.casts)
    return key in (*hooks.root_inputs, *rows, *part.out_keys)


def _undoes(link: Link, key: Key) -> bool:
    part, hooks = link.part, link.hooks
    if hooks.inverse is None or hooks.inverse_pairs is not None:
        return any(key == inner for _, inner in hooks.inverse_pairs or ())
    if hooks.inverse == part._inv_call:
        return key in part.in_keys_inv
    return link.before.state.get(key, None) is not None  # such a transform moves or renames all states back


def _guarded(link: Link, reads: RootReads) -> Link:
    """Let the hooks of a transform notice that they change an entry that was read before, without declaring it.

    The methods of a transform may write any entry, whatever its keys and its specs say.
    """
    hooks, part = link.hooks, link.part
    overrides, readers, name = part._overrides, dict(reads.readers), type(part).__name__
    keys = [key for key in (*readers, *reads.optional) if not _undoes(link, key)]
    methods = overrides.owner_of("hooks") is Transform or overrides.of_methods("hooks")
    if not keys or not methods or hooks.pairs is not None or isinstance(part, SteppingTransform):
        return link

    def guarded(hook: Any) -> Any:
        def run(td: Any, data: TensorDictBase) -> TensorDictBase:
            before = [(key, value := _entry(data, key), _version(value)) for key in keys]
            data = hook(td, data)
            for key, value, version in before:
                after = _entry(data, key)
                written = _version(after) != version if after is value else _differ(after, value)
                if written and key in readers:
                    raise StateError(
                        f"{name} changed {key!r}, which {readers[key]} before it reads from the root of each step. Say "
                        f"that it does, so that the earlier value is kept: {name}.out_keys = [{key!r}], or pass "
                        "out_keys to Transform.__init__. Or write to another key."
                    )
                if written:
                    reads.hide(key)
            return data

        return None if hook is None else run

    return replace(link, hooks=replace(hooks, step=guarded(hooks.step), reset=guarded(hooks.reset)))


def _entry(data: TensorDictBase, key: Key) -> Any:
    """Return the entry itself; None if it is missing, or if reading it makes a new tensor (a lazy stack)."""
    *path, name = names_of(key)
    level = level_at(data, path)
    return None if level is None else level.get(name)


def _differ(after: Any, before: Any) -> bool:
    if after is None or before is None:
        return False  # it is missing, about which there are other errors
    return not (isinstance(after, torch.Tensor) and isinstance(before, torch.Tensor) and torch.equal(after, before))


def _version(value: object) -> int:
    """Return how often a tensor has been written into."""
    return value._version if isinstance(value, torch.Tensor) and not value.is_inference() else 0
