"""Compare two TensorDicts: which entries differ, and how."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from tensordict import LazyStackedTensorDict, TensorDictBase, is_non_tensor, is_tensor_collection

__all__ = ["assert_equal_data", "differences"]


def differences(actual: Any, expected: Any, *, exclude: tuple[str, ...] = ()) -> list[str]:
    """Return the differences of two TensorDicts, one sentence for each.

    The list is empty if they are equal. NaN equals NaN.

    >>> import torch
    >>> from steppe_testing import differences
    >>> from tensordict import TensorDict
    >>> differences(TensorDict(x=torch.ones(3)), TensorDict(x=torch.zeros(3), y=torch.ones(1)))
    ["'y' is missing", "'x': 3 of 3 values, first at (0,): 1.0, expected 0.0"]

    Args:
        actual: data to check.
        expected: data that ``actual`` should equal.
        exclude: names of entries to ignore, at any depth.
    """
    return list(_compare(actual, expected, (), exclude))


def assert_equal_data(
    actual: Any, expected: Any, what: str = "the data", *, exclude: tuple[str, ...] = (), hint: str = ""
) -> None:
    """Raise an AssertionError that names the different entries of two TensorDicts.

    >>> import torch
    >>> from steppe_testing import assert_equal_data
    >>> from tensordict import TensorDict
    >>> assert_equal_data(TensorDict(x=torch.ones(3), time=1), TensorDict(x=torch.ones(3), time=2), exclude=("time",))
    >>> assert_equal_data(TensorDict(x=torch.ones(3)), TensorDict(x=torch.zeros(3)))
    Traceback (most recent call last):
        ...
    AssertionError: the data differs:
      - 'x': 3 of 3 values, first at (0,): 1.0, expected 0.0

    Args:
        actual: data to check.
        expected: data that ``actual`` should equal.
        what: name of the data in the error.
        exclude: names of entries to ignore, at any depth.
        hint: advice, appended to the error.
    """
    problems = differences(actual, expected, exclude=exclude)
    if problems:
        lines = "\n".join(f"  - {line}" for line in problems)
        raise AssertionError(f"{what} differs:\n{lines}" + (f"\n{hint}" if hint else ""))


def _compare(actual: Any, expected: Any, path: tuple[str, ...], exclude: tuple[str, ...]) -> Iterator[str]:
    if actual.batch_size != expected.batch_size:
        yield f"{_at(path)}: batch size {tuple(actual.batch_size)}, expected {tuple(expected.batch_size)}"
        return
    if isinstance(actual, LazyStackedTensorDict) or isinstance(expected, LazyStackedTensorDict):
        lazy = actual if isinstance(actual, LazyStackedTensorDict) else expected
        rows = zip(actual.unbind(lazy.stack_dim), expected.unbind(lazy.stack_dim), strict=True)
        for i, (actual_row, expected_row) in enumerate(rows):
            yield from _compare(actual_row, expected_row, (*path, f"[{i}]"), exclude)
        return
    actual_names, expected_names = set(actual.keys()) - set(exclude), set(expected.keys()) - set(exclude)
    for name in sorted(expected_names - actual_names):
        yield f"{_at((*path, name))} is missing"
    for name in sorted(actual_names - expected_names):
        yield f"{_at((*path, name))} was not expected"
    for name in sorted(actual_names & expected_names):
        yield from _compare_entry(actual.get(name), expected.get(name), (*path, name), exclude)


def _compare_entry(actual: Any, expected: Any, path: tuple[str, ...], exclude: tuple[str, ...]) -> Iterator[str]:
    if _is_nested(actual) and _is_nested(expected):
        yield from _compare(actual, expected, path, exclude)
    elif not isinstance(actual, torch.Tensor) or not isinstance(expected, torch.Tensor):
        actual_value, expected_value = _as_python(actual), _as_python(expected)
        if type(actual) is not type(expected) and (
            isinstance(actual, torch.Tensor) or isinstance(expected, torch.Tensor)
        ):
            yield f"{_at(path)}: a {type(actual).__name__}, expected a {type(expected).__name__}"
        elif actual_value != expected_value:
            yield f"{_at(path)}: {actual_value!r}, expected {expected_value!r}"
    elif actual.shape != expected.shape:
        yield f"{_at(path)}: shape {tuple(actual.shape)}, expected {tuple(expected.shape)}"
    elif actual.dtype is not expected.dtype:
        yield f"{_at(path)}: dtype {actual.dtype}, expected {expected.dtype}"
    else:
        unequal = actual.cpu() != expected.cpu()
        if actual.is_floating_point():
            unequal &= ~(actual.cpu().isnan() & expected.cpu().isnan())
        if bool(unequal.any()):
            where = tuple(unequal.nonzero()[0].tolist())
            first, target = actual.cpu()[where].item(), expected.cpu()[where].item()
            count = int(unequal.sum())
            yield f"{_at(path)}: {count} of {unequal.numel()} values, first at {where}: {first}, expected {target}"


def _is_nested(value: Any) -> bool:
    return is_tensor_collection(value) and isinstance(value, TensorDictBase) and not is_non_tensor(value)


def _as_python(value: Any) -> Any:
    return value.tolist() if is_non_tensor(value) else value


def _at(path: tuple[str, ...]) -> str:
    return repr(path[0] if len(path) == 1 else path) if path else "the root"
