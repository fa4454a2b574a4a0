"""OverHistory: the base class of CatFrames and TimeMaxPool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase

from steppe.errors import SpecError, StateError
from steppe.specs import Composite, Spec, Unbounded
from steppe.transforms import EnvSpecs, Hooks, PlannedTransform, RowHooks, as_key, names_of, replace_last, set_beside

__all__ = ["OverHistory"]


class OverHistory(PlannedTransform):
    """Base class of transforms of an observation and those before it in the episode.

    The last observations are private entries of the data, at the level of each of ``in_keys``, with names that begin
    with two underscores. So they follow each row through partial steps, resets of some rows, batches and copies. A
    reset clears them.

    Args:
        in_keys: observations to read.
        out_keys: keys to write, as many as ``in_keys``. Default: ``in_keys``.
        reset_key: mask of the rows that are reset, if it is not that of the level of the observation.
    """

    changed_kinds = ("observation",)
    over_time = True
    #: Prefix of the names of the private entries.
    memory_name: str

    def __init__(
        self,
        in_keys: NestedKey | Sequence[NestedKey] | None,
        out_keys: NestedKey | Sequence[NestedKey] | None,
        reset_key: NestedKey | None,
    ) -> None:
        super().__init__(in_keys, out_keys)
        if len(self.in_keys) != len(self.out_keys):
            raise SpecError(
                f"{type(self).__name__}: in_keys and out_keys must have the same length, found {self.in_keys} and "
                f"{self.out_keys}."
            )
        self._reset_key = None if reset_key is None else as_key(reset_key)

    @property
    def reset_key(self) -> Any:
        """Key of the mask of the rows that are reset.

        It is the argument, or the first reset mask of the environment.
        """
        if self._reset_key is not None:
            return self._reset_key
        env = self.parent
        return "_reset" if env is None else env.reset_keys[0]

    # -- methods to override ----------------------------------------------------------------------------------------

    def remembered(self, shape: tuple[int, ...], batch_dims: int) -> tuple[int, ...] | None:
        """Return the shape of the private entry of an observation; None if it needs none."""
        raise NotImplementedError

    def result_spec(self, leaf: Spec) -> Spec:
        """Return the spec of the result for the spec of an observation."""
        raise NotImplementedError

    def following(self, value: torch.Tensor, memory: torch.Tensor | None, dims: int) -> Any:
        """Return the result of a step and the new private entry.

        ``dims`` does not count batch dimensions.
        """
        raise NotImplementedError

    def first(self, value: torch.Tensor, dims: int) -> Any:
        """Return the result of a reset and the new private entry.

        ``dims`` does not count batch dimensions.
        """
        raise NotImplementedError

    def kernel(self, arrays: dict[str, Any]) -> Any:
        """Return two functions for blocks of rows: of a step and of a reset.

        The function of a step has no arguments; the function of a reset takes the index of a row.

        Args:
            arrays: ``value, memory, next_memory, result`` of a step, ``first_value, first_memory, first_result`` of a
                reset, and ``dims``.
        """
        raise NotImplementedError

    # -- specs -----------------------------------------------------------------------------------------------------

    def _leaf(self, specs: EnvSpecs, key: Any) -> Spec:
        leaf: Spec | None = specs.observation.get(key, None)
        if leaf is None:
            existing = list(specs.observation.keys(include_nested=True, leaves_only=True))
            raise SpecError(
                f"{type(self).__name__}: the environment has no observation {key!r}. It has {existing}; choose "
                "among these with in_keys."
            )
        if leaf.dtype is None:
            raise SpecError(f"{type(self).__name__}: {key!r} is not a tensor; its spec is {leaf}.")
        return leaf

    def _memories(self, specs: EnvSpecs) -> list[tuple[Any, Any, Any, Any]]:
        """List the keys and the shape of the memory of each observation.

        Each item holds the key of the observation, of the result and of the memory, and the shape of the memory.
        """
        memories: list[tuple[Any, Any, Any, Any]] = []
        for key, out_key in self.key_pairs:
            leaf = self._leaf(specs, key)
            shape = self.remembered(tuple(leaf.shape), len(specs.batch_size))
            memory = replace_last(key, f"{self.memory_name}_{names_of(key)[-1]}")
            while specs.observation.get(memory, None) is not None:  # another transform of this kind uses the name
                memory = replace_last(memory, f"{names_of(memory)[-1]}_")
            memories.append((key, out_key, None if shape is None else memory, shape))
        return memories

    def memory_spec(self, specs: EnvSpecs) -> Composite | None:
        spec = Composite({}, shape=specs.batch_size, device=specs.device)
        for key, _, memory, shape in self._memories(specs):
            if memory is not None:
                leaf = self._leaf(specs, key)
                set_beside(spec, memory, Unbounded(shape, device=leaf.device, dtype=leaf.dtype), specs.observation)
        return None if spec.is_empty() else spec

    def transform_specs(self, specs: EnvSpecs) -> EnvSpecs:
        results = [(out_key, self.result_spec(self._leaf(specs, key))) for key, out_key, _, _ in self._memories(specs)]
        specs = specs.copy()
        for out_key, leaf in results:
            set_beside(specs.observation, out_key, leaf, specs.observation)
        return specs

    # -- steps -----------------------------------------------------------------------------------------------------

    def hooks(self, specs: EnvSpecs) -> Hooks:
        batch_dims = len(specs.batch_size)
        plan = [
            (key, out_key, memory, self._leaf(specs, key).ndim - batch_dims)
            for key, out_key, memory, _ in self._memories(specs)
        ]
        masks = [group.reset_key for group in specs.groups]
        if self._reset_key is not None and self._reset_key not in masks:
            raise SpecError(
                f"{type(self).__name__}: the environment has no reset mask {self._reset_key!r}. It has {masks}."
            )
        own_mask = self._reset_key if len(masks) > 1 else None

        def step(td: TensorDictBase, data: TensorDictBase) -> TensorDictBase:
            for key, out_key, memory, dims in plan:
                before = None
                if memory is not None:
                    before = td.get(memory, None)
                    if before is None:
                        raise self._no_memory(memory, td)
                result, kept = self.following(data.get(key), before, dims)
                data.set(out_key, result)
                if memory is not None:
                    data.set(memory, kept)
            return data

        def reset(td: TensorDictBase | None, data: TensorDictBase) -> TensorDictBase:
            mask = None if own_mask is None or td is None else td.get(own_mask, None)
            for key, out_key, memory, dims in plan:
                result, kept = self.first(data.get(key), dims)
                for name, value in ((out_key, result), (memory, kept)):
                    if name is None:
                        continue
                    before = None if td is None or mask is None else td.get(name, None)
                    if before is not None and mask is not None:
                        shaped = mask.reshape(*mask.shape, *(1,) * (value.ndim - mask.ndim))
                        value = torch.where(shaped, value, before)
                    data.set(name, value)
            return data

        memories = [memory for _, _, memory, _ in plan if memory is not None]
        rows = self._row_hooks(plan) if own_mask is None else None
        return Hooks(step=step, reset=reset, reads_root=memories, rows=rows)

    def _row_hooks(self, plan: list[tuple[Any, Any, Any, int]]) -> RowHooks:
        def bind(root: Any, following: Any) -> Any:
            pairs = [
                self.kernel(
                    {
                        "value": following.before[key],
                        "memory": None if memory is None else root[memory],
                        "next_memory": None if memory is None else following[memory],
                        "result": following[out_key],
                        "first_value": root.before[key],
                        "first_memory": None if memory is None else root[memory],
                        "first_result": root[out_key],
                        "dims": dims,
                    }
                )
                for key, out_key, memory, dims in plan
            ]
            steps: list[Callable[[], None]] = [run for run, _ in pairs]
            resets: list[Callable[[int], None]] = [run for _, run in pairs]

            def step() -> bool:
                for run in steps:
                    run()
                return False

            def reset(at: Any) -> None:
                for run in resets:
                    for row in at:
                        run(row)

            return step, reset

        return RowHooks(
            bind,
            root_inputs=[memory for _, _, memory, _ in plan if memory is not None],
            reads=[key for key, _, _, _ in plan],
            writes=[out_key for _, out_key, _, _ in plan],
        )

    def _no_memory(self, key: Any, td: TensorDictBase) -> StateError:
        return StateError(
            f"{type(self).__name__}: the argument of step has no {key!r}, the last observations. "
            "Step what reset, step_mdp or step_and_maybe_reset returned, with an action added to it. Found "
            f"{sorted(map(str, td.keys(include_nested=True, leaves_only=True)))}."
        )
