"""Transform: the base class of changes to the data and the specs of an environment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

import torch
from tensordict import NestedKey, TensorDictBase
from tensordict.nn import dispatch

from steppe.errors import NotSupported, SpecError
from steppe.specs import INPUT_KINDS, OUTPUT_KINDS, SPEC_KINDS, Composite, Spec, below_next
from steppe.storage import find_entry
from steppe.transforms.compiled.entry_kernel import bind_entries
from steppe.transforms.compiled.transform_hooks import Array, EnvSpecs, Hooks, Link, RowHooks, pair_hook
from steppe.transforms.overrides import Overrides
from steppe.transforms.placed import Placed
from steppe.transforms.stored_steps import on_stored_steps
from steppe.transforms.transform_keys import Key, Keys, as_keys, keys_property

__all__ = ["Transform"]

_T = TypeVar("_T", bound="Transform")


class Transform(Placed):
    """Base class of transforms, which change the data that an environment returns or receives.

    A subclass overrides the methods that it needs:

    * ``_apply_transform(value)``: transforms one entry. It is called for each of ``in_keys`` after a step, and after a
      reset if the entry is present (a reset has no reward). The result goes to the matching key of ``out_keys``.
    * ``_call(next_tensordict)``: transforms all data of a step at once, instead of single entries. Write into it and
      return it.
    * ``_step(tensordict, next_tensordict)``: the same, with the root of the step. The root is a copy, as the
      environment before this transform received it: ``self.parent.step(tensordict)`` would repeat the step.
    * ``_reset(tensordict, tensordict_reset)``: transforms the data of a reset. The first argument is the argument of
      ``reset`` with its ``"_reset"`` masks (an empty TensorDict if there was none). Rows that are not reset keep their
      values, whatever is returned for them.
    * ``_inv_apply_transform(value)``, ``_inv_call(tensordict)``: transform the argument of ``step`` on its way to the
      environment, the last transform of a chain first. The data is a copy: write into it freely. If the class sets
      ``enable_inv_on_reset = True``, the argument of ``reset`` is transformed too, and missing entries are skipped.
    * ``_reset_env_preprocess(tensordict)``: transforms the argument of ``reset``, which may be None, on its way to the
      environment.
    * ``transform_observation_spec``, ``transform_reward_spec``, ``transform_done_spec``, ``transform_action_spec``,
      ``transform_state_spec``: change an unlocked Composite of the environment before this transform and return it.
      ``transform_output_spec`` and ``transform_input_spec`` change several at once. Decorate a method that is written
      for the spec of one entry, a leaf, with ``apply_to_composite`` or ``apply_to_composite_inv``.

    ``forward`` and ``inv`` transform data that comes from no environment, such as a batch of a replay buffer.

    A transform never changes tensors in place, because the environment or the caller may still hold them. It keeps
    values from step to step (a count, a sum) in the data, as entries of the observation and the state spec: then they
    follow each row through batches, clones, partial steps and resets.

    A transform belongs to one environment or :class:`~steppe.transforms.Compose`; ``clone`` it to use it in another.

    Args:
        in_keys: keys to read after a step or reset. A key is a name or a tuple of names; a single key needs no list.
            Default: the keys of :meth:`default_keys`.
        out_keys: keys to write, as many as ``in_keys`` (any number if the class overrides ``_call`` or ``_step``).
            Default: ``in_keys``.
        in_keys_inv: keys of actions and states that the environment reads.
        out_keys_inv: keys that the caller writes instead. Default: ``in_keys_inv``.

    Raises:
        SpecError: the numbers of keys to read and to write differ.

    Attributes:
        writes_done: whether it may end an episode or skip a step. The environment is then reset after the transforms
            have run, in a second round trip. Default: whether the class overrides ``_call`` or ``_step``.
        writes_step: whether the inverse may write a mask ``"_step"`` that excludes rows from a step. Default: whether
            the class overrides ``_inv_call``.
        action_masks: ``{action key: mask key}``, which entry of the root is the mask of which action, for random
            actions; see :attr:`EnvBase.action_masks`. Default: empty.
        needs_all_rows: whether it needs the data of all rows of a batch, because it steps the environment itself, or
            keeps state for each row outside the data. ``step_at`` and ``reset_at`` then pass it all rows, with
            ``"_step"`` and ``"_reset"`` masks. Default: whether the class overrides ``_step`` or ``_reset``.
        invertible: whether ``inv`` undoes ``forward``. Information for readers of the class.
        enable_inv_on_reset: whether the argument of ``reset`` goes through the inverse.
    """

    invertible: bool = False
    enable_inv_on_reset: bool = False
    action_masks: Mapping[NestedKey, NestedKey] = MappingProxyType({})
    #: Whether ``_step`` and ``_inv_call`` read the root: True for any entry of it, or the keys that they read. If a
    #: later transform changes such an entry, its earlier value is kept for this transform.
    reads_root: bool | Iterable[Key] = True
    #: Whether methods keep no reference to the tensors that they receive. Otherwise they receive copies, because the
    #: memory of rows is written again at the next step.
    keeps_nothing: bool = False
    #: Whether ``row_kernel`` and ``_apply_transform`` get large entries in blocks of a few rows, which fit into the
    #: cache of a core. False for functions with a high cost per call: they get many rows at once.
    by_blocks: bool = True
    #: Whether it keeps values from step to step, so that stored data has to be steps in order of time.
    over_time: bool = False
    #: Whether it works in environments only; ``does`` completes the error: ``"steps its environment"``.
    needs_env: bool = False
    does: str = "works on the data of an environment"
    #: The kinds of specs that ``transform_specs`` changes, if the class overrides it.
    changed_kinds: ClassVar[tuple[str, ...]] = SPEC_KINDS

    # Keys as they were assigned; None if they follow from the environment or from other keys.
    _in_keys: list[Key] | None = None
    _out_keys: list[Key] | None = None
    _in_keys_inv: list[Key] | None = None
    _out_keys_inv: list[Key] | None = None
    _found_keys: list[Key] | None = None
    _derived = (*Placed._derived, "_found_keys")
    _missing_tolerance: bool = False

    def __init__(
        self, in_keys: Keys = None, out_keys: Keys = None, in_keys_inv: Keys = None, out_keys_inv: Keys = None
    ) -> None:
        super().__init__()
        assigned = {"in_keys": in_keys, "out_keys": out_keys, "in_keys_inv": in_keys_inv, "out_keys_inv": out_keys_inv}
        for name, keys in assigned.items():
            if keys is not None:
                setattr(self, name, keys)
        # A class that overrides these methods may write fewer or more keys than it reads.
        if None not in (in_keys, out_keys) and not (self._writes("_call") or self._writes("_step")):
            self._zipped("in_keys", "out_keys")
        if None not in (in_keys_inv, out_keys_inv) and not self._writes("_inv_call"):
            self._zipped("in_keys_inv", "out_keys_inv")

    in_keys = keys_property("in_keys", found=lambda self: self._keys_read())
    out_keys = keys_property("out_keys", default="in_keys")
    in_keys_inv = keys_property("in_keys_inv")
    out_keys_inv = keys_property("out_keys_inv", default="in_keys_inv")

    @property
    def writes_done(self) -> bool:
        """Whether it may end an episode. A subclass sets a class attribute of this name."""
        return self._writes("_call") or self._writes("_step")

    @property
    def writes_step(self) -> bool:
        """Whether its inverse may exclude rows from a step. A subclass sets a class attribute of this name."""
        return self._writes("_inv_call")

    @property
    def needs_all_rows(self) -> bool:
        """Whether it needs the data of all rows of a batch. A subclass sets a class attribute of this name."""
        return self._writes("_step") or self._writes("_reset")

    # -- methods to override --------------------------------------------------------------------------------------

    def _apply_transform(self, value: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not define _apply_transform(value).")

    def _inv_apply_transform(self, value: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not define _inv_apply_transform(value).")

    def _call(self, next_tensordict: TensorDictBase) -> TensorDictBase:
        """Write ``_apply_transform`` of each of ``in_keys`` to its ``out_keys``, in place."""
        return pair_hook(self.key_pairs, self._apply_transform, self.missing_entry)(next_tensordict)

    def _inv_call(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write ``_inv_apply_transform`` of each of ``out_keys_inv`` to its ``in_keys_inv``, in place."""
        return pair_hook(self.inverse_key_pairs, self._inv_apply_transform, self.missing_entry)(tensordict)

    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        """Transform the data of a step, ``next_tensordict``; ``tensordict`` is the root of the step."""
        return self._call(next_tensordict)

    def _reset(self, tensordict: TensorDictBase | None, tensordict_reset: TensorDictBase) -> TensorDictBase:
        """Transform the data of a reset; by default ``_apply_transform`` on the ``in_keys`` that are present."""
        if self._writes("_apply_transform"):
            return pair_hook(self.key_pairs, self._apply_transform, None)(tensordict_reset)
        return tensordict_reset

    def _reset_env_preprocess(self, tensordict: TensorDictBase | None) -> TensorDictBase | None:
        """Change the argument of ``reset`` before the environment receives it."""
        if not self.enable_inv_on_reset or tensordict is None:
            return tensordict
        with self.set_missing_tolerance(True):
            return self._inv_call(tensordict)

    def _set_seed(self, seed: int | None) -> None:
        """Seed the random numbers of the transform; called by ``set_seed`` of its environment."""

    def shared_key(self) -> object:
        """Return a key under which the transforms of several environments are equal, so that one serves all rows.

        Returns:
            The type and all settings, to be compared. The methods must then accept data with any leading dimensions.
            None, the default, calls each transform for its own row, with data of the shapes of its environment: for
            transforms that draw random numbers, have buffers or parameters, or count dimensions from the first one.
        """
        return None

    def key_of_rows(self) -> object:
        """Return ``shared_key``, or None if a subclass overrides methods of the class that defines it."""
        return None if self._overrides.of_methods("shared_key") else self.shared_key()

    def masks_behind(self, masks: Mapping[NestedKey, NestedKey], link: Link) -> Mapping[NestedKey, NestedKey]:
        """Return the masks of actions of the environment behind this transform; see :attr:`EnvBase.action_masks`.

        Override this if the transform changes the key of a masked action or of its mask.

        Args:
            masks: ``{action key: mask key}`` of the environment before the transform.
            link: the transform with the specs before and behind it.

        Returns:
            By default ``action_masks``, and the entries of ``masks`` whose action stays the same.
        """
        before, after = link.before.action, link.after.action
        kept = {key: mask for key, mask in masks.items() if _same_choice(before.get(key, None), after.get(key, None))}
        return {**kept, **self.action_masks}

    def row_kernel(self, source: Array, target: Array) -> Callable[[], object] | None:
        """Return ``_apply_transform`` in numpy for rows of arrays, which takes a fraction of the time of torch.

        It is used if the class declares ``keeps_nothing`` and writes no done entries. Override this too if results are
        large, such as images: a function that writes to ``target`` saves a copy.

        Args:
            source: the entry of all rows, ``[n, *shape]``.
            target: memory for the results, of the shape and dtype of their spec. It is ``source`` itself if the entry
                keeps its key, shape and dtype.

        Returns:
            A function that reads ``source`` and writes ``target`` at each call; None, the default, to call
            ``_apply_transform``. Results must equal ``_apply_transform``'s, to the bit.
        """
        return None

    @property
    def has_kernel(self) -> bool:
        """Whether rows go through ``row_kernel``: a class overrides it, and no subclass ``_apply_transform``."""
        owner = self._overrides.owner_of("row_kernel")
        overrides = owner is not Transform and not self._writes("_apply_transform", owner)
        return overrides and self.keeps_nothing and not self.writes_done

    def inverse_kernel(self, leaf: Spec) -> Callable[[Array], Array] | None:
        """Return ``_inv_apply_transform`` in numpy, for steps of a single environment.

        For a few numbers, numpy takes a fraction of the time of torch. The method is ignored if a subclass overrides
        ``_inv_apply_transform``.

        Args:
            leaf: action spec of the environment before this transform.

        Returns:
            A function that turns an action ``[*shape]`` of the caller into an action of the environment. It must
            neither change nor keep the array that it receives, and return what ``_inv_apply_transform`` returns, to the
            bit. None, the default, calls ``_inv_apply_transform``.
        """
        return None

    def kernel_of_inverse(self, leaf: Spec) -> Callable[[Array], Array] | None:
        """Return ``inverse_kernel``, or None if a subclass overrides ``_inv_apply_transform``."""
        owner = self._overrides.owner_of("inverse_kernel")
        return None if self._writes("_inv_apply_transform", owner) else self.inverse_kernel(leaf)

    # -- specs ----------------------------------------------------------------------------------------------------

    def transform_observation_spec(self, observation_spec: Composite) -> Spec:
        """Change the spec of observations, in place or not, and return it."""
        return self._kind_behind("observation", observation_spec)

    def transform_reward_spec(self, reward_spec: Composite) -> Spec:
        """Change the spec of rewards."""
        return self._kind_behind("reward", reward_spec)

    def transform_done_spec(self, done_spec: Composite) -> Spec:
        """Change the spec of done entries."""
        return self._kind_behind("done", done_spec)

    def transform_action_spec(self, action_spec: Composite) -> Spec:
        """Return the action spec that callers see."""
        return self._kind_behind("action", action_spec)

    def transform_state_spec(self, state_spec: Composite) -> Spec:
        """Change the spec of states, the entries that a step reads beside the action."""
        return self._kind_behind("state", state_spec)

    def transform_output_spec(self, output_spec: Composite) -> Composite:
        """Change the entries ``full_observation_spec``, ``full_reward_spec`` and ``full_done_spec``."""
        return self._kinds_behind(output_spec, OUTPUT_KINDS)

    def transform_input_spec(self, input_spec: Composite) -> Composite:
        """Change the entries ``full_action_spec`` and ``full_state_spec``."""
        return self._kinds_behind(input_spec, INPUT_KINDS)

    def _kind_behind(self, kind: str, spec: Composite) -> Spec:
        """Return the spec of one kind, as ``transform_specs`` changes it if the class overrides that."""
        if kind not in self.changed_kinds or not self._writes("transform_specs"):
            return spec
        if not isinstance(spec, Composite):
            raise SpecError(
                f"{type(self).__name__}.transform_{kind}_spec takes a Composite, found {spec!r}. Put the spec of an "
                "entry under its key: Composite({key: spec})."
            )
        with self.set_missing_tolerance(self.missing_tolerance or self.parent is None):
            after: Composite = getattr(self.transform_specs(self.specs_around(**{kind: spec})), kind)
        return after

    def _kinds_behind(self, packed: Composite, kinds: tuple[str, ...]) -> Composite:
        if not self._overrides.has_specs_at_once:
            return self._each_kind_behind(packed, kinds)
        if not set(kinds) & set(self.changed_kinds):
            return packed
        specs = {kind: packed[f"full_{kind}_spec"] for kind in kinds if f"full_{kind}_spec" in packed.keys()}
        after = self.transform_specs(self.specs_around(**specs))
        return Composite({f"full_{kind}_spec": getattr(after, kind) for kind in specs}, shape=after.batch_size)

    def _each_kind_behind(self, packed: Composite, kinds: Iterable[str]) -> Composite:
        """Change packed specs, in place, by the methods for single kinds."""
        for kind in kinds:
            name = f"full_{kind}_spec"
            before: Composite | None = packed.get(name, None)
            if before is None:
                continue
            method = getattr(self, f"transform_{kind}_spec")
            spec = method(before)
            if not isinstance(spec, Composite):
                decorator = "apply_to_composite" + ("_inv" if kind in INPUT_KINDS else "")
                raise SpecError(
                    f"{type(self).__name__}.transform_{kind}_spec received a Composite and returned {spec!r}. Return "
                    f"the Composite with its entries changed, or decorate the method with {decorator} to receive the "
                    "spec of each entry that the transform reads."
                )
            packed[name] = spec
        return packed

    def specs_around(self, **specs: Composite) -> EnvSpecs:
        """Return the specs of the environment before the transform, with some of them replaced.

        Args:
            **specs: at least one Composite by kind: ``observation``, ``reward``, ``done``, ``action``, ``state``.
        """
        first = next(iter(specs.values()))
        env = self.parent
        if env is not None and env.batch_size == first.shape:
            return EnvSpecs.of(env).changed(**specs)
        return EnvSpecs.without_env(first.shape, first.device).changed(**specs)

    def transform_env_batch_size(self, batch_size: torch.Size) -> torch.Size:
        """Change the batch size of the environment."""
        return batch_size

    def transform_env_device(self, device: torch.device | None) -> torch.device | None:
        """Change the device of the environment's data."""
        return device

    def transform_specs(self, specs: EnvSpecs) -> EnvSpecs:
        """Return the specs of the environment behind this transform.

        Override this if an entry depends on several specs: a count has the shape of ``done``, a sum the reward's.
        The methods above then follow from it. If one of them is called directly, the other specs are taken from the
        environment before the transform, or, without one, are ``reward``, ``done`` and ``terminated`` at the root;
        missing entries are skipped then, as with ``missing_tolerance``.

        Args:
            specs: specs of the environment with the transforms before this one, locked. Change a ``copy()``.
        """
        return self._overrides.by_methods(specs, specs, Transform)

    def memory_spec(self, specs: EnvSpecs) -> Composite | None:
        """Return the specs of private values that the transform keeps from step to step.

        Use this for values that a later transform may rewrite, such as frames that are stacked before they are
        normalized. Values that others may read and edit (a count, a sum) belong into the observation and the state
        spec. Private values are in the data too, so that they follow each row through batches, partial steps and
        clones. Read them from the root in ``_step``, and write them in ``_step`` and ``_reset``. Rollouts and
        collectors do not return them.

        Args:
            specs: specs of the environment with the transforms before this one, locked.

        Returns:
            A Composite of the environment's batch size, whose names begin with two underscores; None if there are none.
        """
        return None

    def default_keys(self, specs: EnvSpecs | None) -> list[Key]:
        """Return the keys to read if no ``in_keys`` were passed, such as the rewards of all groups of agents.

        Args:
            specs: specs of the environment with the transforms before this one; None for data that comes from no
                environment.

        Returns:
            Keys, none by default. They are ``in_keys`` in ``specs_behind``, ``hooks`` and the methods that these call.
        """
        return []

    def find_keys(self, specs: EnvSpecs) -> None:
        """Use :meth:`default_keys` of an environment, if no ``in_keys`` were passed."""
        if self._in_keys is None and self._writes("default_keys"):
            self._found_keys = as_keys(self.default_keys(specs))

    def _keys_read(self) -> list[Key]:
        """Return the value of ``in_keys`` if none were passed."""
        if self._found_keys is None and self._writes("default_keys"):
            env = self.parent
            if env is None:
                return as_keys(self.default_keys(None))
            self.find_keys(EnvSpecs.of(env))
        return list(self._found_keys or ())

    def specs_behind(self, specs: EnvSpecs) -> EnvSpecs:
        """Return the result of ``transform_specs``, with :meth:`memory_spec` added to observations and states.

        If a subclass overrides methods for single specs below the class of ``transform_specs``, these are used.

        Raises:
            SpecError: a name of the memory does not begin with two underscores, or exists already.
        """
        self.find_keys(specs)
        return self._overrides.specs_behind(specs)

    def hooks(self, specs: EnvSpecs) -> Hooks:
        """Return the functions that run at each step and reset; called once, as soon as the specs are known.

        Override this to do at setup what would be repeated at each step.

        Args:
            specs: specs of the environment with the transforms before this one.

        Returns:
            Functions for step, reset and the inverse; None for those that do nothing. Default: the methods that the
            class overrides.
        """
        return self._overrides.method_hooks(specs, Transform)

    def hooks_in(self, specs: EnvSpecs) -> Hooks:
        """Return :meth:`hooks`, replaced by the methods that a subclass overrides below it."""
        self.find_keys(specs)
        hooks = self._overrides.hooks(specs)
        if hooks.pairs and hooks.rows is None and self.has_kernel:
            read, written = zip(*hooks.pairs, strict=True)
            hooks.rows = RowHooks(bind_entries(self, hooks.pairs), reads=read, writes=written)
        return hooks

    @property
    def _overrides(self) -> Overrides:
        return Overrides(self, Transform)

    def _writes(self, name: str, owner: type | None = None) -> bool:
        return self._overrides.has(name, owner)

    @property
    def key_pairs(self) -> list[tuple[Key, Key]]:
        """Each of ``in_keys`` with its key of ``out_keys``.

        Raises:
            SpecError: there are not as many of one as of the other.
        """
        return self._zipped("in_keys", "out_keys")

    @property
    def inverse_key_pairs(self) -> list[tuple[Key, Key]]:
        """Each of ``out_keys_inv``, which the caller writes, with its key of ``in_keys_inv``.

        Raises:
            SpecError: there are not as many of one as of the other.
        """
        return [(out_key, key) for key, out_key in self._zipped("in_keys_inv", "out_keys_inv")]

    def given_keys(self) -> tuple[tuple[Key, ...] | None, ...]:
        """Return the keys that were assigned, for ``shared_key``.

        Returns:
            ``in_keys``, ``out_keys``, ``in_keys_inv`` and ``out_keys_inv``: a tuple of keys each, or None where the
            keys follow from the environment or from the others.
        """
        assigned = (self._in_keys, self._out_keys, self._in_keys_inv, self._out_keys_inv)
        return tuple(None if keys is None else tuple(keys) for keys in assigned)

    def _zipped(self, first: str, second: str) -> list[tuple[Key, Key]]:
        """Return the keys of two attributes in pairs."""
        read, written = getattr(self, first), getattr(self, second)
        if len(read) != len(written):
            raise SpecError(
                f"{type(self).__name__}: {first} and {second} must have the same length, found {read} and {written}."
            )
        return list(zip(read, written, strict=True))

    def missing_entry(self, key: Key, data: TensorDictBase) -> None:
        """Raise the error for an entry that is not in the data, unless missing entries are tolerated.

        Args:
            key: the entry.
            data: where it was looked for.

        Raises:
            KeyError: ``missing_tolerance`` is False.
        """
        if self.missing_tolerance:
            return
        entries = sorted(map(str, data.keys(include_nested=True, leaves_only=True)))
        raise KeyError(f"{type(self).__name__}: there is no entry {key!r} in the data. Found {entries}.")

    def kept_entry(self, key: Key, tensordict: TensorDictBase) -> torch.Tensor:
        """Return an entry that the transform keeps from step to step, of the root of a step.

        Raises:
            KeyError: the data lacks it.
        """
        value: torch.Tensor | None = find_entry(tensordict, key)
        if value is None:
            raise KeyError(
                f"{type(self).__name__}: there is no {key!r} in the data given to step. Step what reset, step_mdp or "
                "step_and_maybe_reset returned, with an action added to it. Found "
                f"{sorted(map(str, tensordict.keys(include_nested=True, leaves_only=True)))}."
            )
        return value

    # -- without an environment -----------------------------------------------------------------------------------

    @dispatch(source="in_keys", dest="out_keys")
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Transform data that comes from no environment: a batch of a replay buffer, or the input of a module.

        A class that overrides ``_apply_transform`` transforms the ``in_keys`` of the data: add ``("next", key)`` for
        entries below ``"next"``. A key that is only there is read there. Any other class does to the root and to
        ``"next"`` what it does in an environment. If it keeps values from step to step, it needs steps over time,
        ``[*B, T]``, and begins anew behind ``("next", "done")`` and where ``("collector", "traj_ids")`` changes.

        With values by name instead of a TensorDict, it returns the results: ``transform(pixels=image)``.

        Args:
            tensordict: data of any batch size. Its entries are replaced; their tensors are not changed.

        Returns:
            ``tensordict``.

        Raises:
            KeyError: an entry is missing.
            SpecError: the class keeps values from step to step, and the data is no sequence of steps.
            NotSupported: the class needs an environment, see ``needs_env``.
        """
        if self.needs_env:
            raise NotSupported(
                f"{type(self).__name__} {self.does} and cannot be applied to stored data. Append it to the environment "
                f"that collects the data: env.append_transform({type(self).__name__}(...))."
            )
        if self._writes("_apply_transform"):
            return pair_hook(self.pairs_in(tensordict), self._apply_transform, self.missing_entry)(tensordict)
        return on_stored_steps(self, tensordict)

    def pairs_in(self, data: TensorDictBase) -> list[tuple[Key, Key]]:
        """Return ``key_pairs`` as they are in stored data: a key that is only below ``"next"`` is read there."""
        return [
            (below_next(key), below_next(out_key))
            if find_entry(data, key) is None and find_entry(data, below_next(key)) is not None
            else (key, out_key)
            for key, out_key in self.key_pairs
        ]

    @dispatch(source="in_keys_inv", dest="out_keys_inv")
    def inv(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Apply the inverse to a shallow copy of ``tensordict`` and return it."""
        return self._inv_call(tensordict.copy())

    def _check_batched_worker_compat(self) -> None:
        """Check that an environment with this transform works inside a batch. By default, it does.

        Raises:
            NotSupported: it does not.
        """

    def dump(self, *args: Any, **kwargs: Any) -> None:
        """Write out recorded data. Does nothing by default; the arguments depend on the class."""

    @property
    def missing_tolerance(self) -> bool:
        """Whether missing entries are skipped instead of raising an error."""
        return self._missing_tolerance

    def set_missing_tolerance(self, mode: bool = False) -> ExitStack:
        """Skip missing entries, or not, here and in the transforms of a Compose.

        As a context manager, for a while::

            def _reset(self, tensordict, tensordict_reset):
                with self.set_missing_tolerance(True):
                    return self._call(tensordict_reset)
        """
        restore = ExitStack()
        for part in self.modules():
            if isinstance(part, Transform):
                restore.callback(setattr, part, "_missing_tolerance", part._missing_tolerance)
                part._missing_tolerance = bool(mode)
        return restore

    def clone(self: _T) -> _T:
        """Return a transform with the same settings, buffers and parameters that belongs to no environment."""
        twin = type(self).__new__(type(self))
        state: dict[str, Any] = self.__getstate__()
        for name in ("_buffers", "_parameters", "_modules"):
            state[name] = state[name].copy()
        vars(twin).update(state)
        return twin

    def __repr__(self) -> str:
        # Keys as they were assigned, because reading the default keys may start an environment.
        values = {name: vars(self).get(f"_{name}", vars(self).get(name)) for name in self._repr_keys()}
        parts = [f"{name}={value}" for name, value in values.items() if value]
        return f"{type(self).__name__}({', '.join(parts)})"

    def _repr_keys(self) -> Iterable[str]:
        return ("in_keys", "out_keys", "in_keys_inv", "out_keys_inv")


def _same_choice(before: Spec | None, after: Spec | None) -> bool:
    """Return whether two specs of an action are equal, apart from the masks that they show."""
    return _unmasked(before) == _unmasked(after)


def _unmasked(spec: Spec | None) -> Spec | None:
    if spec is None or spec.choice_form is None or spec.rows_differ:
        return spec
    unmasked: Any = spec.clone()
    unmasked.update_mask(None)
    return unmasked  # type: ignore[no-any-return]
