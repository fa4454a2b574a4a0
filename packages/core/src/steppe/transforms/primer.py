"""TensorDictPrimer: entries that an episode begins with, and that follow it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from tensordict import TensorDictBase

from steppe.errors import SpecError
from steppe.specs import CPU, Composite, Spec
from steppe.transforms.compiled.hooks import EnvSpecs, Hooks, set_beside
from steppe.transforms.compiled.planned import PlannedTransform
from steppe.transforms.keys import as_key

__all__ = ["TensorDictPrimer"]


class TensorDictPrimer(PlannedTransform):
    """Adds entries at each reset, and carries them through the steps: the memory of a recurrent policy, for example.

    The entries are observations and states. After a step, ``next`` holds what the policy wrote to ``("next", key)``,
    and the value of the root where it wrote nothing.

    Args:
        primers: a Composite or a dict of keys to specs.
        random: draw from the specs instead of using ``default_value``.
        default_value: value at a reset: a number, a function without arguments that returns a number or a tensor of
            the entry's shape, or a dict of these for each key. 0 by default.
        reset_key: mask that decides which rows begin anew, where that of the level is not meant.
        expand_specs: True: put the batch size of the environment in front of the shapes; False: shapes have it already.
            By default they have it when ``primers`` is a Composite of that batch size.
        single_default_value: ``default_value`` is a function that returns a TensorDict of all entries.
        call_before_env_reset: write the entries into what ``reset`` is given, so that the environment can read them.
        **kwargs: more keys and specs.

    Raises:
        SpecError: no primers, or a shape does not start with the batch size.
    """

    def __init__(
        self,
        primers: Any = None,
        random: bool | None = None,
        default_value: Any = None,
        reset_key: Any = None,
        expand_specs: bool | None = None,
        single_default_value: bool = False,
        call_before_env_reset: bool = False,
        **kwargs: Spec,
    ) -> None:
        super().__init__()
        given = primers if isinstance(primers, Composite) else Composite({**(primers or {}), **kwargs})
        if isinstance(primers, Composite) and kwargs:
            given = given.clone().update(kwargs)
        if given.is_empty():
            raise SpecError("TensorDictPrimer: give the entries to add: TensorDictPrimer(hidden=Unbounded((64,))).")
        if random and default_value is not None:
            raise SpecError("TensorDictPrimer: random=True and default_value exclude each other: give one.")
        self.primers = given
        self.random = bool(random)
        self.default_value = default_value
        self.reset_key = None if reset_key is None else as_key(reset_key)
        self.expand_specs = expand_specs
        self.single_default_value = single_default_value
        self.call_before_env_reset = call_before_env_reset
        self.__dict__["_generator"] = None

    def _specs(self, specs: EnvSpecs) -> Composite:
        batch = specs.batch_size
        expand = self.expand_specs
        if expand is None:
            expand = self.primers.shape != batch or len(self.primers.shape) == 0
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
            for spec in (specs.observation, specs.state):
                set_beside(spec, key, leaf, primers)
        return specs

    def hooks(self, specs: EnvSpecs) -> Hooks:
        leaves = self._specs(specs).items(include_nested=True, leaves_only=True)
        batch_dims = len(specs.batch_size)

        def step(td: TensorDictBase, following: TensorDictBase) -> TensorDictBase:
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
            self._write(fresh, td, leaves, batch_dims)
            return fresh

        def before(td: TensorDictBase | None) -> TensorDictBase:
            data = td if td is not None else Composite({}, shape=specs.batch_size, device=specs.device).zero()
            self._write(data, td, leaves, batch_dims)
            return data

        return Hooks(step=step, reset=reset, before_reset=before if self.call_before_env_reset else None)

    def _write(
        self, data: TensorDictBase, td: TensorDictBase | None, leaves: list[tuple[Any, Spec]], batch_dims: int
    ) -> None:
        mask = td.get(self.reset_key, None) if td is not None and self.reset_key is not None else None
        if self.single_default_value:
            values = self.default_value() if callable(self.default_value) else self.default_value
            values = {key: values.get(key) for key, _ in leaves}
        else:
            values = {}
        for key, leaf in leaves:
            lead = tuple(data.batch_size[: len(data.batch_size) - batch_dims]) if batch_dims < data.batch_dims else ()
            value = values[key] if key in values else self._value(key, leaf)
            shape = (
                torch.Size((*lead, *leaf.shape))
                if data.batch_size[:batch_dims] == leaf.shape[:batch_dims]
                else (torch.Size((*data.batch_size, *leaf.shape[batch_dims:])))
            )
            value = self._shaped(value, leaf, shape)
            before = td.get(key, None) if mask is not None and td is not None else None
            if before is not None and mask is not None:
                value = torch.where(mask.reshape(mask.shape + (1,) * (value.ndim - mask.ndim)), value, before)
            data.set(key, value)

    def _value(self, key: Any, leaf: Spec) -> Any:
        if self.random:
            return leaf.rand(generator=self.__dict__["_generator"])
        value = self.default_value
        if isinstance(value, Mapping):
            value = value.get(key, 0.0)
        return 0.0 if value is None else value() if callable(value) else value

    @staticmethod
    def _shaped(value: Any, leaf: Spec, shape: torch.Size) -> Any:
        if not isinstance(value, torch.Tensor):
            if leaf.dtype is None:
                return value
            return torch.full(shape, value, dtype=leaf.dtype, device=leaf.device or CPU)
        value = value.to(dtype=leaf.dtype, device=leaf.device or value.device)
        # A copy, because a default that is a tensor is used again at the next reset.
        return value.expand(shape).clone()

    def _set_seed(self, seed: int | None) -> None:
        self.__dict__["_generator"] = None if seed is None else torch.Generator().manual_seed(seed)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        generator = state["_generator"]
        state["_generator"] = None if generator is None else generator.get_state()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        saved = self.__dict__["_generator"]
        if isinstance(saved, torch.Tensor):
            self.__dict__["_generator"] = torch.Generator()
            self.__dict__["_generator"].set_state(saved)

    def clone(self) -> TensorDictPrimer:
        twin: TensorDictPrimer = super().clone()
        twin.__dict__["_generator"] = None
        return twin

    def _repr_keys(self) -> Any:
        return ("random", "default_value")
