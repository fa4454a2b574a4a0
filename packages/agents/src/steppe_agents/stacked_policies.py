"""StackedPolicies: evaluate modules of equal structure in one call, with stacked parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase
from tensordict.nn import TensorDictModule
from torch.func import functional_call, stack_module_state, vmap

__all__ = ["StackedPolicies"]

#: Attributes of a module that its class compares in another way, or that hold no settings.
_COMPARED_APART = frozenset({"_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"})
_SETTINGS = (bool, int, float, complex, str, bytes, type(None), tuple, torch.dtype)


class StackedPolicies:
    """Evaluate several ``TensorDictModule`` policies at once by ``torch.func.vmap``.

    Their modules must agree in everything but the values of their parameters. The rows of all policies are evaluated in
    one call, so the cost does not grow with the number of policies as it does in a loop.

    Args:
        policies: policies for which :meth:`agree` is True.
    """

    def __init__(self, policies: Sequence[Any]) -> None:
        self._nets = [policy.module for policy in policies]
        self._parameters = [dict(module.named_parameters()) for module in self._nets]
        self.in_keys: list[NestedKey] = list(policies[0].in_keys)
        self.out_keys: list[NestedKey] = list(policies[0].out_keys)
        self._seen: list[tuple[int, int]] = []
        self._stacked: dict[str, torch.Tensor] = {}

    @staticmethod
    def agree(policies: Sequence[object]) -> bool:
        """Return whether policies differ in the values of their parameters only."""
        first = policies[0]
        return (
            len(policies) > 1
            and all(_is_stackable(policy) and _keys(policy) == _keys(first) for policy in policies)
            and all(_same_structure(policy.module, first.module) for policy in policies[1:])  # type: ignore[attr-defined]
        )

    def __call__(self, tensordict: TensorDictBase, at: torch.Tensor) -> list[Any]:
        """Return the outputs of all policies.

        Args:
            tensordict: the rows ``[k]``.
            at: for each policy the indices of its rows, ``[policies, m]``. Indices may repeat.

        Returns:
            For each of ``out_keys`` the output ``[policies, m, *shape]``.
        """
        inputs = [tensordict.get(key)[at] for key in self.in_keys]
        out = vmap(self._call, randomness="different")(self._parameters_now(), *inputs)
        return list(out) if isinstance(out, tuple) else [out]

    def _call(self, parameters: dict[str, torch.Tensor], *inputs: torch.Tensor) -> Any:
        return functional_call(self._nets[0], parameters, inputs)

    def _parameters_now(self) -> dict[str, torch.Tensor]:
        """Return the stacked parameters ``[policies, *shape]``, which are stacked anew after they have changed."""
        if torch.is_grad_enabled():
            first = self._parameters[0]
            return {name: torch.stack([each[name] for each in self._parameters]) for name in first}
        seen = [(value._version, value.data_ptr()) for each in self._parameters for value in each.values()]
        if seen != self._seen:
            stacked, _ = stack_module_state(self._nets)
            self._stacked, self._seen = {name: value.detach() for name, value in stacked.items()}, seen
        return self._stacked


def _is_stackable(policy: object) -> bool:
    """Return whether a policy is a plain TensorDictModule around a module with parameters and without buffers."""
    return (
        type(policy) is TensorDictModule
        and policy.inplace is True
        and isinstance(policy.module, torch.nn.Module)
        and next(policy.module.buffers(), None) is None
        and next(policy.module.parameters(), None) is not None
        and "_" not in policy.out_keys
    )


def _keys(policy: Any) -> tuple[list[NestedKey], list[NestedKey]]:
    return list(policy.in_keys), list(policy.out_keys)


def _same_structure(module: torch.nn.Module, other: torch.nn.Module) -> bool:
    """Return whether two modules differ in the values of their parameters only."""
    if type(module) is not type(other):
        return False
    own, others = vars(module), vars(other)
    if own.keys() != others.keys():
        return False
    for name, value in own.items():
        if name not in _COMPARED_APART and not _same_setting(value, others[name]):
            return False
    children, others_children = dict(module.named_children()), dict(other.named_children())
    return (
        _forms(module) == _forms(other)
        and children.keys() == others_children.keys()
        and all(_same_structure(child, others_children[name]) for name, child in children.items())
    )


def _same_setting(value: object, other: object) -> bool:
    """Return whether two attributes are equal for certain: plain values, the same object, or two empty containers."""
    if value is other:
        return True
    if isinstance(value, dict) and isinstance(other, dict):
        return not value and not other  # hooks
    return type(value) is type(other) and isinstance(value, _SETTINGS) and value == other


def _forms(module: torch.nn.Module) -> dict[str, tuple[torch.Size, torch.dtype, torch.device]]:
    """Return the shape, dtype and device of each parameter of a module itself."""
    parameters = module.named_parameters(recurse=False)
    return {name: (value.shape, value.dtype, value.device) for name, value in parameters}
