"""Policies: RandomPolicy, and the adapter for modules and functions that act as policies."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import torch
from tensordict import LazyStackedTensorDict, NestedKey, TensorDict, TensorDictBase, lazy_stack
from tensordict.nn import TensorDictModuleBase

from steppe.errors import PolicyError, SpecError, add_note
from steppe.specs import Composite, Spec, as_path, conversion_hint, is_private
from steppe.storage import entries

if TYPE_CHECKING:
    from steppe.envs.base import EnvBase

__all__ = [
    "Policy",
    "RandomPolicy",
    "as_policy",
    "called_with",
    "note_policy",
    "on_device",
    "policy_name",
    "with_written",
]

Policy = Callable[[TensorDictBase], TensorDictBase]

_DATA_NAMES = ("tensordict", "td", "data")


class RandomPolicy:
    """Write a random action in the batch size of the data, drawn from torch's global generator.

    Args:
        action_spec: a leaf, or a Composite whose keys are written. By default the action spec of the environment in
            which a rollout or a collector first uses the policy.
        action_key: the key of a leaf.

    Raises:
        SpecError: ``action_spec`` is not a spec.
    """

    def __init__(self, action_spec: Spec | None = None, action_key: Any = "action") -> None:
        if action_spec is not None and not isinstance(action_spec, Spec):
            raise SpecError(
                f"RandomPolicy takes a spec, found {type(action_spec).__name__}.{conversion_hint(action_spec)}"
            )
        self.action_spec = action_spec
        self.action_key = action_key

    def set_action_spec_from_env(self, env: EnvBase) -> None:
        """Use the action spec of an environment, unless the policy has one."""
        if self.action_spec is None:
            self.action_spec = env.full_action_spec.clone()

    def __call__(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the action into ``tensordict`` and return it.

        Raises:
            PolicyError: the policy has no action spec.
        """
        spec = self.action_spec
        if spec is None:
            raise PolicyError("This RandomPolicy has no action spec: make it with env.action_spec.")
        composite = isinstance(spec, Composite)
        dims = len(spec.shape) if composite else 0
        lead = tensordict.batch_size[: tensordict.batch_dims - dims] if composite else _missing(tensordict, spec)
        sample = spec.rand(lead)
        return tensordict.update(sample) if composite else tensordict.set(self.action_key, sample)


def _missing(tensordict: TensorDictBase, spec: Spec) -> tuple[int, ...]:
    shape = tuple(tensordict.batch_size)
    return () if shape and tuple(spec.shape[: len(shape)]) == shape else shape


def as_policy(policy: Any, env: EnvBase) -> Policy:
    """Make a policy, a function from TensorDict to TensorDict, from a module or a function.

    Args:
        policy: one of three forms. A TensorDictModule. A callable on a TensorDict (its only parameter is called
            ``tensordict``, ``td`` or ``data``, or is annotated as a TensorDict), which returns it with the action, or
            returns a new one. Or a callable on observations, which gets them in the order of ``env.observation_spec``,
            or by name if its parameters are named like the keys (a nested key is ``agents_observation``, a group
            ``agents``), and returns the action, a tuple of the actions, or a TensorDict of entries to add. A module, or
            a submodule of it, may refuse the environment in a method ``check_env(env)`` of its class.
        env: the environment in which it will act.

    Returns:
        A callable from TensorDict to TensorDict.

    Raises:
        PolicyError: the policy is not callable, or its parameters do not match the observations.
        SpecError: ``check_env`` has found that its actions do not fit the environment.
    """
    if isinstance(policy, torch.nn.Module):
        for part in policy.modules():
            check = getattr(type(part), "check_env", None)
            if check is not None:
                check(part, env)
    if isinstance(policy, RandomPolicy):
        policy.set_action_spec_from_env(env)
    # torch.compile wraps a module in one without the signature of its forward.
    if isinstance(getattr(policy, "_orig_mod", policy), (TensorDictModuleBase, RandomPolicy, _ObservationPolicy)):
        return cast(Policy, policy)
    if isinstance(policy, type):
        raise PolicyError(
            f"A policy is an object, found the class {policy.__name__}: make one, {policy.__name__}(...)."
        )
    if not callable(policy):
        raise PolicyError(f"A policy is callable, found {type(policy).__name__}.")
    parameters = _positional(policy)
    if parameters is None or (len(parameters) == 1 and _takes_data(parameters[0])):
        return cast(Policy, policy)
    return _ObservationPolicy(policy, env, parameters)


def with_written(root: TensorDictBase, written: Any) -> TensorDictBase:
    """Add the output of a policy to the root that it was called with.

    A policy may write into its argument and return it, or return another TensorDict, which may hold the action alone:
    ``lambda td: TensorDict(action=...)``, ``TensorDictModule(..., inplace=False)``.

    Args:
        root: data ``[*B]`` that the policy was called with; changed in place.
        written: the output of the policy.

    Returns:
        ``root``, or a lazy stack of its rows if the policy returned actions of different shapes.

    Raises:
        PolicyError: ``written`` is not a TensorDict.
    """
    if written is root:
        return root  # type: ignore[no-any-return]
    if not isinstance(written, TensorDictBase):
        raise PolicyError(f"The policy must return a TensorDict, found {type(written).__name__}.")
    if isinstance(written, LazyStackedTensorDict) and not isinstance(root, LazyStackedTensorDict):
        root = lazy_stack(list(root.unbind(written.stack_dim)), written.stack_dim)
    return root.update(written)


def on_device(policy: Policy, policy_device: torch.device, env_device: torch.device) -> Policy:
    """Return a policy that is called with data on its device, and whose output is moved to the environment's.

    Args:
        policy: a function from TensorDict to TensorDict.
        policy_device: the device of the policy, to which the data is moved.
        env_device: the device of the data, to which the output is moved.
    """

    def moved(tensordict: TensorDictBase) -> TensorDictBase:
        written = policy(tensordict.to(policy_device))
        # with_written raises the error if the policy has returned something else than a TensorDict.
        return written.to(env_device) if isinstance(written, TensorDictBase) else written

    return moved


def note_policy(error: Exception, policy: Any, root: TensorDictBase) -> None:
    """Add a note to an error of a policy: its name, the data that it was called with, and missing ``in_keys``.

    Args:
        error: the error that the policy has raised.
        policy: the policy.
        root: data ``[*B]`` that it was called with.
    """
    add_note(error, f"in the policy {policy_name(policy)}, which was called with {called_with(policy, root)}")


def policy_name(policy: Any) -> str:
    """Return the name of a policy in errors: the name of the function, or of the class."""
    policy = _unwrapped(policy)
    return str(getattr(policy, "__name__", type(policy).__name__))


def called_with(policy: Any, root: TensorDictBase) -> str:
    """Return a description of the data that a policy was called with: entries, shapes, and missing ``in_keys``.

    Args:
        policy: the policy.
        root: the data ``[*B]``.
    """
    keys = [key for key in root.keys(True, True) if not is_private(key)]
    shown = ", ".join(f"{key!r}{_shape(root, key)}" for key in keys)
    missing = [key for key in getattr(_unwrapped(policy), "in_keys", ()) if key not in root.keys(True)]
    if not missing:
        return shown
    close = difflib.get_close_matches(str(missing[0]), {str(key): key for key in keys}, 1)
    hint = f": did you mean {close[0]!r}?" if close else ""
    return f"{shown}; its in_keys {missing} are missing{hint}"


def _unwrapped(policy: Any) -> Any:
    policy = getattr(policy, "_orig_mod", policy)
    return policy.function if isinstance(policy, _ObservationPolicy) else policy


def _shape(root: TensorDictBase, key: NestedKey) -> str:
    try:
        return f" {list(root.get(key).shape)}"
    except RuntimeError:  # rows of a lazy stack that differ
        return ""


def _positional(policy: Any) -> list[inspect.Parameter] | None:
    policy = getattr(policy, "_orig_mod", policy)
    target = policy.forward if isinstance(policy, torch.nn.Module) else policy
    try:
        parameters = list(inspect.signature(target, eval_str=False).parameters.values())
    except (TypeError, ValueError):
        return None
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p for p in parameters if p.kind in kinds and p.default is inspect.Parameter.empty] or None


def _takes_data(parameter: inspect.Parameter) -> bool:
    annotation = parameter.annotation
    if annotation is inspect.Parameter.empty:
        return parameter.name in _DATA_NAMES
    if isinstance(annotation, type):
        return issubclass(annotation, TensorDictBase)
    if isinstance(annotation, str) and annotation:
        return "TensorDict" in annotation
    return parameter.name in _DATA_NAMES


class _ObservationPolicy:
    """Call a function on observation tensors and write its result as the action."""

    def __init__(self, function: Callable[..., Any], env: EnvBase, parameters: list[inspect.Parameter]) -> None:
        self.function = function
        self.action_keys = list(env.action_keys)
        spec = env.full_observation_spec
        leaves = [key for key in spec.keys(include_nested=True, leaves_only=True) if not is_private(key)]
        groups = [key for key in spec.keys() if not is_private(key)]
        available = {_name(key): key for key in (*groups, *leaves)}
        names = [parameter.name for parameter in parameters]
        if all(name in available for name in names):
            self.in_keys = [available[name] for name in names]
        elif len(names) in (len(leaves), len(groups)):
            self.in_keys = leaves if len(names) == len(leaves) else groups
        else:
            raise PolicyError(
                f"The policy {getattr(function, '__name__', type(function).__name__)!r} takes {names}, but the "
                f"environment's observations are {leaves}. Name its parameters after them, take "
                "one parameter called 'tensordict', or wrap it in a tensordict.nn.TensorDictModule."
            )
        flat = len(self.action_keys) == 1 and all(isinstance(key, str) for key in (*self.in_keys, *self.action_keys))
        self.only = self.action_keys[0] if flat else None

    def __call__(self, tensordict: TensorDictBase) -> TensorDictBase:
        if self.only is not None and type(tensordict) is TensorDict and not tensordict.is_locked:
            # The common case, 3 times faster. The step checks the action.
            level = entries(tensordict)
            action = self.function(*[level[key] for key in self.in_keys])
            if type(action) is torch.Tensor and action.device == (tensordict.device or action.device):
                level[self.only] = action
                return tensordict
        else:
            action = self.function(*[tensordict.get(key) for key in self.in_keys])
        if isinstance(action, TensorDictBase):
            return with_written(tensordict, action)
        actions = action if isinstance(action, tuple) else (action,)
        if len(actions) != len(self.action_keys):
            raise PolicyError(f"The policy returned {len(actions)} values for the actions {self.action_keys}.")
        for key, value in zip(self.action_keys, actions, strict=True):
            tensordict.set(key, value)
        return tensordict


def _name(key: NestedKey) -> str:
    return "_".join(as_path(key))
