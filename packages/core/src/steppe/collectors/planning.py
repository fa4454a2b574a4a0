"""The call of a policy, planned once: its modules are called on their tensors, without TensorDicts in between.

What a TensorDictModule does beside calling its function costs more than a small net. A plan does that once, for modules
whose classes are known, and which nobody has hooked into or overridden; all others are called as they are. The results
are equal, random numbers included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import (
    ProbabilisticTensorDictModule,
    ProbabilisticTensorDictSequential,
    TensorDictModule,
    TensorDictModuleBase,
    TensorDictSequential,
    skip_existing,
)
from torch import distributions

from steppe.collectors.draws import EXACT, Drawing
from steppe.envs import ExplorationType, exploration_type
from steppe.storage import entries, has_plain_call

__all__ = ["planned"]

_Tensor = torch.Tensor
_Level = dict[str, Any]
#: Does what one module does to a plain TensorDict, whose first level is the second argument.
_Call = Callable[[TensorDictBase, _Level], None]

# What a subclass may have of its own: neither changes what a call does.
_FREE = frozenset({"__init__", "__repr__", "__module__", "__doc__", "__annotations__", "__dict__", "__weakref__"})
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def planned(policy: Any) -> Callable[[TensorDictBase], TensorDictBase]:
    """Return a callable that does what ``policy`` does; the policy itself where nothing can be planned.

    Hooks and attributes of its modules are looked at now: plan anew where they may have changed.
    """
    if not isinstance(policy, TensorDictModuleBase):
        return policy  # type: ignore[no-any-return]
    calls = list(_calls(policy))
    if all(isinstance(call, _Whole) for call in calls):
        return policy

    def act(tensordict: TensorDictBase) -> TensorDictBase:
        if type(tensordict) is not TensorDict or tensordict.is_locked or skip_existing() or exploration_type() is None:
            return policy(tensordict)  # type: ignore[no-any-return]
        level = entries(tensordict)
        for call in calls:
            call(tensordict, level)
        return tensordict

    return act


def _calls(module: Any) -> Iterator[_Call]:
    """What the call of a module comes down to, one after the other."""
    if _is_sequence(module):
        for at in range(len(module)):
            yield from _calls(module[at])
    elif _is(module, TensorDictModule) and _is_simple(module):
        yield _Function(module)
    elif _is(module, Drawing) and _draws_once(module):
        yield _Sample(module, module.draw)
    elif _is(module, ProbabilisticTensorDictModule) and _draws_once(module):
        exact = EXACT.get((module.distribution_class, *sorted(module.dist_keys)))
        yield _Sample(module, None if module.distribution_kwargs else exact)
    else:
        yield _Whole(module)


def _is(module: Any, kind: type) -> bool:
    """Whether a call of ``module`` runs the code of ``kind``, and no other."""
    if not isinstance(module, kind) or "forward" in vars(module) or not has_plain_call(module):
        return False
    if any(getattr(module, name, None) for name in _HOOKS) or torch.nn.modules.module._has_any_global_hook():  # type: ignore[no-untyped-call]
        return False
    cls = type(module)
    if cls is kind:
        return True
    return cls.__call__ is kind.__call__ and all(
        getattr(cls, name, None) is getattr(kind, name) for name in vars(kind) if name not in _FREE
    )


def _is_sequence(module: Any) -> bool:
    if not _is(module, TensorDictSequential) and not (
        _is(module, ProbabilisticTensorDictSequential) and isinstance(module[-1], ProbabilisticTensorDictModule)
    ):
        return False
    return module.inplace in (None, True) and not module.partial_tolerant


def _is_simple(module: Any) -> bool:
    return (
        module.inplace is True
        and getattr(module, "method", None) is None
        and not getattr(module, "method_kwargs", None)
        and list(module.out_keys) == list(module.out_keys_source)
        and _flat(module.in_keys)
        and _flat(module.out_keys)
    )


def _draws_once(module: Any) -> bool:
    return (
        module.num_samples is None
        and not module.cache_dist
        and len(module.dist_sample_keys) == 1
        and _flat(module.in_keys)
        and _flat(module.dist_sample_keys)
        and (not module.return_log_prob or isinstance(module.log_prob_key, str))
        and all(isinstance(key, str) for key in module.dist_keys)
    )


def _flat(keys: Any) -> bool:
    return all(isinstance(key, str) for key in keys)


def _put(tensordict: TensorDictBase, level: _Level, key: str, value: Any) -> None:
    """What ``tensordict.set(key, value)`` does; in the common case without asking what is known."""
    dims, device = tensordict.batch_dims, tensordict.device
    if (
        type(value) is _Tensor
        and value.ndim > 0
        and value.shape[:dims] == tensordict.batch_size
        and (device is None or value.device == device)
    ):
        level[key] = value
    else:
        tensordict.set(key, value)


class _Whole:
    """A module that is called as it is."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def __call__(self, tensordict: TensorDictBase, level: _Level) -> None:
        written = self.module(tensordict)
        if written is not tensordict:
            tensordict.update(written)


class _Function:
    """A function of some entries that gives others."""

    def __init__(self, module: Any) -> None:
        self.module, self.function = module, module.module
        self.in_keys, self.out_keys = list(module.in_keys), list(module.out_keys)

    def __call__(self, tensordict: TensorDictBase, level: _Level) -> None:
        try:
            values = [level[key] for key in self.in_keys]
        except KeyError:  # it says what is missing
            self.module(tensordict)
            return
        out = self.function(*values)
        if (
            type(out) is not _Tensor
            and isinstance(out, (dict, TensorDictBase))
            and all(key in out for key in self.out_keys)
        ):
            out = tuple(out.get(key) for key in self.out_keys)
        found = out if isinstance(out, tuple) else () if out is None else (out,)
        if len(found) != len(self.out_keys):
            raise RuntimeError(f"The module of {self.out_keys} returned {len(found)} values:\n{self.module}")
        for key, value in zip(self.out_keys, found, strict=True):
            if key != "_":
                _put(tensordict, level, key, value)


class _Sample:
    """A draw from a distribution, and its log-probability."""

    def __init__(self, module: Any, draw: Any) -> None:
        self.module = module
        self.make, self.fixed = module.distribution_class, dict(module.distribution_kwargs)
        self.names = list(zip(module.dist_keys, module.in_keys, strict=True))
        self.key = module.dist_sample_keys[0]
        self.log_prob_key = module.log_prob_key if module.return_log_prob else None
        self.draw = draw if draw is not None else self._from_distribution

    def __call__(self, tensordict: TensorDictBase, level: _Level) -> None:
        if exploration_type() is not ExplorationType.RANDOM or any(key not in level for _, key in self.names):
            self.module(tensordict)
            return
        found = self.draw(self.log_prob_key is not None, **{name: level[key] for name, key in self.names})
        if found is None:
            self.module(tensordict)
            return
        sample, log_prob = found
        _put(tensordict, level, self.key, sample)
        if self.log_prob_key is not None:
            _put(tensordict, level, self.log_prob_key, log_prob)

    def _from_distribution(self, scored: bool, **parameters: _Tensor) -> tuple[Any, Any] | None:
        try:
            found = self.make(**parameters, **self.fixed)
        except TypeError:  # it says which arguments there are
            return None
        if not isinstance(found, distributions.Distribution):
            return None
        name = "rsample_and_log_prob" if found.has_rsample else "sample_and_log_prob"
        if callable(getattr(type(found), name, None)):
            return None
        sample = found.rsample() if found.has_rsample else found.sample()
        if type(sample) is not _Tensor:
            raise _several(self.module)
        return sample, found.log_prob(sample) if scored else None


def _several(module: Any) -> RuntimeError:
    return RuntimeError(f"A distribution of one entry has drawn something that is no tensor:\n{module}")
