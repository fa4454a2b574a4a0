"""Faster calls of policies: the modules of a policy are called on their tensors, without TensorDicts in between.

The work that a TensorDictModule does around its function costs more than a small network. A plan does this work once,
for modules of known classes without hooks and overridden methods. All other modules are called as usual. The results
are equal, random numbers included. A ``ProbabilisticTensorDictModule`` with an attribute ``fused_draw`` (a
:data:`Draw`) says that its ``forward`` samples with that function, which the plan calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
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

from steppe.envs import ExplorationType, exploration_type
from steppe.storage import has_plain_call, parts_of

__all__ = ["Draw", "planned"]

_Tensor = torch.Tensor
#: What a TensorDict consists of: the dict behind its first level, batch size, device, and whether it is locked.
_Parts = tuple[dict[str, Any], torch.Size, "torch.device | None", bool]
#: Runs one module on a TensorDict, whose parts are the second argument.
_Call = Callable[[TensorDict, _Parts], None]

#: Draws a sample of a distribution and its log-probability at once, in few operations. Its arguments are a flag that
#: requests the log-probability, and the parameters of the distribution by name. The result is the sample and the
#: log-probability, None if it was not requested. The result is None if the parameters are invalid; the caller makes
#: the distribution, which raises a clearer error.
Draw = Callable[..., "tuple[_Tensor, _Tensor | None] | None"]

# Attributes that a subclass may define without changing its call.
_HARMLESS = frozenset({"__init__", "__repr__", "__module__", "__doc__", "__annotations__", "__dict__", "__weakref__"})
_CALL = torch.nn.Module.__call__
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")

_HALF_LOG = math.log(math.sqrt(2 * math.pi))


def planned(policy: Callable[[TensorDictBase], TensorDictBase]) -> Callable[[TensorDictBase], TensorDictBase]:
    """Return a faster callable with the same result as ``policy``; the policy itself if nothing can be planned.

    The plan holds for the hooks and attributes that the modules have now. Make a new plan if they may have changed.
    """
    if not isinstance(policy, TensorDictModuleBase):
        return policy
    calls = list(_calls(policy))
    if all(isinstance(call, _Unplanned) for call in calls):
        return policy

    def act(tensordict: TensorDictBase) -> TensorDictBase:
        parts = parts_of(tensordict) if type(tensordict) is TensorDict else None
        if parts is None or parts[-1] or skip_existing() or exploration_type() is None:
            return policy(tensordict)  # type: ignore[no-any-return]
        for call in calls:
            call(tensordict, parts)
        return tensordict

    return act


def _calls(module: Any) -> Iterator[_Call]:
    """Yield the calls that replace the call of a module, in order."""
    if _is_sequence(module):
        for at in range(len(module)):
            yield from _calls(module[at])
    elif _runs(module, TensorDictModule) and _is_simple(module):
        yield _Function(module)
    elif isinstance(module, ProbabilisticTensorDictModule) and _draws_once(module):
        fused_draw = getattr(module, "fused_draw", None)
        if _runs(module, ProbabilisticTensorDictModule):
            exact = _EXACT.get((module.distribution_class, *sorted(module.dist_keys)))
            yield _Sample(module, None if module.distribution_kwargs else exact)
        elif callable(fused_draw) and _runs(module, _class_of_forward(module)):
            yield _Sample(module, fused_draw)
        else:
            yield _Unplanned(module)
    else:
        yield _Unplanned(module)


def _class_of_forward(module: object) -> type:
    return next(cls for cls in type(module).__mro__ if "forward" in vars(cls))


def _runs(module: object, kind: type) -> bool:
    """Whether a call of ``module`` runs the code of class ``kind`` and nothing else."""
    if not isinstance(module, kind) or "forward" in vars(module) or not has_plain_call(module):
        return False
    if _has_hooks(module):
        return False
    cls = type(module)
    if cls is kind:
        return True
    return cls.__call__ is kind.__call__ and all(
        getattr(cls, name, None) is getattr(kind, name) for name in vars(kind) if name not in _HARMLESS
    )


def _has_hooks(module: object) -> bool:
    """Whether a call of ``module`` does more than its ``forward``."""
    if getattr(module, "_compiled_call_impl", None) is not None:
        return True
    return any(getattr(module, name, None) for name in _HOOKS) or torch.nn.modules.module._has_any_global_hook()  # type: ignore[no-untyped-call]


def _is_sequence(module: Any) -> bool:
    if not _runs(module, TensorDictSequential) and not (
        _runs(module, ProbabilisticTensorDictSequential) and isinstance(module[-1], ProbabilisticTensorDictModule)
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
        and _flat(module.dist_keys)
    )


def _flat(keys: Iterable[object]) -> bool:
    return all(isinstance(key, str) for key in keys)


def _write(tensordict: TensorDict, parts: _Parts, keys: Sequence[str], values: Sequence[Any]) -> None:
    """Do the same as ``tensordict.set(key, value)`` for each key, without its checks if the value fits."""
    level, size, device, _ = parts
    for key, value in zip(keys, values, strict=True):
        if key == "_":
            continue
        if (
            type(value) is _Tensor
            and (shape := value.shape)
            and (shape == size or shape[: len(size)] == size)
            and (device is None or value.device == device)
        ):
            level[key] = value
        else:
            tensordict.set(key, value)


def _forward(module: Callable[..., object]) -> Callable[..., Any]:
    """Return a function that does what a call of ``module`` does, without its checks for hooks if it has none."""
    if not isinstance(module, torch.nn.Module) or type(module).__call__ is not _CALL or _has_hooks(module):
        return module
    if type(module) is not torch.nn.Sequential or "forward" in vars(module):
        return module.forward
    functions = [_forward(child) for child in module]

    def chain(value: _Tensor) -> _Tensor:
        for function in functions:
            value = function(value)
        return value

    return chain


class _Unplanned:
    """A module that is called as usual."""

    def __init__(self, module: Callable[[TensorDictBase], TensorDictBase]) -> None:
        self.module = module

    def __call__(self, tensordict: TensorDict, parts: _Parts) -> None:
        written = self.module(tensordict)
        if written is not tensordict:
            tensordict.update(written)


class _Function:
    """The function of a TensorDictModule, called on tensors."""

    def __init__(self, module: Any) -> None:
        self.module, self.function = module, _forward(module.module)
        self.in_keys, self.out_keys = list(module.in_keys), list(module.out_keys)

    def __call__(self, tensordict: TensorDict, parts: _Parts) -> None:
        try:
            values = [*map(parts[0].__getitem__, self.in_keys)]
        except KeyError:  # the module raises the error that names the missing entry
            self.module(tensordict)
            return
        out = self.function(*values)
        if (
            type(out) not in (_Tensor, tuple)  # first, because a test for an abstract class takes 1 us
            and isinstance(out, (dict, TensorDictBase))
            and all(key in out for key in self.out_keys)
        ):
            out = tuple(out.get(key) for key in self.out_keys)
        results = out if isinstance(out, tuple) else () if out is None else (out,)
        if len(results) != len(self.out_keys):
            raise RuntimeError(f"The module of {self.out_keys} returned {len(results)} values:\n{self.module}")
        _write(tensordict, parts, self.out_keys, results)


class _Sample:
    """A sample from the distribution of a probabilistic module, and its log-probability."""

    def __init__(self, module: Any, draw: Draw | None) -> None:
        self.module = module
        self.make, self.fixed = module.distribution_class, dict(module.distribution_kwargs)
        self.names = list(zip(module.dist_keys, module.in_keys, strict=True))
        self.scored = module.return_log_prob
        self.keys = [module.dist_sample_keys[0], *([module.log_prob_key] if self.scored else [])]
        self.draw = draw if draw is not None else self._from_distribution

    def __call__(self, tensordict: TensorDict, parts: _Parts) -> None:
        level = parts[0]
        if exploration_type() is not ExplorationType.RANDOM or any(key not in level for _, key in self.names):
            self.module(tensordict)
            return
        draw = self.draw(self.scored, **{name: level[key] for name, key in self.names})
        if draw is None:
            self.module(tensordict)
            return
        _write(tensordict, parts, self.keys, draw[: len(self.keys)])

    def _from_distribution(self, scored: bool, **parameters: _Tensor) -> tuple[_Tensor, _Tensor | None] | None:
        try:
            distribution = self.make(**parameters, **self.fixed)
        except TypeError:  # the module raises the error that names the arguments
            return None
        if not isinstance(distribution, distributions.Distribution):
            return None
        name = "rsample_and_log_prob" if distribution.has_rsample else "sample_and_log_prob"
        if callable(getattr(type(distribution), name, None)):
            return None
        sample = distribution.rsample() if distribution.has_rsample else distribution.sample()
        if type(sample) is not _Tensor:
            raise RuntimeError(f"A distribution of one entry returned a sample that is no tensor:\n{self.module}")
        return sample, distribution.log_prob(sample) if scored else None


def _exact_categorical(scored: bool, logits: _Tensor) -> tuple[_Tensor, _Tensor | None] | None:
    normalized = logits - logits.logsumexp(-1, keepdim=True)
    probs = normalized.softmax(-1)
    try:
        drawn = torch.multinomial(probs.reshape(-1, probs.shape[-1]), 1, True)
    except RuntimeError:  # invalid probabilities: the distribution raises a clearer error
        return None
    sample = drawn.reshape(probs.shape[:-1])
    return sample, normalized.gather(-1, sample.unsqueeze(-1)).squeeze(-1) if scored else None


def _exact_one_hot(scored: bool, logits: _Tensor) -> tuple[_Tensor, _Tensor | None] | None:
    draw = _exact_categorical(scored, logits)
    if draw is None:
        return None
    index, log_prob = draw
    return torch.nn.functional.one_hot(index, logits.shape[-1]).to(logits), log_prob


def _exact_normal(scored: bool, loc: _Tensor, scale: _Tensor) -> tuple[_Tensor, _Tensor | None] | None:
    if loc.shape != scale.shape or not bool(((scale > 0) & (loc == loc)).all()):
        return None
    sample = loc + torch.empty(loc.shape, dtype=loc.dtype, device=loc.device).normal_() * scale
    if not scored:
        return sample, None
    return sample, -((sample - loc) ** 2) / (2 * scale**2) - scale.log() - _HALF_LOG


#: Draws by distribution class and names of its arguments, bit for bit equal to the samples of that class.
_EXACT: dict[tuple[object, ...], Draw] = {
    (distributions.Categorical, "logits"): _exact_categorical,
    (distributions.OneHotCategorical, "logits"): _exact_one_hot,
    (distributions.Normal, "loc", "scale"): _exact_normal,
}
