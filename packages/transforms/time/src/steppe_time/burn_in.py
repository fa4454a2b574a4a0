"""BurnInTransform: recompute hidden states from the first steps of stored data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase
from tensordict.nn import TensorDictModuleBase

from steppe.errors import SpecError
from steppe.transforms import as_key, names_of

from .stored_data import StoredDataTransform

__all__ = ["BurnInTransform"]


class BurnInTransform(StoredDataTransform):
    """Recompute the hidden states of recurrent modules in stored data.

    The hidden states in a replay buffer are those of an older policy. This transform replaces them at the first
    returned step by the result of the current modules on the first ``burn_in`` steps, without gradients. It is for
    samples of slices, not for environments.

    >>> import torch
    >>> from steppe import BurnInTransform
    >>> from tensordict import TensorDict
    >>> from tensordict.nn import TensorDictModule
    >>> class Sum(torch.nn.Module):  # in place of a GRU over [B, T]
    ...     def forward(self, x, hidden):
    ...         return x.cumsum(1) + hidden[:, :1]
    >>> module = TensorDictModule(Sum(), ["x", "hidden"], [("next", "hidden")])
    >>> data = TensorDict(x=torch.ones(1, 6, 1), hidden=torch.zeros(1, 6, 1), batch_size=[1, 6])
    >>> data["next"] = data.select("hidden")
    >>> recent = BurnInTransform(module, burn_in=2)(data)
    >>> recent.shape, recent["hidden"][0, 0]
    (torch.Size([1, 4]), tensor([2.]))

    Args:
        modules: one module, or several to run in sequence, which take data ``[*B, T]``.
        burn_in: number of steps.
        out_keys: keys of the hidden states, without ``"next"``. Default: all that the modules write below ``"next"``.

    Raises:
        SpecError: a module is not a TensorDictModule, or ``burn_in`` is not a whole number >= 0.
    """

    over_time = True
    instead = "In an environment, the primer of a policy keeps its hidden states."

    def __init__(
        self,
        modules: TensorDictModuleBase | Sequence[TensorDictModuleBase],
        burn_in: int,
        out_keys: NestedKey | Sequence[NestedKey] | None = None,
    ) -> None:
        parts = list(modules) if isinstance(modules, Sequence) else [modules]
        for module in parts:
            if not isinstance(module, TensorDictModuleBase):
                raise SpecError(
                    f"BurnInTransform: modules must be TensorDictModules, found {type(module).__name__}. Wrap it: "
                    "TensorDictModule(module, in_keys=[...], out_keys=[...])."
                )
        if isinstance(burn_in, bool) or not isinstance(burn_in, int) or burn_in < 0:
            raise SpecError(f"BurnInTransform: burn_in must be a whole number >= 0, found {burn_in!r}.")
        if out_keys is None:
            out_keys = [key for module in parts for key in module.out_keys if names_of(key)[0] == "next"]
        elif isinstance(out_keys, (str, tuple)):
            out_keys = [out_keys]
        memories = dict.fromkeys(_without_next(key) for key in out_keys)
        super().__init__(list(dict.fromkeys(as_key(key) for module in parts for key in module.in_keys)))
        self.out_keys = list(memories)
        self.burn_in = burn_in
        #: The modules, in a tuple because their parameters are not parameters of this transform.
        self.__dict__["recurrent"] = parts

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Return the steps after the first ``burn_in``, with new hidden states.

        Args:
            tensordict: data ``[*B, T]``, time last.

        Returns:
            Data ``[*B, T - burn_in]``; ``tensordict`` itself if ``burn_in`` is 0.

        Raises:
            SpecError: the data has at most ``burn_in`` steps.
            KeyError: no module wrote a hidden state.
        """
        if self.burn_in == 0:
            return tensordict
        length = tensordict.batch_size[-1] if tensordict.batch_dims else 0
        if length <= self.burn_in:
            raise SpecError(
                f"BurnInTransform(burn_in={self.burn_in}) needs data [*B, T] with more steps, found {length}. Sample "
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
