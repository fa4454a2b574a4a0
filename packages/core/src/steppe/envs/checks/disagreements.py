"""Compare data with its specs, entry by entry, and name a likely cause of each disagreement."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from tensordict import NestedKey, TensorDictBase, is_tensor_collection

from steppe.specs import Composite, Spec, union

if TYPE_CHECKING:
    from steppe.envs.env_attributes import EnvAttributes

__all__ = ["Finding", "compare", "rewards_at_reset", "spec_of_data"]

Path = tuple[str, ...]


@dataclass(frozen=True)
class Finding:
    """One disagreement. Two of the same kind at the same key are equal, even if their texts differ.

    Attributes:
        kind: ``"missing"``, ``"extra"``, ``"type"``, ``"dtype"``, ``"shape"``, ``"device"``, ``"domain"``, ...
        key: the key of the entry, or None.
        text: the key, the expected value, the value found, and what to do.
    """

    kind: str
    key: NestedKey | None
    text: str = field(compare=False)

    @property
    def entry(self) -> Any:
        """The key of the entry, wherever it was found: without ``"next"``, and a string if it is not nested."""
        if not isinstance(self.key, tuple):
            return self.key
        path = self.key[1:] if self.key[:1] == ("next",) else self.key
        return path[0] if len(path) == 1 else path


def compare(
    spec: Composite,
    data: TensorDictBase,
    *,
    prefix: Path = (),
    spare: Set[Any] | None = frozenset(),
    what: str = "step",
    domains: bool = True,
) -> Iterator[Finding]:
    """Yield every disagreement between data and its spec.

    Args:
        spec: the spec of the data. The data may have further batch dimensions in front.
        data: data of one reset or step.
        prefix: put in front of the keys in the texts.
        spare: keys that the data may have without a spec; None allows all.
        what: the method that returned the data: ``"reset"``, ``"step"`` or ``"action"``.
        domains: also check that values are in their domains, bounds for example.
    """
    lead = data.batch_dims - len(spec.shape)
    if lead < 0 or not _fits(spec.shape, data.batch_size[lead:]):
        text = f"the data has batch size {tuple(data.batch_size)}, expected {tuple(spec.shape)}."
        yield Finding("batch", prefix, f"{_at(prefix)}: {text}" if prefix else text)
        return
    yield from _level(spec, data, prefix, (), spare, tuple(data.batch_size[:lead]), what, domains)


def spec_of_data(env: EnvAttributes, what: str) -> Composite:
    """Return the spec of the result of a ``"reset"`` (observations, done entries) or a ``"step"`` (rewards too)."""
    rewards = [env.full_reward_spec] if what == "step" else []
    return env.cached(f"spec_of_{what}", lambda: union(env.full_observation_spec, *rewards, env.full_done_spec))


def rewards_at_reset(env: EnvAttributes, data: TensorDictBase) -> Iterator[Finding]:
    """Yield the rewards in the data of a reset, which has none unless they are observations or state too."""
    for key in env.reward_keys:
        if key not in env.observation_keys and key not in env.state_keys and data.get(key, None) is not None:
            yield Finding("reward", key, f"{key!r} is a reward, and a reset has none: leave it out.")


def _level(
    spec: Composite,
    data: Any,
    prefix: Path,
    path: Path,
    spare: Set[Any] | None,
    lead: tuple[int, ...],
    what: str,
    domains: bool,
) -> Iterator[Finding]:
    rows = spec.rows_of(data)
    if rows is not None:
        for part, row in rows:
            rest = lead if part.ndim < spec.ndim else tuple(row.batch_size[: len(lead) - 1])
            yield from _level(part, row, prefix, path, spare, rest, what, domains)
        return
    keys = set(data.keys())
    for name, child in spec.items():
        inner = (*path, name)
        if name not in keys:
            if child is not None and not (isinstance(child, Composite) and child.is_empty(recurse=True)):
                source = {"reset": "_reset", "step": "_step"}.get(what, "rand_action")
                text = f"is in the spec but not in the data: return it from {source}, or drop its spec."
                yield _finding("missing", (*prefix, *inner), text)
            continue
        value = data.get(name)
        if isinstance(child, Composite):
            if not is_tensor_collection(value):
                must = f"must be a TensorDict with {list(child.keys())}, found {type(value).__name__}"
                yield _finding("type", (*prefix, *inner), f"{must}: nest it, or give the spec a leaf.")
            else:
                yield from _level(child, value, prefix, inner, spare, lead, what, domains)
        elif child is not None:
            device = None if data.device is None else child.device
            yield from _leaf(child, value, (*prefix, *inner), lead, device, domains)
    if spare is not None:
        for name in sorted(map(str, keys - set(spec.keys()))):
            yield from _extra(data.get(name), prefix, (*path, name), spare, top=not path)


def _extra(value: Any, prefix: Path, path: Path, spare: Set[Any], *, top: bool) -> Iterator[Finding]:
    if path[-1] in ("_reset", "_step") or (top and path[-1] in ("next", "env_info")):
        return
    key = path if len(path) > 1 else path[0]
    if key in spare:
        return
    if isinstance(value, TensorDictBase) and any(isinstance(k, tuple) and k[: len(path)] == path for k in spare):
        for name in value.keys():
            yield from _extra(value.get(name), prefix, (*path, name), spare, top=False)
        return
    text = "is in the data but in no spec: add it to observation_spec, or do not return it."
    yield _finding("extra", (*prefix, *path), text)


def _leaf(
    leaf: Spec, value: Any, path: Path, lead: tuple[int, ...], device: torch.device | None, domains: bool
) -> Iterator[Finding]:
    if not isinstance(value, torch.Tensor):
        if leaf.dtype is not None:
            text = f"must be a tensor of dtype {leaf.dtype}, found {type(value).__name__}"
            yield _finding("type", path, f"{text}: convert it, or use NonTensor.")
        return
    if leaf.dtype is None:
        text = f"must be non-tensor data, found a tensor of dtype {value.dtype}: use Unbounded for it."
        yield _finding("type", path, text)
        return
    if value.dtype is not leaf.dtype:
        yield _finding("dtype", path, f"must have dtype {leaf.dtype}, found {value.dtype}: {_cast(path, value)}.")
    if device is not None and value.device.type != device.type:
        text = f"must be on {device}, found {value.device}: make it with device=env.device."
        yield _finding("device", path, text)
    expected = (*lead, *leaf.shape)
    if not _fits(expected, value.shape):
        text = f"must have shape {expected}, found {tuple(value.shape)}: {_mend(leaf, value)}."
        yield _finding("shape", path, text)
    elif domains and value.dtype is leaf.dtype and -1 not in leaf.shape:
        yield from _domain(leaf, value, path, lead)


def _cast(path: Path, value: torch.Tensor) -> str:
    if path[-1] in ("done", "terminated", "truncated"):
        return "make it one with value.bool()"
    return f"cast it, or give the spec dtype={value.dtype}"


def _mend(leaf: Spec, value: torch.Tensor) -> str:
    if value.numel() == leaf.numel():
        return f"reshape it to {tuple(leaf.shape)}"
    if value.ndim < leaf.ndim and tuple(leaf.shape[leaf.ndim - value.ndim :]) == tuple(value.shape):
        return "its batch dimensions are missing, stack the rows"
    return f"give the spec shape={tuple(value.shape)}"


def _domain(leaf: Spec, value: torch.Tensor, path: Path, lead: tuple[int, ...]) -> Iterator[Finding]:
    whole = leaf.expand((*lead, *leaf.shape)) if lead else leaf
    if whole.is_in(value, exact=True):
        return
    numbers = value.detach().to("cpu")
    if numbers.is_floating_point() and bool(numbers.isnan().any()):
        text = "holds NaN: the simulation has diverged, or a value was never set"
    elif numbers.numel():
        numbers = numbers.to(torch.float64) if numbers.is_floating_point() else numbers.to(torch.int64)
        text = (
            f"has values from {numbers.min().item()} to {numbers.max().item()}: widen the bounds of its spec, "
            "or clip or rescale the data"
        )
    else:
        text = "is empty"
    yield _finding("domain", path, f"must lie in {leaf!r}, but {text}.")


def _fits(expected: Any, actual: Any) -> bool:
    return len(expected) == len(actual) and all(want in (-1, have) for want, have in zip(expected, actual, strict=True))


def _at(path: Path) -> str:
    return repr(path if len(path) != 1 else path[0])


def _finding(kind: str, path: Path, said: str) -> Finding:
    """Return a finding about the entry at a path."""
    return Finding(kind, path, f"{_at(path)} {said}")
