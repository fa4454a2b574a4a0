"""Transform: a change to the data and the specs of an environment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import torch
from tensordict import TensorDictBase
from tensordict.nn import dispatch

from steppe.errors import NotSupported, SpecError
from steppe.specs import INPUT_KINDS, OUTPUT_KINDS, Composite, Spec
from steppe.transforms.compiled.hooks import EnvSpecs, Hooks, pair_hook
from steppe.transforms.keys import as_keys, keys_property
from steppe.transforms.overrides import Overrides, changed_specs
from steppe.transforms.placed import Placed
from steppe.transforms.tolerance import Tolerance

__all__ = ["Transform"]


class Transform(Placed):
    """Changes what an environment returns, or what it is given.

    A subclass writes what it needs of:

    * ``_apply_transform(value)``: one entry. It is called for each of ``in_keys`` after a step, and after a reset where
      the entry is there (a reset has no reward); the result goes to the key of ``out_keys`` at the same place.
    * ``_call(next_tensordict)``: all data of a step at once, in place of the above; write into it and return it.
    * ``_step(tensordict, next_tensordict)``: the same, with the root that the step began from, as the environment
      before this transform was given it: ``self.parent.step(tensordict)`` would take the same step. It is a copy.
    * ``_reset(tensordict, tensordict_reset)``: the data of a reset. The first argument is what ``reset`` was given,
      with its ``"_reset"`` masks (an empty TensorDict for nothing); rows that are not reset keep their values whatever
      is returned for them.
    * ``_inv_apply_transform(value)``, ``_inv_call(tensordict)``: what ``step`` is given, on the way to the environment.
      In a chain the last transform comes first. The data is a copy: write into it freely. A class that says
      ``enable_inv_on_reset = True`` has what ``reset`` is given inverted too, missing entries passed over.
    * ``_reset_env_preprocess(tensordict)``: what ``reset`` is given, on the way to the environment; may be None.
    * ``transform_observation_spec``, ``transform_reward_spec``, ``transform_done_spec``, ``transform_action_spec``,
      ``transform_state_spec``: given an unlocked Composite of the environment before, change and return it. Or all at
      once: ``transform_output_spec``, ``transform_input_spec``.

    ``forward`` and ``inv`` are for data that comes from no environment.

    Tensors are never changed in place: the environment, or the caller, may still hold them. What a transform has to
    remember from step to step (a count, a sum) is an entry of the data, in the observation and the state spec: so it
    follows each row through batches, clones, partial steps and resets.

    A transform belongs to one environment or :class:`~steppe.transforms.Compose`; ``clone`` it to use it in another.

    Args:
        in_keys: keys to read after a step or reset, a list. A key is a name, or a tuple of names; one key needs no
            list. Without it those that :meth:`default_keys` finds in the environment.
        out_keys: keys to write, one for each (any number for a class that writes ``_call`` or ``_step``); by
            default those of ``in_keys``.
        in_keys_inv: keys that the environment reads, of actions and states.
        out_keys_inv: the keys that the caller writes for them; by default those of ``in_keys_inv``.

    Raises:
        SpecError: there are not as many keys to write as to read.

    Attributes:
        writes_done: it may end an episode or skip a step. The environment is then reset after the transforms have run,
            in a trip of its own. By default so where the class writes ``_call`` or ``_step``.
        only_ends: of a transform that writes done: it never clears an end that the environment has found. Then only
            the rows that it ends itself need the second trip.
        writes_step: its inverse may write a mask ``"_step"`` that leaves rows out of a step. By default so where the
            class writes ``_inv_call``.
        masks_actions: it changes the mask of an action's spec while the environment runs. A batch around it then has
            its environments draw random actions themselves.
        invertible: whether ``inv`` undoes what ``forward`` does; for readers of the class.
        enable_inv_on_reset: whether what ``reset`` is given goes through the inverse.
    """

    invertible: bool = False
    enable_inv_on_reset: bool = False
    only_ends: bool = False
    masks_actions: bool = False
    #: Whether it forgets the tensors it is given when it returns. Otherwise it gets copies: rows are written again.
    keeps_nothing: bool = False
    #: What ``shared_key`` is made of: the class that has written one of these methods answers for its other methods.
    key_methods: ClassVar[tuple[str, ...]] = ("shared_key",)

    # Keys as they were given; None where nobody has.
    _in_keys: list[Any] | None = None
    _out_keys: list[Any] | None = None
    _in_keys_inv: list[Any] | None = None
    _out_keys_inv: list[Any] | None = None
    _found_keys: list[Any] | None = None
    _missing_tolerance: bool = False

    def __init__(
        self, in_keys: Any = None, out_keys: Any = None, in_keys_inv: Any = None, out_keys_inv: Any = None
    ) -> None:
        super().__init__()
        given = {"in_keys": in_keys, "out_keys": out_keys, "in_keys_inv": in_keys_inv, "out_keys_inv": out_keys_inv}
        for name, keys in given.items():
            if keys is not None:
                setattr(self, name, keys)
        # A class that writes these methods may read many keys and write few.
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
        """Whether it may end an episode. A class says so with an attribute of this name."""
        return self._writes("_call") or self._writes("_step")

    @property
    def changes_next_root(self) -> bool:
        """Whether the class writes ``_post_step_mdp_hooks``."""
        return self._writes("_post_step_mdp_hooks")

    @property
    def writes_step(self) -> bool:
        """Whether its inverse may leave rows out of a step. A class says so with an attribute of this name."""
        return self._writes("_inv_call")

    # -- what a subclass writes -----------------------------------------------------------------------------------

    def _apply_transform(self, value: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not define _apply_transform(value).")

    def _inv_apply_transform(self, value: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not define _inv_apply_transform(value).")

    def _call(self, next_tensordict: TensorDictBase) -> TensorDictBase:
        """Write ``_apply_transform`` of each of ``in_keys`` to its ``out_keys``, in place."""
        missing = None if self.missing_tolerance else self._missing
        return pair_hook(self._pairs, self._apply_transform, missing)(next_tensordict)

    def _inv_call(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write ``_inv_apply_transform`` of each of ``out_keys_inv`` to its ``in_keys_inv``, in place."""
        missing = None if self.missing_tolerance else self._missing
        return pair_hook(self._inverse_pairs, self._inv_apply_transform, missing)(tensordict)

    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        """Transform the data of a step, ``next_tensordict``; ``tensordict`` is the root that it began from."""
        return self._call(next_tensordict)

    def _reset(self, tensordict: TensorDictBase | None, tensordict_reset: TensorDictBase) -> TensorDictBase:
        """Transform the data of a reset; by default ``_apply_transform`` on those of ``in_keys`` that are there."""
        if self._writes("_apply_transform"):
            return pair_hook(self._pairs, self._apply_transform, None)(tensordict_reset)
        return tensordict_reset

    def _reset_env_preprocess(self, tensordict: TensorDictBase | None) -> TensorDictBase | None:
        """Change what ``reset`` was given before the environment sees it."""
        if not self.enable_inv_on_reset or tensordict is None:
            return tensordict
        with self.set_missing_tolerance(True):
            return self._inv_call(tensordict)

    def _post_step_mdp_hooks(
        self, tensordict: TensorDictBase, tensordict_: TensorDictBase
    ) -> tuple[TensorDictBase, TensorDictBase]:
        """Change the data of a step and the root of the next one, where ``step_mdp`` makes it; return both."""
        return tensordict, tensordict_

    def _set_seed(self, seed: int | None) -> None:
        """Seed what is random in the transform; called by ``set_seed`` of its environment."""

    def shared_key(self) -> Any:
        """What the transforms of several environments have in common, so that one of them may serve all rows at once.

        Returns:
            A value to compare: the type and all settings. The methods then take data with any leading dimensions. None,
            the default, runs each for its own row, on data of the shapes that its environment has: right for whatever
            is random, has buffers or parameters, or counts dimensions from the front.
        """
        return None

    def key_of_rows(self) -> Any:
        """``shared_key``, or None where a subclass has written methods over those of the class that says it."""
        return None if all(self._overrides.of_methods(name) for name in self.key_methods) else self.shared_key()

    def inverse_kernel(self, leaf: Spec) -> Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]] | None:
        """Prepare ``_inv_apply_transform`` for steps of a single environment: whatever can be worked out before these.

        In numpy, a few numbers take a fraction of the time that torch takes. It is not asked where a subclass has
        written another ``_inv_apply_transform`` since.

        Args:
            leaf: the spec of the action that the environment before this transform takes.

        Returns:
            A function of one action ``[*shape]`` of the caller, an array that it is not to change or to keep, that
            returns the action of the environment; None, the default, where ``_inv_apply_transform`` is to be called.
            Results are those of ``_inv_apply_transform``, to the bit.
        """
        return None

    def kernel_of_inverse(self, leaf: Spec) -> Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]] | None:
        """``inverse_kernel``, or None where a subclass has written another ``_inv_apply_transform``."""
        owner = self._overrides.owner_of("inverse_kernel")
        return None if self._writes("_inv_apply_transform", owner) else self.inverse_kernel(leaf)

    # -- specs ----------------------------------------------------------------------------------------------------

    def transform_observation_spec(self, observation_spec: Composite) -> Composite:
        """Change the spec of observations, in place or not, and return it."""
        return observation_spec

    def transform_reward_spec(self, reward_spec: Composite) -> Composite:
        """Change the spec of rewards."""
        return reward_spec

    def transform_done_spec(self, done_spec: Composite) -> Composite:
        """Change the spec of done entries."""
        return done_spec

    def transform_action_spec(self, action_spec: Composite) -> Composite:
        """Change the spec of actions: what the caller is to give."""
        return action_spec

    def transform_state_spec(self, state_spec: Composite) -> Composite:
        """Change the spec of states: what a step reads beside the action."""
        return state_spec

    def transform_output_spec(self, output_spec: Composite) -> Composite:
        """Change the entries ``full_observation_spec``, ``full_reward_spec`` and ``full_done_spec``."""
        for kind in OUTPUT_KINDS:
            name = f"full_{kind}_spec"
            if name in output_spec.keys():
                output_spec[name] = getattr(self, f"transform_{kind}_spec")(output_spec[name])
        return output_spec

    def transform_input_spec(self, input_spec: Composite) -> Composite:
        """Change the entries ``full_action_spec`` and ``full_state_spec``."""
        for kind in INPUT_KINDS:
            name = f"full_{kind}_spec"
            if name in input_spec.keys():
                input_spec[name] = getattr(self, f"transform_{kind}_spec")(input_spec[name])
        return input_spec

    def transform_env_batch_size(self, batch_size: torch.Size) -> torch.Size:
        """Change the batch size of the environment."""
        return batch_size

    def transform_env_device(self, device: torch.device | None) -> torch.device | None:
        """Change the device of the environment's data."""
        return device

    def transform_specs(self, specs: EnvSpecs) -> EnvSpecs:
        """Return what the environment looks like behind this transform.

        For transforms whose entries depend on several specs at once; the methods above do for the others.

        Args:
            specs: of the environment with the transforms before this one; locked, not to be changed.
        """
        return changed_specs(
            self, specs, self.transform_output_spec(specs.output), self.transform_input_spec(specs.input)
        )

    def memory_spec(self, specs: EnvSpecs) -> Composite | None:
        """Say what the transform remembers from step to step that nobody else is to see or change.

        What others may see (a count, a sum) is better an entry of the observation and the state spec: it can be read,
        and edited. Memory is for what a later transform may rewrite, such as frames that are stacked before they are
        normalized. It is in the data too, so that it follows each row through batches, partial steps and clones; read
        it from the root in ``_step``, write it in ``_step`` and ``_reset``. Rollouts and collectors leave it out.

        Args:
            specs: of the environment with the transforms before this one; locked, not to be changed.

        Returns:
            A Composite of the environment's batch size, whose names begin with an underscore; None for nothing.
        """
        return None

    def default_keys(self, specs: EnvSpecs | None) -> list[Any]:
        """Say which entries are read where no ``in_keys`` were given: those of every group of agents, say.

        Args:
            specs: of the environment with the transforms before this one; None for data that comes from none.

        Returns:
            Keys, none by default. ``specs_behind``, ``hooks`` and the methods that they call see them as ``in_keys``.
        """
        return []

    def find_keys(self, specs: EnvSpecs) -> None:
        """Take :meth:`default_keys` of an environment, where no ``in_keys`` were given."""
        if self._in_keys is None and self._writes("default_keys"):
            self._found_keys = as_keys(self.default_keys(specs))

    def _keys_read(self) -> list[Any]:
        """What ``in_keys`` is, where none were given."""
        found = self._found_keys
        if found is None and self._writes("default_keys"):
            env = self.parent
            found = as_keys(self.default_keys(None if env is None else EnvSpecs.of(env)))
            if env is not None:
                self._found_keys = found
        return list(found or ())

    def specs_behind(self, specs: EnvSpecs) -> EnvSpecs:
        """What ``transform_specs`` returns, with what :meth:`memory_spec` says as observations and states.

        A subclass that writes methods for single specs over ``transform_specs`` is followed.

        Raises:
            SpecError: a name of the memory does not begin with an underscore, or is there already.
        """
        self.find_keys(specs)
        return self._overrides.specs_behind(specs)

    def hooks(self, specs: EnvSpecs) -> Hooks:
        """Say what the transform does in an environment: called once its specs are known, so that steps are fast.

        Args:
            specs: of the environment with the transforms before this one.

        Returns:
            Callables for step, reset and the inverse; None where there is nothing to do. By default the methods that
            the class has written.
        """
        return self._overrides.method_hooks(specs, Transform)

    def hooks_in(self, specs: EnvSpecs) -> Hooks:
        """Return :meth:`hooks`, with the methods that a subclass has written over them in their place."""
        self.find_keys(specs)
        return self._overrides.hooks(specs)

    @property
    def _overrides(self) -> Overrides:
        return Overrides(self, Transform)

    def _writes(self, name: str, owner: type | None = None) -> bool:
        return self._overrides.has(name, owner)

    @property
    def _pairs(self) -> list[tuple[Any, Any]]:
        return self._zipped("in_keys", "out_keys")

    @property
    def _inverse_pairs(self) -> list[tuple[Any, Any]]:
        return [(out_key, key) for key, out_key in self._zipped("in_keys_inv", "out_keys_inv")]

    def _zipped(self, first: str, second: str) -> list[tuple[Any, Any]]:
        """Each key of one attribute with that of the other in its place."""
        read, written = getattr(self, first), getattr(self, second)
        if len(read) != len(written):
            raise SpecError(
                f"{type(self).__name__}: {first} and {second} must have the same length, found {read} and {written}."
            )
        return list(zip(read, written, strict=True))

    def _missing(self, key: Any, data: TensorDictBase) -> None:
        if self.missing_tolerance:
            return
        found = sorted(map(str, data.keys(include_nested=True, leaves_only=True)))
        raise KeyError(f"{type(self).__name__}: there is no entry {key!r} in the data. Found {found}.")

    def _forget_parent(self) -> None:
        super()._forget_parent()
        vars(self).pop("_found_keys", None)

    # -- without an environment -----------------------------------------------------------------------------------

    @dispatch(source="in_keys", dest="out_keys")
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Transform data that is there already: a batch from a replay buffer, or in a module.

        By default ``_apply_transform`` on each of ``in_keys``; ``_call`` and ``_step`` are for environments alone. Also
        takes the values by name instead of a TensorDict, and returns the results: ``transform(pixels=image)``.

        Args:
            tensordict: any batch size. Its entries are replaced in place; their tensors are not changed.

        Returns:
            ``tensordict``.

        Raises:
            KeyError: one of ``in_keys`` is missing.
        """
        return pair_hook(self._pairs, self._apply_transform, self._missing)(tensordict)

    @dispatch(source="in_keys_inv", dest="out_keys_inv")
    def inv(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Apply the inverse to a shallow copy of ``tensordict`` and return it."""
        return self._inv_call(tensordict.copy())

    def _check_batched_worker_compat(self) -> None:
        """Refuse to be in an environment inside a batch, where that can not work.

        Raises:
            NotSupported: the class writes ``_post_step_mdp_hooks``, and a batch makes its roots itself.
        """
        if self.changes_next_root:
            raise NotSupported(
                f"{type(self).__name__} changes the root of the next step, which a batch makes itself. Put it around "
                "the batch: TransformedEnv(SerialEnv(...), transform)."
            )

    def init(self, tensordict: TensorDictBase) -> None:
        """Prepare for data like ``tensordict``: for callers outside steppe. By default there is nothing to do."""

    def dump(self, *args: Any, **kwargs: Any) -> None:
        """Write out what the transform has gathered, if it gathers anything. Each class has arguments of its own."""

    def transform_fake_tensordict(self, fake_tensordict: TensorDictBase) -> TensorDictBase:
        """Change what ``fake_tensordict`` of the environment returns, where the specs do not say all."""
        return fake_tensordict

    @property
    def missing_tolerance(self) -> bool:
        """Whether entries that are missing are passed over instead of being an error."""
        return self._missing_tolerance

    def set_missing_tolerance(self, mode: bool = False) -> Tolerance:
        """Pass over missing entries, or not; also a context manager that restores what was before."""
        return Tolerance(self, mode)

    def clone(self) -> Any:
        """Return a transform of the same settings, with the same buffers and parameters, that belongs to nothing."""
        twin = type(self).__new__(type(self))
        state = self.__getstate__()
        for name in ("_buffers", "_parameters", "_modules"):
            state[name] = state[name].copy()
        vars(twin).update(state)
        return twin

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        state.pop("_found_keys", None)
        return state

    def __repr__(self) -> str:
        # Keys as they were given: to work them out may start an environment.
        values = {name: vars(self).get(f"_{name}", vars(self).get(name)) for name in self._repr_keys()}
        parts = [f"{name}={value}" for name, value in values.items() if value]
        return f"{type(self).__name__}({', '.join(parts)})"

    def _repr_keys(self) -> Iterator[str]:
        yield from ("in_keys", "out_keys", "in_keys_inv", "out_keys_inv")
