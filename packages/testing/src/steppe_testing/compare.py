"""Compare two TensorDicts: which entries differ, and how."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from tensordict import LazyStackedTensorDict, TensorDictBase, is_non_tensor, is_tensor_collection

__all__ = ["assert_equal_data", "differences"]


def differences(found: Any, expected: Any, *, exclude: tuple[str, ...] = ()) -> list[str]:
    """Return the differences of two TensorDicts, one sentence for each.

    The list is empty if they are equal. NaN equals NaN.

    Args:
        found: data to check.
        expected: data that it should equal.
        exclude: names of entries to ignore, at any depth.
    """
    return list(_compare(found, expected, (), exclude))


def assert_equal_data(
    found: Any, expected: Any, what: str = "the data", *, exclude: tuple[str, ...] = (), hint: str = ""
) -> None:
    """Raise an AssertionError that names the different entries of two TensorDicts.

    Args:
        found: data to check.
        expected: data that it should equal.
        what: name of the data in the error.
        exclude: names of entries to ignore, at any depth.
        hint: advice, appended to the error.
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
        for i, (found_row, expected_row) in enumerate(rows):
            yield from _compare(found_row, expected_row, (*path, f"[{i}]"), exclude)
        return
    found_names, expected_names = set(found.keys()) - set(exclude), set(expected.keys()) - set(exclude)
    for name in sorted(expected_names - found_names):
        yield f"{_at((*path, name))} is missing"
    for name in sorted(found_names - expected_names):
        yield f"{_at((*path, name))} was not expected"
    for name in sorted(found_names & expected_names):
        yield from _compare_entry(found.get(name), expected.get(name), (*path, name), exclude)


def _compare_entry(found: Any, expected: Any, path: tuple[str, ...], exclude: tuple[str, ...]) -> Iterator[str]:
    if _is_nested(found) and _is_nested(expected):
        yield from _compare(found, expected, path, exclude)
    elif not isinstance(found, torch.Tensor) or not isinstance(expected, torch.Tensor):
        found_value, expected_value = _as_python(found), _as_python(expected)
        if type(found) is not type(expected) and (
            isinstance(found, torch.Tensor) or isinstance(expected, torch.Tensor)
        ):
            yield f"{_at(path)}: a {type(found).__name__}, expected a {type(expected).__name__}"
        elif found_value != expected_value:
            yield f"{_at(path)}: {found_value!r}, expected {expected_value!r}"
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
            first, wanted = found.cpu()[where].item(), expected.cpu()[where].item()
            count = int(unequal.sum())
            yield f"{_at(path)}: {count} of {unequal.numel()} values, first at {where}: {first}, expected {wanted}"


def _is_nested(value: Any) -> bool:
    return is_tensor_collection(value) and isinstance(value, TensorDictBase) and not is_non_tensor(value)


def _as_python(value: Any) -> Any:
    return value.tolist() if is_non_tensor(value) else value


def _at(path: tuple[str, ...]) -> str:
    return repr(path[0] if len(path) == 1 else path) if path else "the root"
