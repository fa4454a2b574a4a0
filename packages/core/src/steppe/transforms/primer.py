"""TensorDictPrimer: entries that an episode begins with, and that follow it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase

from steppe.errors import SpecError
from steppe.specs import CPU, Composite, Spec
from steppe.storage import entries
from steppe.transforms.compiled.hooks import EnvSpecs, Hooks, RowHooks, set_beside
from steppe.transforms.compiled.planned import PlannedTransform
from steppe.transforms.keys import as_key
from steppe.transforms.row_generators import RowGenerators

__all__ = ["TensorDictPrimer"]


class TensorDictPrimer(PlannedTransform):
    """Adds entries at each reset, and carries them through the steps: the memory of a recurrent policy, for example.

    The entries are observations and states; one that the environment has as an action is an observation and stays an
    action. After a step, ``next`` holds what the policy wrote to ``("next", key)``, and the value of the root where it
    wrote nothing.

    Called on data that comes from no environment, it writes the entries into it.

    Args:
        primers: a Composite or a dict of keys to specs; nothing is added without any.
        random: draw from the specs instead of using ``default_value``.
        default_value: value at a reset: a number, a function without arguments that returns a number or a tensor of
            the entry's shape, or a dict of these for each key. 0 by default.
        reset_key: mask that decides which rows begin anew, where that of the level is not meant.
        expand_specs: True: put the batch size of the environment in front of the shapes, unless ``primers`` is a
            Composite that has it already; False: shapes have it already. By default a Composite of another batch size
            is an error, and one without is expanded.
        single_default_value: ``default_value`` is a function that returns a TensorDict of all entries. Where it takes
            an argument ``reset``, it is given the mask ``[*B]`` of the rows that begin anew, and returns these alone.
        call_before_env_reset: write the entries into what ``reset`` is given, so that the environment can read them.
        **kwargs: more keys and specs; ``shape`` (or ``batch_size``) and ``device`` of the Composite of them all.

    Attributes:
        primers, random, default_value, reset_key, device: the arguments.

    Raises:
        SpecError: ``random`` and a ``default_value`` other than 0; a ``default_value`` for no entry; a batch size that
            is not the environment's, or not that of the data; a value that is not in its spec.
    """

    keeps_nothing = True

    def __init__(
        self,
        primers: Any = None,
        random: bool | None = None,
        default_value: Any = None,
        reset_key: Any = None,
        expand_specs: bool | None = None,
        single_default_value: bool = False,
        call_before_env_reset: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        shape, device = kwargs.pop("shape", None), kwargs.pop("device", None)
        shape = kwargs.pop("batch_size", shape)
        if isinstance(primers, Composite):
            given = primers.clone().update(kwargs) if kwargs else primers
        else:
            given = Composite({**(primers or {}), **kwargs}, shape=torch.Size(() if shape is None else shape))
        if device is not None:
            given = given.to(device)
        leaves = given.keys(include_nested=True, leaves_only=True)
        many = isinstance(default_value, (Mapping, torch.Tensor))
        if random and default_value is not None and (many or default_value):
            raise SpecError("TensorDictPrimer: random=True and default_value exclude each other: give one.")
        if isinstance(default_value, Mapping):
            default_value = {as_key(key): value for key, value in default_value.items()}
            unknown = [key for key in default_value if key not in leaves]
            if unknown:
                raise SpecError(f"TensorDictPrimer: default_value has {unknown[0]!r}, the primers {list(leaves)}.")
        self.primers = given
        self.random = bool(random)
        self.default_value = default_value
        self._reset_key = None if reset_key is None else as_key(reset_key)
        self._checked: set[Any] = set()
        self.expand_specs = expand_specs
        self.single_default_value = single_default_value
        self.call_before_env_reset = call_before_env_reset
        self._draws = RowGenerators()

    def _specs(self, specs: EnvSpecs) -> Composite:
        batch = specs.batch_size
        has_it = self.primers.shape[: len(batch)] == batch
        expand = self.expand_specs
        if expand is None:
            if not has_it and len(self.primers.shape):
                raise SpecError(
                    f"TensorDictPrimer: the batch size of the primers, {tuple(self.primers.shape)}, does not start "
                    f"with that of the environment, {tuple(batch)}; expand_specs=True puts it in front."
                )
            expand = True
        expand = expand and not (has_it and batch)
        found = self.primers.expand(torch.Size((*batch, *self.primers.shape))) if expand and batch else self.primers
        for key, leaf in found.items(include_nested=True, leaves_only=True):
            if leaf.shape[: len(batch)] != batch:
                raise SpecError(
                    f"TensorDictPrimer: the shape of {key!r}, {tuple(leaf.shape)}, must start with the batch size "
                    f"{tuple(batch)}; expand_specs=True puts it there."
                )
        return found if specs.device is None else found.to(specs.device)

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
            """Which rows begin anew, where each draws for itself."""
            if not self.random or not batch_dims or data.batch_dims != batch_dims:
                return None
            found = [] if td is None else [mask for key in masks if (mask := td.get(key, None)) is not None]
            rows = data.batch_size.numel()
            if not found:
                return [True] * rows
            return [any(row) for row in zip(*(mask.reshape(rows, -1).any(-1).tolist() for mask in found), strict=True)]

        def step(td: TensorDictBase, following: TensorDictBase) -> TensorDictBase:
            if plain and type(td) is TensorDict and type(following) is TensorDict and not following.is_locked:
                given = entries(td)
                if "next" not in given and td.device == following.device and all(key in given for key in names):
                    entries(following).update({key: given[key] for key in names})
                    return following
            written = td.get("next", None)
            for key, _ in leaves:
                value = None if written is None else written.get(key, None)
                if value is None:
                    value = td.get(key, None)
                if value is None:
                    found = sorted(map(str, td.keys()))
                    raise KeyError(f"TensorDictPrimer: there is no {key!r} in the data given to step. Found {found}.")
                following.set(key, value)
            return following

        def reset(td: TensorDictBase | None, fresh: TensorDictBase) -> TensorDictBase:
            if self.call_before_env_reset:
                return fresh
            self._write(fresh, td, leaves, batch_dims, begins(td, fresh))
            return fresh

        def before(td: TensorDictBase | None) -> TensorDictBase:
            data = td if td is not None else Composite({}, shape=specs.batch_size, device=specs.device).zero()
            self._write(data, td, leaves, batch_dims, begins(td, data))
            return data

        # An action that is primed is the one that was taken.
        alone = not batch_dims and all(specs.action.get(key, None) is None for key, _ in leaves)
        rows = self._row_hooks(leaves) if alone else None
        return Hooks(step=step, reset=reset, before_reset=before if self.call_before_env_reset else None, rows=rows)

    def _row_hooks(self, leaves: list[tuple[Any, Spec]]) -> RowHooks:
        keys = [key for key, _ in leaves]

        def bind(root: Any, following: Any) -> Any:
            columns = [(following[key], root[key]) for key in keys]
            begins = {"_reset": torch.ones(1, dtype=torch.bool, device=CPU)}

            def step() -> bool:
                for target, source in columns:
                    target[...] = source
                return False

            def reset(at: Any) -> None:
                fresh = TensorDict({})
                self._write(fresh, TensorDict(begins), leaves, 0)
                for key in keys:
                    root[key][0] = fresh.get(key).detach().numpy()

            return step, reset

        return RowHooks(bind, carried=keys, handed_on=keys, alone=True)

    def _write(
        self,
        data: TensorDictBase,
        td: TensorDictBase | None,
        leaves: list[tuple[Any, Spec]],
        batch_dims: int,
        begins: list[bool] | None = None,
    ) -> None:
        given = self._reset_key
        mask = td.get(given, None) if td is not None and given is not None else None
        values = self._all_values(data, td, leaves) if self.single_default_value else {}
        for key, leaf in leaves:
            lead = tuple(data.batch_size[: len(data.batch_size) - batch_dims]) if batch_dims < data.batch_dims else ()
            value = values[key] if key in values else self._value(key, leaf, begins)
            shape = (
                torch.Size((*lead, *leaf.shape))
                if data.batch_size[:batch_dims] == leaf.shape[:batch_dims]
                else (torch.Size((*data.batch_size, *leaf.shape[batch_dims:])))
            )
            value = self._shaped(key, value, leaf, shape)
            before = td.get(key, None) if mask is not None and td is not None else None
            if before is not None and mask is not None:
                value = torch.where(mask.reshape(mask.shape + (1,) * (value.ndim - mask.ndim)), value, before)
            data.set(key, value)

    def _value(self, key: Any, leaf: Spec, begins: list[bool] | None) -> Any:
        if self.random:
            draws = self._draws
            if begins is None:
                return leaf.rand(generator=draws.of(1)[0])
            rows = zip(_rows(leaf, len(begins)), begins, draws.of(len(begins)), strict=True)
            return torch.stack([row.rand(generator=draw) if new else row.zero() for row, new, draw in rows]).reshape(
                leaf.shape
            )
        value = self.default_value
        if isinstance(value, Mapping):
            value = value.get(key, 0.0)
        return 0.0 if value is None else value() if callable(value) else value

    def _all_values(
        self, data: TensorDictBase, td: TensorDictBase | None, leaves: list[tuple[Any, Spec]]
    ) -> dict[Any, Any]:
        """What one function returns for all entries; where it looks at the reset mask, for the rows of that alone."""
        function = self.default_value
        if not callable(function):
            return {key: function.get(key) for key, _ in leaves}
        if not _takes(function, "reset"):
            values = function()
            return {key: values.get(key) for key, _ in leaves}
        mask = None if td is None else td.get(self.reset_key, None)
        size = data.batch_size
        rows = torch.ones(size, dtype=torch.bool, device=data.device or CPU)
        if mask is not None:
            rows = mask.reshape((*size, -1)).any(-1)
        values = function(reset=rows)
        if bool(rows.all()) or values.batch_size == size:
            return {key: values.get(key) for key, _ in leaves}
        found = {}
        for key, leaf in leaves:
            value = values.get(key)
            whole = torch.zeros((*size, *value.shape[1:]), dtype=leaf.dtype, device=value.device)
            whole[rows] = value.to(leaf.dtype)
            found[key] = whole
        return found

    def _shaped(self, key: Any, value: Any, leaf: Spec, shape: torch.Size) -> Any:
        if not isinstance(value, torch.Tensor):
            if leaf.dtype is None:
                return value
            return torch.full(shape, value, dtype=leaf.dtype, device=leaf.device or CPU)
        value = value.to(dtype=leaf.dtype, device=leaf.device or value.device)
        tails = zip(value.shape[::-1], shape[::-1], strict=False)
        if value.ndim > len(shape) or any(mine not in (1, wanted) for mine, wanted in tails):
            raise SpecError(
                f"TensorDictPrimer: the value of {key!r} must have shape {tuple(shape)}, or one without its batch "
                f"size, found {tuple(value.shape)}."
            )
        # A copy, because a default that is a tensor is used again at the next reset.
        value = value.expand(shape).clone()
        if not self.random and key not in self._checked:
            self._checked.add(key)
            if not leaf.is_in(value):
                raise SpecError(f"TensorDictPrimer: the value of {key!r} is not in its spec {leaf}. Found {value}.")
        return value

    @property
    def reset_key(self) -> Any:
        """The mask that decides which rows begin anew: the given one, or the first of the environment's."""
        given = self._reset_key
        if given is not None:
            return given
        env = self.parent
        return "_reset" if env is None else env.reset_keys[0]

    @property
    def device(self) -> torch.device | None:
        """Where the entries are; None for where the data is."""
        return self.primers.device

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the entries into data that is there already, in place.

        Raises:
            SpecError: the shape of an entry does not start with the batch size of the data, and ``expand_specs`` is not
                True.
        """
        size = tensordict.batch_size
        primers = self.primers
        if self.expand_specs and primers.shape[: len(size)] != size:
            primers = primers.expand(torch.Size((*size, *primers.shape)))
        leaves = primers.items(include_nested=True, leaves_only=True)
        for key, leaf in leaves:
            if leaf.shape[: len(size)] != size:
                raise SpecError(
                    f"TensorDictPrimer: the shape of {key!r}, {tuple(leaf.shape)}, must start with the batch size of "
                    f"the data, {tuple(size)}; expand_specs=True puts it there."
                )
        self._write(tensordict, None, leaves, len(size))
        return tensordict

    def _set_seed(self, seed: int | None) -> None:
        self._draws.seed(seed)

    def clone(self) -> TensorDictPrimer:
        twin: TensorDictPrimer = super().clone()
        twin._draws = RowGenerators()
        return twin

    def _repr_keys(self) -> Any:
        return ("primers", "random", "default_value")


def _rows(leaf: Spec, n: int) -> list[Spec]:
    """The specs of the ``n`` rows of a leaf ``[*B, ...]``, in order."""
    rows = [leaf]
    while len(rows) < n:  # what is left of a batch are sizes of 1
        rows = [part for row in rows for part in row.unbind(0)]
    return rows


def _takes(function: Any, name: str) -> bool:
    """Whether a function has a parameter of a name."""
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
