"""BurnInTransform: memories of recurrent modules, worked out anew from the first steps of stored data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase

from steppe.errors import NotSupported, SpecError
from steppe.transforms import EnvSpecs, Transform, as_key, names_of

__all__ = ["BurnInTransform"]


class BurnInTransform(Transform):
    """Runs recurrent modules over the first steps of stored data, and returns the rest with the memory at its start.

    The memory in a buffer is that of the policy that made the data, and is old. Here it is what the modules make of the
    first ``burn_in`` steps now, without gradients. For samples of slices, not for environments.

    Args:
        modules: one, or several that run one after the other, which take data ``[*B, T]``.
        burn_in: number of steps.
        out_keys: memories, without ``"next"``; by default all that the modules write below ``"next"``.

    Raises:
        SpecError: one of the modules is no TensorDictModule, or ``burn_in`` not a whole number >= 0.
    """

    def __init__(self, modules: Any, burn_in: int, out_keys: Any = None) -> None:
        found = list(modules) if isinstance(modules, Sequence) else [modules]
        for module in found:
            if not isinstance(module, TensorDictModuleBase):
                raise SpecError(
                    f"BurnInTransform: modules are TensorDictModules, found {type(module).__name__}. Wrap it: "
                    "TensorDictModule(module, in_keys=[...], out_keys=[...])."
                )
        if isinstance(burn_in, bool) or not isinstance(burn_in, int) or burn_in < 0:
            raise SpecError(f"BurnInTransform: burn_in is a whole number >= 0, found {burn_in!r}.")
        if out_keys is None:
            out_keys = [key for module in found for key in module.out_keys if names_of(key)[0] == "next"]
        elif isinstance(out_keys, (str, tuple)):
            out_keys = [out_keys]
        memories = dict.fromkeys(_without_next(key) for key in out_keys)
        super().__init__(list(dict.fromkeys(as_key(key) for module in found for key in module.in_keys)))
        self.out_keys = list(memories)
        self.burn_in = burn_in
        #: The modules; not as parts of this one, which has no parameters of its own to train.
        self.__dict__["recurrent"] = found

    def hooks(self, specs: EnvSpecs) -> Any:
        raise NotSupported(
            "BurnInTransform works on stored data alone: give it to a buffer, or call it on samples. In an environment "
            "a policy's memory is kept by its primer."
        )

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Return the steps behind the first ``burn_in``, with the memory that the modules have there.

        Args:
            tensordict: data ``[*B, T]``, time last.

        Returns:
            Data ``[*B, T - burn_in]``; ``tensordict`` itself where ``burn_in`` is 0.

        Raises:
            SpecError: the data has no more steps than are burnt in.
            KeyError: no module has written a memory.
        """
        if self.burn_in == 0:
            return tensordict
        length = tensordict.batch_size[-1] if tensordict.batch_dims else 0
        if length <= self.burn_in:
            raise SpecError(
                f"BurnInTransform(burn_in={self.burn_in}) needs data [*B, T] of more steps, found {length}. Sample "
                "longer slices, or burn in fewer steps."
            )
        first, rest = tensordict[..., : self.burn_in], tensordict[..., self.burn_in :].copy()
        device = tensordict.device
        with torch.no_grad():
            for module in self.recurrent:
                parameter = next(module.parameters(), None)
                if parameter is not None and first.device != parameter.device:
                    first = first.to(parameter.device)
                first = module(first)
        at = tensordict.batch_dims - 1
        for key in self.out_keys:
            memory = first.get(("next", *names_of(key)), None)
            if memory is None:
                raise KeyError(
                    f"BurnInTransform: no module has written {('next', *names_of(key))}. They write "
                    f"{[each for module in self.recurrent for each in module.out_keys]}."
                )
            memory = memory.select(at, -1)
            memory = memory if device is None else memory.to(device)
            old = rest.get(key, None)
            shape = (*rest.batch_size, *memory.shape[at:])
            new = memory.new_zeros(shape) if old is None else old.clone()
            new.select(at, 0).copy_(memory)
            rest.set(key, new)
        return rest

    def _repr_keys(self) -> Any:
        return ("burn_in", "in_keys", "out_keys")


def _without_next(key: Any) -> Any:
    names = names_of(key)
    return as_key(names[1:] if names[0] == "next" and len(names) > 1 else names)
