"""TensorDictPrimer: entries that are set at each reset and kept through an episode."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from tensordict import TensorDict, TensorDictBase

from steppe.errors import SpecError
from steppe.specs import CPU, Composite, Spec, Unbounded
from steppe.storage import entries
from steppe.transforms import (
    EnvSpecs,
    Hooks,
    PlannedTransform,
    RowArrays,
    RowGenerators,
    RowHooks,
    as_key,
    set_beside,
)

__all__ = ["TensorDictPrimer"]

#: A name, or a tuple of names for a nested entry.
Key: TypeAlias = "str | tuple[str, ...]"


class TensorDictPrimer(PlannedTransform):
    """Add entries at each reset and keep them through the steps, such as the hidden state of a recurrent policy.

    The entries are observations and states. An entry that the environment has as an action becomes an observation and
    stays an action. After a step, ``next`` holds the value that the policy wrote to ``("next", key)``, or else the
    root's value.

    Called on data that comes from no environment, it writes the entries into the data.

    >>> from steppe import TensorDictPrimer, TransformedEnv, Unbounded, make_env
    >>> env = TransformedEnv(make_env("gym:CartPole-v1"), TensorDictPrimer({"memory": Unbounded((8,))}))
    >>> env.reset()["memory"].shape
    torch.Size([8])

    Args:
        primers: Composite or dict of keys to specs. None adds no entries.
        random: draw values from the specs instead of using ``default_value``.
        default_value: value at a reset: a number, a function without arguments that returns a number or a tensor of
            the entry's shape, or a dict of these for each key. Default: 0.
        reset_key: mask of the rows that are reset, if it is not the root's mask.
        expand_specs: True: prepend the batch size of the environment to the shapes, unless ``primers`` is a Composite
            that has it already. False: the shapes include it. Default: a Composite without batch size is expanded, and
            one of another batch size is an error.
        **kwargs: more keys and specs; ``shape`` (or ``batch_size``) and ``device`` are given to their Composite.

    Attributes:
        primers, random, default_value, reset_key, device: the arguments.

    Raises:
        SpecError: ``random`` is combined with a ``default_value`` other than 0; ``default_value`` has a key without
            entry; the batch size differs from the environment's or the data's; a value is not in its spec.
    """

    keeps_nothing = True

    def __init__(
        self,
        primers: Composite | Mapping[Key, Spec] | None = None,
        random: bool | None = None,
        default_value: float | torch.Tensor | Callable[[], float | torch.Tensor] | Mapping[Key, object] | None = None,
        reset_key: Key | None = None,
        expand_specs: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        shape, device = kwargs.pop("shape", None), kwargs.pop("device", None)
        shape = kwargs.pop("batch_size", shape)
        if isinstance(primers, Composite):
            specs = primers.clone().update(kwargs) if kwargs else primers
        else:
            specs = Composite({**(primers or {}), **kwargs}, shape=torch.Size(() if shape is None else shape))
        if device is not None:
            specs = specs.to(device)
        leaves = specs.keys(include_nested=True, leaves_only=True)
        many = isinstance(default_value, (Mapping, torch.Tensor))
        if random and default_value is not None and (many or default_value):
            raise SpecError("TensorDictPrimer: random=True and default_value exclude each other: give one.")
        if isinstance(default_value, Mapping):
            default_value = {as_key(key): value for key, value in default_value.items()}
            unknown = [key for key in default_value if key not in leaves]
            if unknown:
                raise SpecError(f"TensorDictPrimer: default_value has {unknown[0]!r}, the primers {list(leaves)}.")
        self.primers = specs
        self.random = bool(random)
        self.default_value = default_value
        self._reset_key = None if reset_key is None else as_key(reset_key)
        self._checked: set[Key] = set()
        self.expand_specs = expand_specs
        self._draws = RowGenerators()

    @property
    def needs_all_rows(self) -> bool:  # type: ignore[override]
        """Whether it draws random values for each row."""
        return self.random

    def _specs(self, specs: EnvSpecs) -> Composite:
        batch = specs.batch_size
        has_it = self.primers.shape[: len(batch)] == batch
        if self.expand_specs is None and not has_it and len(self.primers.shape):
            raise SpecError(
                f"TensorDictPrimer: the batch size of the primers, {tuple(self.primers.shape)}, does not start "
                f"with the batch size of the environment, {tuple(batch)}; expand_specs=True puts it in front."
            )
        expands = self.expand_specs is not False and not (has_it and batch)
        primers = self._of_size(batch, "the batch size", expand=expands)
        return primers if specs.device is None else primers.to(specs.device)

    def _of_size(self, batch: torch.Size, what: str, *, expand: bool) -> Composite:
        """Return the specs of the entries with a batch size in front; ``what`` describes it in errors.

        Raises:
            SpecError: a shape does not start with it.
        """
        primers = self.primers.expand(torch.Size((*batch, *self.primers.shape))) if expand else self.primers
        for key, leaf in primers.items(include_nested=True, leaves_only=True):
            if leaf.shape[: len(batch)] != batch:
                raise SpecError(
                    f"TensorDictPrimer: the shape of {key!r}, {tuple(leaf.shape)}, must start with {what} "
                    f"{tuple(batch)}; expand_specs=True puts it there."
                )
        return primers

    def transform_specs(self, specs: EnvSpecs) -> EnvSpecs:
        primers = self._specs(specs)
        specs = specs.copy()
        for key, leaf in primers.items(include_nested=True, leaves_only=True):
            is_action = specs.action.get(key, None) is not None
            for spec in (specs.observation, specs.action if is_action else specs.state):
                set_beside(spec, key, leaf, primers)
        return specs

    def hooks(self, specs: EnvSpecs) -> Hooks:
        leaves = self._specs(specs).items(include_nested=True, leaves_only=True)
        batch_dims = len(specs.batch_size)
        masks = [group.reset_key for group in specs.groups]
        names = [key for key, _ in leaves]
        plain = all(type(key) is str for key in names)

        def begins(td: TensorDictBase | None, data: TensorDictBase) -> list[bool] | None:
            """Return which rows are reset, if each row draws random numbers of its own."""
            if not self.random or not batch_dims or data.batch_dims != batch_dims:
                return None
            resets = [] if td is None else [mask for key in masks if (mask := td.get(key, None)) is not None]
            rows = data.batch_size.numel()
            if not resets:
                return [True] * rows
            return [any(row) for row in zip(*(mask.reshape(rows, -1).any(-1).tolist() for mask in resets), strict=True)]

        def step(td: TensorDictBase, following: TensorDictBase) -> TensorDictBase:
            if plain and type(td) is TensorDict and type(following) is TensorDict and not following.is_locked:
                level = entries(td)
                if "next" not in level and td.device == following.device and all(key in level for key in names):
                    entries(following).update({key: level[key] for key in names})
                    return following
            written = td.get("next", None)
            for key, _ in leaves:
                value = None if written is None else written.get(key, None)
                following.set(key, self.kept_entry(key, td) if value is None else value)
            return following

        def reset(td: TensorDictBase | None, fresh: TensorDictBase) -> TensorDictBase:
            self._write(fresh, td, leaves, batch_dims, begins(td, fresh))
            return fresh

        # A primed action is the action of the step, so it cannot be copied from the root.
        acts = any(specs.action.get(key, None) is not None for key in names)
        copied = not batch_dims and not acts
        return Hooks(
            step=step,
            reset=reset,
            reads_root=acts or names,
            passed_through=names,
            rows=self._row_hooks(leaves) if copied else None,
        )

    def _row_hooks(self, leaves: list[tuple[Key, Spec]]) -> RowHooks:
        keys = [key for key, _ in leaves]

        def bind(root: RowArrays, following: RowArrays) -> tuple[Callable[[], bool], Callable[[Sequence[int]], None]]:
            columns = [(following[key], root[key]) for key in keys]

            def step() -> bool:
                for target, source in columns:
                    target[...] = source
                return False

            def reset(at: Sequence[int]) -> None:
                fresh = TensorDict({})
                self._write(fresh, None, leaves, 0)
                for key in keys:
                    root[key][0] = fresh.get(key).detach().numpy()

            return step, reset

        return RowHooks(bind, root_inputs=keys)

    def _write(
        self,
        data: TensorDictBase,
        td: TensorDictBase | None,
        leaves: list[tuple[Key, Spec]],
        batch_dims: int,
        begins: list[bool] | None = None,
    ) -> None:
        mask = td.get(self._reset_key, None) if td is not None and self._reset_key is not None else None
        for key, leaf in leaves:
            value = self._shaped(
                key, self._value(key, leaf, begins), leaf, torch.Size((*data.batch_size, *leaf.shape[batch_dims:]))
            )
            before = td.get(key, None) if mask is not None and td is not None else None
            if before is not None and mask is not None:
                value = torch.where(mask.reshape(mask.shape + (1,) * (value.ndim - mask.ndim)), value, before)
            data.set(key, value)

    def _value(self, key: Key, leaf: Spec, begins: list[bool] | None) -> Any:
        if self.random:
            draws = self._draws
            if begins is None:
                return leaf.rand(generator=draws.of(1)[0])
            rows = zip(_rows(leaf, len(begins)), begins, draws.of(len(begins)), strict=True)
            return torch.stack([row.rand(generator=draw) if new else row.zero() for row, new, draw in rows]).reshape(
                leaf.shape
            )
        value: Any = self.default_value
        if isinstance(value, Mapping):
            value = value.get(key, 0.0)
        return 0.0 if value is None else value() if callable(value) else value

    def _shaped(self, key: Key, value: Any, leaf: Spec, shape: torch.Size) -> Any:
        if not isinstance(value, torch.Tensor):
            if leaf.dtype is None:
                return value
            return torch.full(shape, value, dtype=leaf.dtype, device=leaf.device or CPU)
        value = value.to(dtype=leaf.dtype, device=leaf.device or value.device)
        tails = zip(value.shape[::-1], shape[::-1], strict=False)
        if value.ndim > len(shape) or any(size not in (1, expected) for size, expected in tails):
            raise SpecError(
                f"TensorDictPrimer: the value of {key!r} must have shape {tuple(shape)}, or one without its batch "
                f"size, found {tuple(value.shape)}."
            )
        # A copy, because a default tensor is used again at the next reset.
        value = value.expand(shape).clone()
        if not self.random and key not in self._checked:
            self._checked.add(key)
            if not leaf.is_in(value):
                raise SpecError(f"TensorDictPrimer: the value of {key!r} is not in its spec {leaf}. Found {value}.")
        return value

    @property
    def reset_key(self) -> Key:
        """Key of the mask of the rows that are reset: the argument, or the first one of the environment."""
        if self._reset_key is not None:
            return self._reset_key
        env = self.parent
        return "_reset" if env is None else env.reset_keys[0]

    @property
    def device(self) -> torch.device | None:
        """Device of the entries; None for the device of the data."""
        return self.primers.device

    @classmethod
    def found_in(cls, made: Any) -> list[TensorDictPrimer]:
        """Return the primers in the result of ``make_tensordict_primer()``, converted if they are TorchRL's.

        Args:
            made: transforms of steppe or TorchRL, alone, in a list or in a Compose; or None.
        """
        if isinstance(made, TensorDictPrimer):
            return [made]
        if hasattr(made, "primers"):
            return [_converted(made)]
        parts = made if isinstance(made, Iterable) else ()  # a list, or a Compose of either library
        return [primer for part in parts for primer in cls.found_in(part)]

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the entries into data that comes from no environment, in place.

        Raises:
            SpecError: the shape of an entry does not start with the batch size of the data, and ``expand_specs`` is not
                True.
        """
        size = tensordict.batch_size
        expands = bool(self.expand_specs) and self.primers.shape[: len(size)] != size
        leaves = self._of_size(size, "the batch size of the data,", expand=expands).items(
            include_nested=True, leaves_only=True
        )
        self._write(tensordict, None, leaves, len(size))
        return tensordict

    def _set_seed(self, seed: int | None) -> None:
        self._draws.seed(seed)

    def clone(self) -> TensorDictPrimer:
        twin: TensorDictPrimer = super().clone()
        twin._draws = RowGenerators()
        return twin

    def _repr_keys(self) -> Iterable[str]:
        return ("primers", "random", "default_value")


def _rows(leaf: Spec, n: int) -> list[Spec]:
    """Return the specs of the ``n`` rows of a leaf ``[*B, ...]``, in order."""
    rows = [leaf]
    while len(rows) < n:  # then only dimensions of size 1 remain
        rows = [part for row in rows for part in row.unbind(0)]
    return rows


def _converted(primer: Any) -> TensorDictPrimer:
    """Return a primer of TorchRL as one of steppe."""
    random = getattr(primer, "random", None) or None
    value = None if random else getattr(primer, "default_value", None)
    specs = _as_spec(primer.primers)
    return TensorDictPrimer(specs, random=random, default_value=value, expand_specs=True)


def _as_spec(primers: Any) -> Composite:
    """Return the spec of another library as one of steppe: unbounded, of the same shapes, dtypes and devices."""
    spec = Composite({}, shape=())
    for key, leaf in primers.items(True, True):
        spec_of_leaf = (
            leaf if isinstance(leaf, Spec) else Unbounded(tuple(leaf.shape), device=leaf.device, dtype=leaf.dtype)
        )
        spec.set(key, spec_of_leaf)
    return spec
