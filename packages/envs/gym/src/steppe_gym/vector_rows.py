"""VectorRows: step a batch through its row writer, with arrays instead of TensorDicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from steppe.batched import BatchedEnv, Dispatched
from steppe.envs import Ended, EnvBase, Loop
from steppe.errors import NotSupported, StateError
from steppe.specs import Composite
from steppe.transforms import TransformedEnv

from .info_rows import CODE, DATA, Field, InfoReader, Signature
from .space_leaves import SpaceLeaves
from .spec_values import SpecValues
from .vector_row import DISABLED, NEXT_STEP, SAME_STEP

__all__ = ["VectorRows"]


class VectorRows:
    """The rows of a batch for an API of arrays, such as gymnasium's VectorEnv or the VecEnv of Stable-Baselines3.

    >>> rows = VectorRows(SerialEnv(2, "gym:CartPole-v1"), "SameStep")  # doctest: +SKIP
    >>> observation = rows.reset(seeds=[0, 1])  # doctest: +SKIP
    >>> observation, reward, terminated, truncated = rows.step(np.array([0, 1]))  # doctest: +SKIP

    A batch of :class:`VectorRow` has the spaces, rewards and infos of the library's environments. Other batches have
    spaces that are made from their specs, and infos that are entries of their data.

    Args:
        batch: an environment with one batch dimension.
        autoreset: when rows that have ended are reset: ``"NextStep"``, ``"SameStep"`` or ``"Disabled"``.
        copy: return copies of observations. Otherwise later calls change what earlier ones returned.
        observation_mode: ``"same"``: the observation spaces of the library's environments are equal; others are
            refused. Otherwise they may differ in their bounds.
        library: the library of the spaces, ``"gymnasium"`` or ``"gym"``.
        info_keys: entries of observations that are infos instead. None: those of the info readers of the environments.
        dict_observations: observations are a dict even if there is only one entry.

    Attributes:
        n: the number of rows.
        observation_space, action_space: of one row.
        observation_spaces: of each row of the library's environments; otherwise an empty list.
        metadata, render_mode: of the first environment.
        of_library: whether the rows are those of VectorRow.
        began: rows that the last step has reset, with SameStep.
        final_observations, final_infos: by row the last observation and the last info of the episodes that have ended
            in the last step, with SameStep.

    Raises:
        NotSupported: the data of the batch does not fit into rows of arrays.
    """

    def __init__(
        self,
        batch: EnvBase,
        autoreset: str,
        *,
        copy: bool = True,
        observation_mode: Any = "same",
        library: str = "gymnasium",
        info_keys: Sequence[Any] | None = None,
        dict_observations: bool = False,
    ) -> None:
        if len(batch.batch_size) != 1:
            raise NotSupported(
                f"A vector environment has one batch dimension, and {batch!r} has batch size "
                f"{tuple(batch.batch_size)}: pass SerialEnv(n, make) or ParallelEnv(n, make)."
            )
        descriptions = _descriptions(batch)
        self.of_library = bool(descriptions)
        if self.of_library:
            self._check_spaces(descriptions, observation_mode)
        writer = batch.row_writer
        if writer is None:
            raise NotSupported(f"{batch!r} cannot be a vector environment: {batch.no_row_writer_reason}")
        self.batch, self.autoreset, self.copy = batch, autoreset, copy
        self._writer, self.n, layout = writer, writer.n, writer.layout
        rows = writer.new_rows()
        self.loop = loop = Loop(writer, rows)
        self._root, self._next = rows.root, rows.next
        self._decode, self._step, self._step_and_reset = writer.decode, loop.step, loop.step_and_reset
        observed = [key for key, _, _ in layout.observations]
        # A step begins at `next` of the step before, as the environments of a batch on TensorDicts read it.
        self._copies_roots = bool(layout.root_inputs or layout.flags_every_step)
        self._current = [(self._next[key], self._root[key]) for key in observed if key not in (CODE, DATA)]
        self._all = list(range(self.n))
        self._ended = np.zeros(self.n, bool)
        self.began: list[int] = []
        self.final_observations: dict[int, Any] = {}
        self.final_infos: dict[int, dict[str, Any]] = {}
        self._infos: dict[int, dict[str, Any]] | None = {}
        self._info_keys: list[tuple[str, Any]] = []
        self.observation_spaces: list[Any] = []
        reward_key = batch.reward_keys[0]
        if len(batch.reward_keys) > 1:
            raise NotSupported(
                f"A vector environment has one reward, but {batch!r} has {batch.reward_keys}. Combine them to one in a "
                "transform."
            )
        self._reward = _column(self._next[reward_key])
        done = self._next["done"]
        self._terminated = _column(self._next.get("terminated", done))
        self._truncated = _column(self._next["truncated"]) if "truncated" in self._next else None
        self._values: SpaceLeaves | SpecValues
        self._actions: SpaceLeaves | SpecValues
        self._infos_of: list[InfoReader] = []
        self._loose: list[list[Any]] = []
        self._resets_inside = self.of_library and autoreset == NEXT_STEP
        if self.of_library:
            self._describe(descriptions)
        else:
            entries = layout.root_spec.exclude(*layout.done_keys)
            if info_keys is None:
                read = _of_first(batch, "info_keys", set) or set()
                info_keys = [key for key in entries.keys(include_nested=True, leaves_only=True) if key in read]
            self._describe_specs(entries, layout.actions.spec, library, info_keys, dict_observations)

    # -- spaces -----------------------------------------------------------------------------------------------------

    def _check_spaces(self, descriptions: list[dict[str, Any]], observation_mode: Any) -> None:
        first = descriptions[0]
        for i, other in enumerate(descriptions):
            for name in ("observation_space", "action_space"):
                a, b = first[name], other[name]
                fits = a == b
                if name == "observation_space" and observation_mode != "same":
                    fits = _arrays(a) == _arrays(b)
                if not fits:
                    raise RuntimeError(
                        f"All environments of a vector environment have equal spaces, but the {name} of environment "
                        f"{i} is {b}, and that of environment 0 is {a}. observation_mode='different' allows different "
                        "bounds."
                    )

    def _describe(self, descriptions: list[dict[str, Any]]) -> None:
        first = descriptions[0]
        self.observation_spaces = [each["observation_space"] for each in descriptions]
        self.observation_space, self.action_space = first["observation_space"], first["action_space"]
        self.metadata, self.render_mode = dict(first["metadata"]), first["render_mode"]
        self._values = values = SpaceLeaves(self.observation_space, "observation")
        self._actions = SpaceLeaves(self.action_space, "action")
        self._loose = [[None] * self.n for _ in values.loose]
        batch: Any = self.batch
        # Looking up a method of the environments asks each of them for it, so it is looked up once.
        self._take_loose = batch.take_loose_action
        self._prepare, self._call, self._set = batch.prepare_reset, batch.call_library, batch.set_library
        waiting, known = batch.take_waiting, batch.known_signatures
        signatures: list[dict[int, Signature]] = [{} for _ in range(self.n)]
        self._infos_of = [
            InfoReader(arrays, signatures, self._loose, fetch=waiting, fetch_known=known, place=place)
            for place, arrays in (("next", self._next), ("root", self._root))
        ]

    def _describe_specs(
        self, observation: Composite, action: Composite, library: str, info_keys: Sequence[Any], as_dict: bool
    ) -> None:
        kept = observation.exclude(*info_keys)
        self._values = SpecValues(kept, "observation", library, whole=as_dict)
        self._actions = SpecValues(action, "action", library)
        self.observation_space, self.action_space = self._values.space, self._actions.space
        self._info_keys = [(key if isinstance(key, str) else ".".join(key), key) for key in info_keys]
        self.metadata = dict(_of_first(self.batch, "metadata", Mapping) or {})
        self.render_mode = _of_first(self.batch, "render_mode", str)

    # -- steps and resets -------------------------------------------------------------------------------------------

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
        """Step all rows.

        Args:
            actions: batched values of the action space.

        Returns:
            Observations, rewards ``[n]`` float64, terminated and truncated ``[n]`` bool. With NextStep, a row whose
            episode has ended in the step before is reset instead: its action is ignored and its reward is 0.

        Raises:
            StateError: with Disabled, a row has ended and has not been reset.
        """
        decoded = self._decode(self._actions.split(actions, self.n))
        self._infos = None
        if isinstance(self._actions, SpaceLeaves) and self._actions.loose:
            self._take_loose(self._actions.split_loose(actions, self.n))
        if self._resets_inside:
            self._step(decoded)
        elif self.autoreset == SAME_STEP:
            return self._same_step(decoded)
        elif self.autoreset == NEXT_STEP and self._ended.any():
            return self._next_step(decoded)
        else:
            if self.autoreset == DISABLED and self._ended.any():
                raise StateError(
                    f"The episodes of environments {np.flatnonzero(self._ended).tolist()} have ended: reset them with "
                    "reset(options={'reset_mask': mask}). With autoreset_mode='next_step' or 'same_step', they "
                    "are reset automatically."
                )
            self._step(decoded)
            if self._copies_roots:
                self.loop.copy_root_inputs()
        return self._outputs()

    def _outputs(self) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
        reward, terminated = self._reward.astype(np.float64), self._terminated.copy()
        truncated = np.zeros(self.n, bool) if self._truncated is None else self._truncated.copy()
        if not self._resets_inside:
            self._ended = terminated | truncated
        return self.observation(), reward, terminated, truncated

    def observation(self) -> Any:
        """Return the current observation of all rows."""
        values = self._values
        if isinstance(values, SpaceLeaves):
            if self._loose:
                self.infos()  # which have the loose parts
            return values.batched(self._next, self._loose, copy=self.copy)
        return values.batched(self._next, copy=self.copy)

    def _same_step(self, decoded: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
        ended = self._step_and_reset(decoded)
        self.began, self.final_observations, self.final_infos = [], {}, {}
        if ended:
            self._swap_last(ended)
        elif self._copies_roots:
            self.loop.copy_root_inputs()
        return self._outputs()

    def _swap_last(self, ended: Ended) -> None:
        """Keep the last observations and infos of rows that were reset, and put the first ones in their place."""
        self.began = began = [row for row, _, _ in ended]
        infos = self.infos()
        self.final_infos = {row: infos.pop(row, {}) for row in began}
        values = self._values
        for row in began:
            if isinstance(values, SpaceLeaves):
                self.final_observations[row] = values.one(self._next, row, self._loose)
            else:
                self.final_observations[row] = values.one(self._next, row)
        if self._copies_roots:
            self.loop.copy_root_inputs(began)
        self._show_roots(began)
        if not self.of_library:
            self._infos = None  # the entries of these rows are those of the reset now

    def _next_step(self, decoded: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
        """Reset the rows that have ended in the step before, and step the others."""
        resets = np.flatnonzero(self._ended).tolist()
        others = np.flatnonzero(~self._ended).tolist()
        if others:
            try:
                self._step(decoded if len(decoded) == 0 else [decoded[row] for row in others], others)
            except NotSupported as error:
                raise NotSupported(f"{error} Make the vector environment with autoreset_mode='same_step'.") from error
        self._reset_rows(resets)
        reward = self._reward.astype(np.float64)
        reward[resets] = 0.0
        flags = [self._terminated.copy(), self._truncated.copy() if self._truncated is not None else None]
        terminated, truncated = (np.zeros(self.n, bool) if flag is None else flag for flag in flags)
        terminated[resets] = truncated[resets] = False
        self._ended = terminated | truncated
        if self._copies_roots:
            self.loop.copy_root_inputs(resets)
        return self.observation(), reward, terminated, truncated

    def reset(
        self, seeds: Sequence[int | None] | None = None, options: Any = None, mask: np.ndarray | None = None
    ) -> Any:
        """Reset all rows, or those of a mask, and return the observations of all rows.

        Args:
            seeds: the seed of each row.
            options: the ``options`` of the library's ``reset``, or a list of those of each row.
            mask: which rows.
        """
        at = self._all if mask is None else np.flatnonzero(mask).tolist()
        if self.of_library:
            if seeds is not None or options is not None:
                _checked(self._prepare(at, seeds, options))
        else:
            self._seed(seeds, options)
        self.began, self.final_observations, self.final_infos, self._infos = [], {}, {}, {}
        self._reset_rows(at)
        self._ended[at] = False
        return self.observation()

    def _reset_rows(self, at: list[int]) -> None:
        self.loop.reset(at)
        self._show_roots(at)
        if not self.of_library:
            self._infos = None

    def _show_roots(self, at: list[int]) -> None:
        """Make the roots of rows that were reset the current observations."""
        if self._infos_of:
            assert self._infos is not None
            self._infos.update(self._infos_of[1].rows(at))
        index: Any = slice(None) if len(at) == self.n else at
        for current, root in self._current:
            current[index] = root[index]

    def _seed(self, seeds: Sequence[int | None] | None, options: Any) -> None:
        if options:
            raise NotSupported(f"{self.batch!r} takes no options of a reset, found {options!r}.")
        if seeds is None:
            return
        batch: Any = self.batch
        if hasattr(batch, "__getitem__"):
            for row, seed in enumerate(seeds):
                if seed is not None:
                    batch[row].set_seed(seed)
        elif seeds[0] is not None:
            batch.set_seed(seeds[0])

    # -- infos ------------------------------------------------------------------------------------------------------

    def infos(self) -> dict[int, dict[str, Any]]:
        """Return the infos of the last step or reset by row; rows without an info are left out.

        The info of a row that the step has reset is that of the reset; ``final_infos`` has that of the step.
        """
        if self._infos is None:
            if self._infos_of:
                self._infos = self._infos_of[0].rows()
            else:
                arrays = [(name, self._next[key]) for name, key in self._info_keys]
                rows = self._all if arrays else []
                self._infos = {row: {name: array[row].copy() for name, array in arrays} for row in rows}
        return self._infos

    def info_columns(self) -> list[tuple[str, str, np.ndarray, Field | None]] | None:
        """Return key, name of the mask and values ``[n, ...]`` of each info of the last step, as views.

        None if the rows have different infos: :meth:`infos` reads them. A field says which types the values have.
        """
        if self.final_observations:
            return None
        if self._infos is not None:
            return None if self._infos else []
        if not self._infos_of:
            return [(name, f"_{name}", self._next[key], None) for name, key in self._info_keys]
        reader = self._infos_of[0]
        return [] if reader.empty else reader.columns()  # type: ignore[return-value]

    # -- the environments -------------------------------------------------------------------------------------------

    def call(
        self,
        name: str,
        args: tuple[Any, ...] | None = (),
        kwargs: dict[str, Any] | None = None,
        rows: Sequence[int] | None = None,
    ) -> tuple[Any, ...]:
        """Read an attribute of some environments, all by default, and call it if it is callable.

        Args:
            name: the attribute.
            args: positional arguments of the call; None only reads the attribute.
            kwargs: keyword arguments of the call.
            rows: the environments.
        """
        rows = self._all if rows is None else rows
        if self.of_library:
            answers = _checked(self._call(name, args, kwargs or {}, rows))
            return tuple(answers[row] for row in rows)
        found: Any = getattr(self.batch, name)
        if args is not None and callable(found):
            try:
                found = found(*args, **(kwargs or {}))
            except Exception as error:  # a batch calls an attribute in its environments without asking what it is
                if "not callable" not in str(error):
                    raise
        values = list(found) if hasattr(found, "__iter__") else [found] * self.n
        return tuple(values[row] for row in rows)

    def set(self, name: str, values: Sequence[Any], rows: Sequence[int] | None = None) -> None:
        """Set an attribute of some environments, all by default.

        Args:
            name: the attribute.
            values: a value for each row of the batch.
            rows: the environments.

        Raises:
            AttributeError: a batch of steppe has environments without this attribute.
            NotSupported: the batch does not consist of environments.
        """
        rows = self._all if rows is None else list(rows)
        if self.of_library:
            _checked(self._set(name, list(values), rows))
            return
        batch: Any = self.batch
        while isinstance(batch, TransformedEnv):
            batch = batch.base_env
        if not isinstance(batch, BatchedEnv):
            raise NotSupported(f"{batch!r} is one object of its library: set its attributes, not those of single rows.")
        if not isinstance(getattr(batch, name), Dispatched):
            raise AttributeError(f"{name!r} is an attribute of {batch!r} itself: set it there.")
        setattr(batch[rows], name, [values[row] for row in rows])

    def has(self, name: str) -> bool:
        """Return whether all environments have an attribute."""
        batch: Any = self.batch
        return all(batch.has_library(name)) if self.of_library else hasattr(batch, name)

    def are_wrapped(self, kind: type) -> list[bool]:
        """Return of each environment whether a wrapper of this class is around it."""
        batch: Any = self.batch
        return list(batch.is_wrapped(kind)) if self.of_library else [False] * self.n

    def action_mask(self) -> np.ndarray | None:
        """Return the current mask of the actions of a batch that declares one, ``[n, *shape]``; otherwise None."""
        masks = {} if self.of_library else self.batch.action_masks
        return None if len(masks) != 1 else self._next[next(iter(masks.values()))].copy()

    def close(self) -> None:
        """Close the batch."""
        if not self.batch.is_closed:
            self.batch.close()


def _descriptions(batch: Any) -> list[dict[str, Any]]:
    """Return what VectorRows say about their environments; an empty list for other batches."""
    if not isinstance(batch, BatchedEnv):
        return []
    try:
        return list(batch.describe_vector_row())
    except AttributeError:
        return []


def _arrays(space: Any) -> list[Any]:
    """Return paths, shapes and dtypes of the arrays of a space, and the paths of its loose parts."""
    leaves = SpaceLeaves(space, "")
    return [*((leaf.path, leaf.shape, leaf.dtype) for leaf in leaves.leaves), *leaves.loose]


def _of_first(batch: EnvBase, name: str, kind: type) -> Any:
    """Return an attribute of a batch, or of its first environment, if it is of this type; otherwise None."""
    value = getattr(batch, name, None)
    if isinstance(value, Dispatched):
        value = value[0]
    return value if isinstance(value, kind) else None


def _checked(answers: Sequence[tuple[bool, Any]]) -> tuple[Any, ...]:
    """Return the results of calls of VectorRow; raise the first exception."""
    for succeeded, result in answers:
        if not succeeded:
            raise result
    return tuple(result for _, result in answers)


def _column(rows: np.ndarray) -> np.ndarray:
    """Return ``[n]`` values of rows ``[n, 1]``, as a view."""
    return rows[:, 0] if rows.ndim == 2 and rows.shape[1] == 1 else rows
