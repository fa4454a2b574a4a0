"""Comparing data: which entries of two TensorDicts differ, and how."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from tensordict import LazyStackedTensorDict, TensorDictBase, is_non_tensor, is_tensor_collection

__all__ = ["assert_equal_data", "differences"]


def differences(found: Any, expected: Any, *, exclude: tuple[str, ...] = ()) -> list[str]:
    """Say where two TensorDicts differ, in a sentence each; NaN equals NaN. Empty where they are equal.

    Args:
        found: data.
        expected: data.
        exclude: names of entries to leave out, at any depth.
    """
    return list(_compare(found, expected, (), exclude))


def assert_equal_data(
    found: Any, expected: Any, what: str = "the data", *, exclude: tuple[str, ...] = (), hint: str = ""
) -> None:
    """Raise AssertionError, naming the entries that differ, unless two TensorDicts are equal.

    Args:
        found: data.
        expected: data.
        what: how the error calls the data.
        exclude: names of entries to leave out, at any depth.
        hint: what to do about it, added to the error.
    """
    problems = differences(found, expected, exclude=exclude)
    if problems:
        lines = "\n".join(f"  - {line}" for line in problems)
        raise AssertionError(f"{what} differs:\n{lines}" + (f"\n{hint}" if hint else ""))


def _compare(found: Any, expected: Any, path: tuple[str, ...], exclude: tuple[str, ...]) -> Iterator[str]:
    if found.batch_size != expected.batch_size:
        yield f"{_at(path)}: batch size {tuple(found.batch_size)}, expected {tuple(expected.batch_size)}"
        return
    if isinstance(found, LazyStackedTensorDict) or isinstance(expected, LazyStackedTensorDict):
        lazy = found if isinstance(found, LazyStackedTensorDict) else expected
        rows = zip(found.unbind(lazy.stack_dim), expected.unbind(lazy.stack_dim), strict=True)
        for i, (one, other) in enumerate(rows):
            yield from _compare(one, other, (*path, f"[{i}]"), exclude)
        return
    mine, theirs = set(found.keys()) - set(exclude), set(expected.keys()) - set(exclude)
    for name in sorted(theirs - mine):
        yield f"{_at((*path, name))} is missing"
    for name in sorted(mine - theirs):
        yield f"{_at((*path, name))} was not expected"
    for name in sorted(mine & theirs):
        yield from _compare_entry(found.get(name), expected.get(name), (*path, name), exclude)


def _compare_entry(found: Any, expected: Any, path: tuple[str, ...], exclude: tuple[str, ...]) -> Iterator[str]:
    if _nested(found) and _nested(expected):
        yield from _compare(found, expected, path, exclude)
    elif not isinstance(found, torch.Tensor) or not isinstance(expected, torch.Tensor):
        one, other = _bare(found), _bare(expected)
        if type(found) is not type(expected) and (
            isinstance(found, torch.Tensor) or isinstance(expected, torch.Tensor)
        ):
            yield f"{_at(path)}: a {type(found).__name__}, expected a {type(expected).__name__}"
        elif one != other:
            yield f"{_at(path)}: {one!r}, expected {other!r}"
    elif found.shape != expected.shape:
        yield f"{_at(path)}: shape {tuple(found.shape)}, expected {tuple(expected.shape)}"
    elif found.dtype is not expected.dtype:
        yield f"{_at(path)}: dtype {found.dtype}, expected {expected.dtype}"
    else:
        unequal = found.cpu() != expected.cpu()
        if found.is_floating_point():
            unequal &= ~(found.cpu().isnan() & expected.cpu().isnan())
        if bool(unequal.any()):
            where = tuple(unequal.nonzero()[0].tolist())
            one, other = found.cpu()[where].item(), expected.cpu()[where].item()
            count = int(unequal.sum())
            yield f"{_at(path)}: {count} of {unequal.numel()} values, first at {where}: {one}, expected {other}"


def _nested(value: Any) -> bool:
    return is_tensor_collection(value) and isinstance(value, TensorDictBase) and not is_non_tensor(value)


def _bare(value: Any) -> Any:
    return value.tolist() if is_non_tensor(value) else value


def _at(path: tuple[str, ...]) -> str:
    return repr(path[0] if len(path) == 1 else path) if path else "the root"
